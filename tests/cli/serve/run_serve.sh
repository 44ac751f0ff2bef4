#!/usr/bin/env bash
# ctest: timeout=240 labels=web,mpi
# `bitrain serve` as its clients use it: requests of evaluation harnesses and chat clients, replies equal to those of
# `bitrain generate`, 64 clients at once, thousands of requests in the same memory, the stop.
. "$(dirname "$0")/../train_lib.sh"
command -v node >/dev/null || skip "node is missing"
node -e 'process.exit(typeof fetch === "function" ? 0 : 1)' || skip "node has no fetch"
"$BITRAIN" doctor --quick | grep -q "without the dashboard" && skip "built without the web pages"
client="$(dirname "$0")/ask_model.mjs"

ok train "${tiny[@]}" --set model.seq_len=512 --batch-tokens 1024 --ranks 1 --name m --steps 30

# Conversations: one question, two lines of questions, a template by name, an unknown template.
ok generate m --chat --message hi --tokens 8 --json
grep -qF '"prompt":"User: hi\nAssistant:"' out || fault "the plain template is not: $(cat out)"
printf 'one\n\n/new\ntwo\nthree\n' | b generate m --chat --system S --tokens 4 --json --template chatml --temperature 0 >out 2>err || fault "a conversation of three lines fails: $(cat err)"
[ "$(wc -l <out)" = 3 ] || fault "three questions have $(wc -l <out) answers"
tail -1 out | grep -qF 'system\nS<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n' || fault "the conversation is not carried on: $(tail -1 out)"
tail -1 out | grep -qF one && fault "/new keeps earlier texts"
ok generate m --chat --message three --system S --template chatml --temperature 0 --tokens 4 --json
ok generate m --chat --message hi --tokens 8
says "chat template 'plain'"
says "a model that was trained on plain text continues a question rather than answers it"
# On a terminal: an unknown word lists the known ones, a path is a question, /quit ends.
if script -qec true try >/dev/null 2>&1 </dev/null; then
    printf '/help\n/etc/hosts\n/quit\nnot read\n' | script -qec "'$BITRAIN' generate m --chat --tokens 4" tty >/dev/null 2>&1
    [ "$(grep -c "/quit or Ctrl-D ends" tty)" = 2 ] || fault "/help does not report the words: $(cat -v tty)"
    [ "$(grep -c "tokens/s (prompt" tty)" = 1 ] || fault "not one answer before /quit: $(cat -v tty)"
fi
code 2 generate m --chat --message hi --template chatmi
says "chatml, llama3"
# The server must generate the same greedy text. It computes in fp32, so that other requests in the batch change no
# relevant bit.
ok generate m --prompt abc --tokens 12 --temperature 0 --json
export WANT_GREEDY=$(cat out)
ok generate m --prompt abc --tokens 12 --temperature 0.9 --top-p 1 --seed 5 --json
export WANT_SEED=$(cat out)

export XDG_RUNTIME_DIR=$tmp
"$BITRAIN" serve m --port 0 --json --threads 2 --api-key "k3y/of+16=characters" --allow-origin http://other.example,http://pages.example:3000 >serve.out 2>serve.err &
pid=$!
started+=($pid)
for _ in $(seq 200); do [ -s serve.out ] && break; sleep 0.05; done
[ -s serve.out ] || { fault "serve does not start: $(cat serve.err)"; finish; }
[ "$(stat -c %a "$tmp/bitrain"/serve-*.token)" = 600 ] || fault "the token's file is not its owner's alone"
timeout "${SLOW:-200}" node "$client" "$(cat serve.out)" $pid || fault "a client was not answered as it should"
kill -TERM $pid
for _ in $(seq 100); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
kill -0 $pid 2>/dev/null && fault "SIGTERM does not end it within 5 s"
wait $pid
[ $? = 0 ] || fault "the stop is no success"
grep -qE '^[0-9]+ texts: [0-9]+ tokens read' serve.err || fault "no summary: $(tail -1 serve.err)"
ls "$tmp/bitrain"/serve-*.token >/dev/null 2>&1 && fault "the token's file remains"

# A stop in the middle of a stream ends the stream regularly.
: >serve.out # the first client's conversation does not reach the second one
"$BITRAIN" serve m --port 0 --json --open >serve.out 2>serve.err &
pid=$!
started+=($pid)
for _ in $(seq 200); do [ -s serve.out ] && break; sleep 0.05; done
kill -INT $pid
wait $pid || fault "an idle server's stop is no success"
code 2 serve m --open --listen 0.0.0.0
says "only with --listen 127.0.0.1"
code 2 serve m --template nope
code 2 serve m --api-key short
says "16 to 128 visible ASCII characters"
code 2 serve m --allow-origin localhost:3000
says "as http://localhost:3000"
code 3 serve none
finish
