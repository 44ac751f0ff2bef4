#!/usr/bin/env bash
# ctest: timeout=200 labels=mpi
# Adapters with magnitudes (DoRA) from end to end: the first loss is the base's, the losses have the same bits on 1, 2 and
# 4 ranks, with a sharded optimizer, tensor and pipeline parallelism, and after a resume in another layout; merged and
# as a folder of PEFT they give the same predictions; wrong folders and impossible requests are refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 120; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say %s\"}, {\"role\": \"assistant\", \"content\": \"%s%s\"}]}\n", w, w, i % 5 ? "" : w } }' >chat.jsonl
shape=(--preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.d_ff=64 --seq-len 192 --batch-tokens 1536
       --threads 1 --ranks 1 --set train.eval_tokens=384 --eval-every 1000000 --data synth:chain --steps 3)
chat=(--data chat.jsonl --form messages --batch-tokens 1536 --threads 1 --eval-every 1000000 --set train.reproducible=true --set train.unit=1)
dora=("${chat[@]}" --tune lora --set tune.dora=true --set tune.rank=4 --set tune.alpha=8 --lr 1e-2 --steps 4)
ok train "${shape[@]}" --set model.kv_heads=2 --name ternary
ok train "${shape[@]}" --set model.kv_heads=1 --set model.linear=dense --name dense

for base in ternary dense; do
    ok train "${dora[@]}" --init-from $base --ranks 1 --name $base-one
    losses $base-one >want
    [ "$(wc -l <want)" = 4 ] || fault "$(wc -l <want) losses"
    ok train "${chat[@]}" --init-from $base --ranks 1 --steps 1 --name $base-full
    [ "$(losses $base-full)" = "$(head -1 want)" ] || fault "the first loss is $(head -1 want), that of $base $(losses $base-full)"
    ok train "${dora[@]}" --init-from $base --ranks 2 --tp 2 --name $base-tp
    losses $base-tp | cmp -s - want || fault "$base with --tp 2: $(losses $base-tp) | $(cat want)"
done
losses ternary-one >want
awk -F, 'NR == 1 { a = $2 } END { exit !($2 < a - 0.02) }' want || fault "the loss went from $(head -1 want) to $(tail -1 want)"
ok train "${dora[@]}" --init-from ternary --ranks 2 --zero 3 --name zero
ok train "${dora[@]}" --init-from ternary --ranks 4 --tp 2 --pp 2 --name both --stop-after 2
ok train --resume both --ranks 2 --tp 1 --pp 1
for r in zero both; do losses $r | cmp -s - want || fault "$r differs: $(losses $r) | $(cat want)"; done
ok train "${dora[@]}" --init-from dense --ranks 2 --tp 2 --set train.reproducible=false --name loose
[ "$(losses loose | wc -l)" = 4 ] && paste -d, <(losses dense-one) <(losses loose) | awk -F, '{ d = $2 / $4 - 1; if (d * d > 1e-8) far = 1 } END { exit far }' ||
    fault "sums in another order: $(losses loose) | $(losses dense-one)"

# With dropout the first loss is the base's as well, and further losses differ from those without.
ok train "${dora[@]}" --init-from ternary --ranks 1 --set tune.dropout=0.1 --name drops
ok train "${dora[@]}" --init-from ternary --ranks 2 --zero 2 --set tune.dropout=0.1 --name drops2
losses drops | cmp -s - <(losses drops2) || fault "dropout on 2 ranks: $(losses drops2) | $(losses drops)"
[ "$(losses drops | head -1)" = "$(head -1 want)" ] && [ "$(losses drops | tail -1)" != "$(tail -1 want)" ] || fault "dropout: $(losses drops) | $(cat want)"

# The base without adapters is the reference of preferences: new magnitudes do not change it.
printf '{"prompt": "say a", "chosen": "a", "rejected": "b"}\n%.0s' $(seq 40) >pairs.jsonl
ok train --tune lora --set tune.dora=true --init-from ternary --data pairs.jsonl --form preference --batch-tokens 768 --threads 1 --ranks 1 --steps 1 \
    --eval-every 1000000 --name dpo
case $(losses dpo) in 0,0.693147*) ;; *) fault "the first loss of preferences is $(losses dpo)" ;; esac

nats() { b eval "$1" --data chat.jsonl --form messages --json 2>err | grep -o '"nats": *[0-9.]*' | cut -d: -f2; }
is() { awk "BEGIN { exit !($1) }" || fault "$1 is not so: $2"; }
ok convert dense-one --to hf -o peft
says "adapters of rank 4 with magnitudes (DoRA) in the form of PEFT"
ok convert dense-tp --to hf -o peft-tp
cmp -s peft/adapter_model.safetensors peft-tp/adapter_model.safetensors || fault "the adapters of --tp 2 are written differently"
grep -qF '"use_dora":true' peft/adapter_config.json || fault "$(cat peft/adapter_config.json)"
grep -qaF 'base_model.model.model.layers.1.mlp.up_proj.lora_magnitude_vector":{"dtype":"F32","shape":[64],' peft/adapter_model.safetensors ||
    fault "$(head -c 4000 peft/adapter_model.safetensors)"
ok convert dense-one --merge dense -o merged --verify
says "adapters of rank 4 with magnitudes (DoRA) merged (14 matrices)"
adapted=$(nats dense-one) merged=$(nats ./merged) of_peft=$(nats ./peft) base=$(nats dense)
is "($merged - $adapted) ^ 2 < 1e-10 && ($of_peft - $adapted) ^ 2 < 1e-10 && $adapted < $base - 0.02" "adapted $adapted, merged $merged, PEFT's folder $of_peft, base $base"
adapted=$(nats ternary-one) base=$(nats ternary)
for how in dense latent keep; do
    ok convert ternary-one --merge $how -o t-$how
    merged=$(nats ./t-$how)
    [ $how != dense ] || is "($merged - $adapted) ^ 2 < 1e-3" "merged $merged, adapted $adapted, base $base"
done
ok generate dense-one --prompt say --tokens 2 --threads 1

# Training goes on from PEFT's folder, whose magnitudes are adopted.
ok train "${chat[@]}" --tune lora --init-from dense --set tune.adapters=peft --ranks 1 --steps 1 --lr 1e-30 --name again
ok train "${chat[@]}" --tune lora --init-from dense --set tune.adapters=dense-one --ranks 1 --steps 1 --lr 1e-30 --name same
[ "$(losses again)" = "$(losses same)" ] || fault "from PEFT's folder $(losses again), from the run $(losses same)"
is "$(losses again | cut -d, -f2) < $(losses dense-one | head -1 | cut -d, -f2) - 0.02" "the first loss from PEFT's folder"
code 2 train "${chat[@]}" --tune lora --init-from dense --set tune.adapters=peft --set tune.dora=false
says "have some magnitudes (DoRA), but those of this run none"

variant() { rm -rf variant && cp -r peft variant && sed -i "$1" variant/adapter_$2; }
bad() { code 6 generate ./variant --base dense --prompt say; says "$1"; }
variant 's/"use_dora":true/"use_dora":false/' config.json
bad "has magnitudes (lora_magnitude_vector), but 'use_dora'"
variant 's/"use_dora":true/"use_dora":"yes"/' config.json
bad "'use_dora' is not true or false"
variant 's/lora_magnitude_vector/lora_magnitude_vectox/g' model.safetensors
bad "has no magnitudes (lora_magnitude_vector), but 'use_dora'"
variant 's/q_proj.lora_magnitude_vector/q_proj.lora_magnitude_vectox/' model.safetensors
bad "of the model is missing: layers.0.attn_q.lora_m"
variant 's/0.mlp.gate_proj.lora_m/0.mlp.XXXX_proj.lora_m/; s/0.mlp.down_proj.lora_m/0.mlp.gate_proj.lora_m/; s/0.mlp.XXXX_proj.lora_m/0.mlp.down_proj.lora_m/' model.safetensors
bad "according to the model's sizes"
variant 's/^/ /' config.json
printf '\000\000\300\177' | dd of=variant/adapter_model.safetensors bs=1 seek=$(($(stat -c %s peft/adapter_model.safetensors) - 4)) conv=notrunc 2>/dev/null
bad "v_proj.lora_magnitude_vector' contains nan"

code 2 eval dense-one --weight 0.5 --data chat.jsonl --form messages
says "contains adapters with magnitudes (DoRA), which can neither be added nor weighted"
code 2 convert dense-one --merge dense --add dense-tp -o nothing
says "contains adapters with magnitudes (DoRA), which can neither be added nor weighted"
[ -e nothing ] && fault "a refused conversion left something"
code 1 train "${dora[@]}" --init-from dense --set tune.dropout=0.1 --ranks 2 --tp 2
says "tune.dora cannot be combined with tune.dropout=0.1 and --tp 2"
code 2 train "${chat[@]}" --init-from dense --set tune.dora=true
says "tune.dora has no effect without tune.mode=lora"

[ $faults -eq 0 ] && echo "adapters with magnitudes work in every layout, merged, and as PEFT's"
exit $faults
