#!/usr/bin/env bash
# ctest: timeout=150 labels=mpi
# A dense base in int8 (tune.base_type=q8): from a GGUF file in Q8_0 the losses of its values, from other files similar
# losses; half of bf16's memory; the same bits on two tensor-parallel ranks, one copy for two data-parallel ones;
# settings without an effect on it are refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 80; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say %s\"}, {\"role\": \"assistant\", \"content\": \"%s%s\"}]}\n", w, w, i % 5 ? "" : w } }' >chat.jsonl
chat=(--data chat.jsonl --form messages --batch-tokens 1024 --micro-batch 2 --threads 1 --eval-every 1000000 --steps 6 --lr 3e-3)
shape=(--preset nano --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=128 --seq-len 128
       --set model.act=silu --set model.norm=pre)
ok train "${shape[@]}" "${chat[@]}" --ranks 1 --set model.linear=dense --name dense
ok convert dense --to gguf --type q8_0 -o q8.gguf
lora=("${chat[@]}" --tune lora --set tune.rank=4)
q8=(--set tune.base_type=q8)
is() { awk "BEGIN { exit !($1) }" || fault "$1 is not so: $2"; }

ok train "${lora[@]}" --ranks 1 --precision fp32 --init-from q8.gguf --name values
ok train "${lora[@]}" --ranks 1 --precision fp32 --init-from q8.gguf "${q8[@]}" --name blocks
losses values >want
losses blocks | cmp -s - want || fault "a file of Q8_0 has other losses in its own blocks: $(losses blocks | tail -n 1), $(tail -n 1 want)"

ok train "${lora[@]}" --ranks 1 --precision bf16 --init-from dense --name bf16
ok train "${lora[@]}" --ranks 1 --precision bf16 --init-from dense "${q8[@]}" --name q8
last() { losses "$1" | tail -n 1 | cut -d, -f2; }
is "$(last q8) / $(last bf16) < 1.01 && $(last q8) / $(last bf16) > 0.99 && $(last q8) != $(last bf16)" "q8 beside bf16"

base_bytes() { b train "${lora[@]}" --ranks 1 --init-from dense "$@" --dry-run --json 2>/dev/null | grep -o '"quantised": *[0-9]*' | grep -o '[0-9]*$'; }
values=$((2 * (4 * 64 * 64 + 3 * 64 * 128) + 256 * 64)) # number of values in layers and embedding
got=$(base_bytes --precision bf16 "${q8[@]}")
is "$got >= $values * 34 / 32 && $got < $values * 34 / 32 + 128 * 15" "$values values in $got bytes"

rep=(--set train.reproducible=true --set train.unit=2 --precision fp32 --init-from dense "${q8[@]}")
ok train "${lora[@]}" "${rep[@]}" --ranks 1 --set train.parts=2 --name one
ok train "${lora[@]}" "${rep[@]}" --ranks 2 --tp 2 --set train.parts=2 --name tp2
ok train "${lora[@]}" "${rep[@]}" --ranks 2 --set train.parts=2 --name dp2
losses one >want
for r in tp2 dp2; do losses $r | cmp -s - want || fault "$r has other bits: $(losses $r | tail -n 1), $(tail -n 1 want)"; done
ok train --resume tp2 --ranks 1 --tp 1 --steps 8
ok eval tp2 --data chat.jsonl --form messages

# The keys of other tools, and cases in which they have no effect.
printf 'base_model: dense\nload_in_8bit: true\nadapter: lora\n' >x.yaml
b train x.yaml --print-config >config 2>err
grep -qE '^(# )?tune.base_type: "?q8' config || fault "load_in_8bit: $(grep base_type config)"
ok train "${shape[@]}" "${chat[@]}" --ranks 1 --name ternary --steps 2
code 2 train "${lora[@]}" --ranks 1 --init-from ternary "${q8[@]}"
says "the layers of this base are ternary and stored exactly in 2 bits (omit it)"
code 2 train "${chat[@]}" --ranks 1 --init-from dense "${q8[@]}"
says "here all weights are trained (set tune.mode=lora, or omit it)"
ok train "${shape[@]}" "${chat[@]}" --ranks 1 --set model.linear=dense --set model.d_ff=120 --name odd --steps 2
b train "${lora[@]}" --ranks 1 --init-from odd "${q8[@]}" >out 2>err
says "not multiples of 32 (omit it)"
finish
