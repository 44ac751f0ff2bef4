#!/usr/bin/env bash
# ctest: timeout=240 labels=mpi
# A group of runs as one model: eval and generate use the mean of the probabilities, and a student learns from it;
# members that do not fit together are refused by name.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 900; i++) printf "%s has %d of the %d words, %c.\n", i % 3 ? "nobody" : "everybody", i * 7 % 90, i % 17, 97 + i * 5 % 26 }' >text.txt
shape=(--preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
       --seq-len 64 --batch-tokens 512 --threads 1 --ranks 1 --data text.txt --set data.tokenizer=bytes --eval-every 20 --set train.eval_tokens=1024 --steps 40 --lr 5e-3)
train() { ok train "${shape[@]}" "$@"; }
# nats MODEL...: the loss on the validation split
nats() { b eval "$@" --json 2>err | sed -n 's/.*"nats":\([0-9.e+-]*\),.*/\1/p'; }

for k in 1 2 3; do train --seed $k --group abl --name abl-$k; done
train --seed 1 --group one --name single
for k in 1 2 3; do eval "n$k=$(nats abl-$k)"; done

# The mean of probabilities is at least as good as the mean of losses, and its members may be listed in several ways.
mean=$(nats abl)
awk -v m="$mean" -v a="$n1" -v b="$n2" -v c="$n3" 'BEGIN { exit !(m > 0 && m < (a + b + c) / 3) }' || fault "the ensemble has $mean nats, its members $n1, $n2, $n3"
for words in "abl-1 abl-2 abl-3" "abl-1,abl-2,abl-3" "$tmp/runs/abl-1 abl-2,abl-3"; do
    [ "$(nats $words)" = "$mean" ] || fault "$words: $(nats $words) nats, as a group $mean"
done
[ "$(nats one)" = "$(nats single)" ] || fault "a group of one has $(nats one) nats, its run $(nats single)"
ok eval abl
says "abl, mean of 3 models: "
says "ensemble   mean of 3 models, "
ok eval abl@best --json
says '"members":["abl-1@best","abl-2@best","abl-3@best"]'
ok generate abl --prompt everybody --tokens 8 --temperature 0 --json
says '"members":["abl-1","abl-2","abl-3"]'
says '"run":"abl"'
# A server answers with the mean, too: its greedy text is that of generate.
greedy=$(sed -n 's/.*"text":\("[^"]*"\).*/\1/p' out)
"$BITRAIN" serve abl --port 0 --json --open >serve.out 2>serve.err &
pid=$!
started+=($pid)
for _ in $(seq 200); do [ -s serve.out ] && break; sleep 0.05; done
port=$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' serve.out | head -1)
body='{"model":"abl","prompt":"everybody","max_tokens":8,"temperature":0}'
exec 9<>"/dev/tcp/127.0.0.1/${port:-1}" || fault "serve abl does not start: $(cat serve.err)"
{
    printf 'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\n' "$port"
    printf 'Content-Length: %d\r\nConnection: close\r\n\r\n%s' ${#body} "$body"
} >&9
cat <&9 >reply
exec 9>&-
[ -n "$greedy" ] && grep -qF "\"text\":$greedy" reply ||
    fault "the server of the group answers $(cat reply), generate $greedy"
kill -TERM $pid
wait $pid || fault "the server of the group does not end with 0"
ok show abl
says "abl-2"
says "as one model: bitrain eval abl"

# A student learns from the mean alone, with new weights.
train --teacher abl --set tune.mix=1 --name student
[ "$(q "SELECT value FROM configs WHERE run='student' AND key='tune.teacher'")" = "$tmp/runs/abl-1,$tmp/runs/abl-2,$tmp/runs/abl-3" ] ||
    fault "the teachers are $(q "SELECT value FROM configs WHERE run='student' AND key='tune.teacher'")"
ok train "${shape[@]}" --teacher abl --dry-run
says "teacher "
code 1 train "${shape[@]}" --teacher abl --ranks 2 --tp 2
says "with --tp 2 a run can have only one teacher, not 3"

# Members that do not fit together.
train --seq-len 32 --name short
train --set model.vocab=300 --name wide
ok tokenizer train text.txt --vocab 300 --out other.json
train --set data.tokenizer=other.json --set model.vocab=300 --name other
train --stop-after 5 --group half --name half-1
code 2 eval abl-1 short
says "the members of an ensemble need sequences of the same length: 'abl-1' has model.seq_len=64, 'short' has 32"
code 2 generate wide other --prompt a
says "the members of an ensemble need the same tokenizer: 'wide' has 300 tokens"
code 2 serve abl-1,other --port 0
says "need the same tokenizer: 'abl-1' has 256 tokens"
code 2 eval abl-1 abl-1
says "'abl-1' occurs twice in one ensemble"
code 2 eval abl --add abl-1
says "--add and --weight are for the adapters of one model, and these are 3"
code 3 eval nothing
says "nothing"
code 4 eval half
says "group 'half' has no finished run: 'half-1' is stopped"
train --group half --name half-2
ok eval half --json
says "group half: 1 unfinished run is left out (half-1 is stopped)"
rm -r runs/abl-2
code 3 eval abl
says "member 'abl-2' of the ensemble: "
code 3 train "${shape[@]}" --teacher abl --name orphan

finish
