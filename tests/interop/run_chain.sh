#!/usr/bin/env bash
# ctest: timeout=240
# The complete chain: train a small model on the built-in text, convert it to GGUF and to Hugging Face, read both back,
# generate text with them, continue training from each, and measure it on multiple-choice questions. Bad input gets its
# line and its exit code.
. "$BT_SRC/tests/cli/train_lib.sh"
golden=$BT_SRC/tests/engine/interop/golden
shape=(--set model.layers=2 --set model.d_model=256 --set model.heads=4 --set model.kv_heads=2 --set model.d_ff=256 --set model.act=silu
       --set model.seq_len=64 --batch-tokens 256 --set train.eval_tokens=256 --eval-every 1000000 --threads 1 --ranks 2 --lr 2e-3 --quiet)
has() { grep -q -- "$1" "$2" || { fault "no '$1' in $2:"; tail -n 5 "$2"; }; }
below() { # FILE KEY BOUND: the number of a JSON object
    local x
    x=$(sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1")
    awk -v x="$x" -v b="$3" 'BEGIN { exit !(x != "" && x <= b) }' || fault "$2 is $x, not <= $3"
}

{ seq 200; echo "In the beginning God created the heaven and the earth"; } >text.txt
ok tokenizer train --vocab 320 --out tok.json
ok train "${shape[@]}" --tokenizer tok.json --steps 12 --name chain --out run

# exported, and compared on both sides
ok convert last --to gguf --type tq2_0 -o m.gguf --verify --json
cp out gguf.json
below gguf.json largest_difference 0.5    # an fp16 scale and embedding move roundings to int8
has 'loads in llama.cpp' gguf.json
ok convert last --type f32 -o f32.gguf --verify --json
below out largest_difference 1e-4
ok convert run --to hf -o folder --verify --json
below out largest_difference 1e-6
[ -f folder/model.safetensors ] && [ -f folder/tokenizer.json ] && [ -f folder/config.json ] || fault "the folder lacks files"
ok convert run --to hf --type bf16 --shard-bytes 200k -o shards --verify --json
below out largest_difference 0.5
[ "$(ls shards/model-*.safetensors | wc -l)" -ge 3 ] || fault "no shards"

# and in again
ok convert folder --to bitrain -o back --verify --json
below out largest_difference 0
ok convert folder/ --to bitrain                 # into the folder it names
ok convert folder-bitrain --to hf -o again
cmp folder/model.safetensors again/model.safetensors || fault "a checkpoint without -o holds other weights"
for f in tokenizer.json tokenizer_config.json generation_config.json; do
    cmp folder/$f again/$f || fault "$f changed on the way through a checkpoint"
done
ok convert m.gguf --to bitrain -o from_gguf --verify --json
below out largest_difference 0
for m in last folder back; do
    ok generate $m --prompt "In the beginning" --tokens 12 --temperature 0
    mv out text.$m
done
cmp -s text.folder text.back || fault "the folder and its checkpoint write different texts"
ok eval back --tokens 1k --json

# One model gives one result: the run (trained in bf16), its folder and the slowest kernels predict alike, in fp32
# unless set otherwise.
nats() { ok eval "$@" --data text.txt --json; has '"precision":"fp32"' out; sed -n 's/.*"nats":\([^,}]*\).*/\1/p' out; }
of_run=$(nats run)
for m in folder back "run --isa generic"; do
    awk -v a="$of_run" -v b="$(nats $m)" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d * d < 1e-8) }' || fault "$m: $(cat out), the run $of_run"
done
ok eval run --data text.txt --json --precision bf16
grep -q '"precision":"[bf][pf]' out || fault "no precision in $(cat out)"
ok generate m.gguf --prompt "In the beginning" --tokens 12 --temperature 0

# the name of a special token in a prompt is the token, unless that is refused
prompt_tokens() { ok generate back --prompt '<|endoftext|>' --tokens 1 --json "$@"; sed -n 's/.*"prompt_tokens":\([0-9]*\).*/\1/p' out; }
[ "$(prompt_tokens)" = 1 ] || fault "a special token in a prompt: $(cat out)"
[ "$(prompt_tokens --no-special)" -gt 1 ] || fault "--no-special: $(cat out)"
# every token that a file of the model names as an end ends a text: here all that one greedy step can choose from
cp -r folder ends
ids=$(ok generate back --prompt "In the beginning" --tokens 1 --temperature 0 --json; sed -n 's/.*"text":"\([^"]*\)".*/\1/p' out)
id=$("$BITRAIN" tokenizer encode tok.json --text "$ids" | cut -d' ' -f1)
sed -i "s/\"eos_token_id\": *256/\"eos_token_id\":[256,$id]/" ends/generation_config.json
ok generate ends --prompt "In the beginning" --tokens 5 --temperature 0 --json
has '"tokens":0,"finish_reason":"stop"' out
# a chat template that is not known here is reported, in JSON and on standard error
echo '[[user]] {{ messages[0].content }}' >ends/chat_template.jinja
ok generate ends --chat --message hi --tokens 1 --json
has "not in the model's own" out
has "has the markup of none" err

# a key that no reader uses is reported by each command that reads the model
sed -i 's/"use_cache": *true/"unheard_of":1/' shards/config.json
ok generate shards --prompt "In the beginning" --tokens 2 --json
has "'unheard_of'" err
has '"notes":\["config.json has keys that are not used here: .unheard_of.' out
ok convert shards --to gguf -o shards.gguf
has "'unheard_of'" out
ok train --init-from shards --dry-run
has "'unheard_of'" err

# Training continues from each: shape and tokenizer are taken from the weights.
more=(--set model.seq_len=64 --batch-tokens 256 --set train.eval_tokens=256 --eval-every 1000000 --threads 1 --ranks 2 --quiet --steps 2)
for m in folder m.gguf run shards; do
    ok train "${more[@]}" --init-from $m --name "from-${m%.gguf}"
done
q "SELECT title FROM events WHERE run='from-shards'" >events
has "'unheard_of'" events
for m in folder run; do losses from-$m >losses.$m; done
cmp -s losses.folder losses.run || fault "training from the folder and from the checkpoint has different losses"
[ -s losses.run ] || fault "no losses"
# missing norms become one and are named, as are unexpected tensors; a missing matrix is an error
ok train "${more[@]}" --init-from folder --set model.qk_norm=true --set model.norm=pre --name other
q "SELECT title FROM events WHERE run='other'" >events
has 'has no layers.0.q_norm, layers.0.k_norm' events
has 'holds layers.0.attn_subnorm' events
code 2 train "${more[@]}" --init-from folder --set model.tied=false --name untied
has "does not have 1 tensor of this model: head" err
code 2 train "${more[@]}" --init-from folder --set model.d_ff=512 --name wide
has "'layers.0.ffn_gate' is 256 x 256 in" err

# questions with choices
cat >arc.jsonl <<'END'
{"question":"In the beginning God created","choices":{"text":["the heaven and the earth","qqqq zzzz xxxx"],"label":["A","B"]},"answerKey":"A"}
{"question":"And God said","choices":{"text":["zzxxqq vvjj","Let there be light"],"label":["1","2"]},"answerKey":"2"}
END
ok eval back --task arc --data arc.jsonl --json
has '"questions":2' out
has '"acc":' out
has '"acc_norm":' out
echo '{"question":"x","choices":{"text":["a","b"],"label":["A","B"]},"answerKey":"C"}' >bad.jsonl
code 6 eval back --task arc --data bad.jsonl
has "'bad.jsonl', line 1: 'answerKey' is 'C', which is no label" err

# bad input
code 4 convert folder --to bitrain -o back
has "exists already" err
code 4 convert folder --to hf -o shards
code 4 convert folder --to gguf -o m.gguf
ok convert folder --to gguf                          # named after the folder
[ -s folder.gguf ] || fault "nothing named after the folder: $(ls)"
code 2 convert folder --to hf --type tq2_0 -o x
has "safetensors files cannot have the type 'tq2_0'" err
head -c 100000 m.gguf >short.gguf
code 6 convert short.gguf -o x
has "truncated" err
head -c 20000 folder/model.safetensors >cut && mkdir cutf && cp folder/*.json cutf/ && mv cut cutf/model.safetensors
code 6 convert cutf -o x
code 3 convert nowhere/ -o x
sed 's/BitNetForCausalLM/MambaForCausalLM/' folder/config.json >cutf/config.json
code 1 convert cutf -o x
has "'MambaForCausalLM' is not supported (supported: BitNetForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Phi3ForCausalLM, MistralForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, BitnetForCausalLM)" err
code 1 convert "$golden/bitnet/hf" --to gguf -o x
has "llama.cpp computes silu" err
code 3 convert "$golden/bitnet/hf-packed-bitlinear" -o x
has "has no tokenizer that can be used" err
ok generate "$golden/bitnet/hf-packed-bitlinear" --tokenizer "$golden/tokenizer-320.json" --prompt the --tokens 4
code 3 generate "$golden/bitnet/hf-packed-bitlinear" --prompt the
has "give one with --tokenizer" err
code 2 generate "$golden/bitnet/hf" --tokenizer "$golden/tokenizer-320.json" --prompt the
has "has a tokenizer of its own" err
ok convert "$golden/bitnet/hf-packed-bitlinear" -o packed --tokenizer "$golden/tokenizer-320.json" --verify --json
below out largest_difference 1e-6
[ -e x ] && fault "a refused conversion left something behind"
ls -d ./*.part-* 2>/dev/null && fault "parts are left"

# A tokenizer.json, or its folder, is taken where a tokenizer file is: the same ids, and the same first loss.
ok tokenizer encode tok.json --text "in the beginning, 1 & 2"
mv out ids
for given in folder folder/tokenizer.json; do
    ok tokenizer encode $given --text "in the beginning, 1 & 2"
    cmp -s out ids || fault "$given gives the ids $(cat out), not $(cat ids)"
done
ok train "${shape[@]}" --tokenizer folder --steps 12 --stop-after 1 --name by-folder
[ -n "$(losses chain)" ] && [ "$(losses chain | head -1)" = "$(losses by-folder)" ] || fault "with the folder's tokenizer: $(losses by-folder), not $(losses chain | head -1)"
ok data prepare text.txt --tokenizer folder/tokenizer.json --out text.bts
ok data inspect text.bts --tokenizer tok.json
has '  ok$' out
echo '{"model":{"type":"WordPiece","vocab":{"a":0}}}' >pieces.json
code 1 train "${shape[@]}" --tokenizer pieces.json --steps 1
has "'pieces.json' cannot be imported" err

# a full disk: nothing is left, and the line names the file
if unshare -m true 2>/dev/null; then
    export tmp
    unshare -m bash -c 'mkdir -p "$tmp/small" && mount -t tmpfs -o size=200k tmpfs "$tmp/small" && cd "$tmp" &&
        for to in hf gguf bitrain; do
            "$BITRAIN" convert folder --to $to -o small/x 2>full.err; echo "$to $?" >>full.codes
            cat full.err >>full.all; ls small >>full.left
        done'
    [ "$(cat full.codes)" = "$(printf 'hf 1\ngguf 1\nbitrain 1')" ] || fault "exit codes on a full disk: $(tr '\n' ' ' <full.codes)"
    [ "$(grep -c 'No space left on device' full.all)" -eq 3 ] || { fault "a full disk is not named"; cat full.all; }
    [ -s full.left ] && { fault "a full disk leaves something behind"; cat full.left; }
fi
[ "$faults" -eq 0 ] && echo "there and back, nothing lost"
exit "$faults"
