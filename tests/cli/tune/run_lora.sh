#!/usr/bin/env bash
# ctest: timeout=300 labels=mpi
# Low-rank adapters from end to end: the base does not change, the checkpoints contain only the adapters, the losses
# have the same bits on 1, 2 and 4 ranks, with a sharded optimizer, tensor and pipeline parallelism, and after a resume
# in another layout; evaluation and generation find the base; another base is refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 120; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say %s\"}, {\"role\": \"assistant\", \"content\": \"%s%s\"}]}\n", w, w, i % 5 ? "" : w } }' >chat.jsonl
shape=(--preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
       --seq-len 192 --batch-tokens 1536 --threads 1 --ranks 1 --set train.eval_tokens=384 --eval-every 1000000)
ok train "${shape[@]}" --data synth:chain --steps 3 --name base
before=$(cat "$(q "SELECT out_dir FROM runs WHERE run='base'")"/step-*/* | cksum)
lora=(--tune lora --set tune.rank=4 --set tune.alpha=8 --init-from base --data chat.jsonl --form messages --batch-tokens 1536 --threads 1
      --steps 6 --lr 1e-2 --eval-every 6 --set train.reproducible=true --set train.unit=1)
ok train "${lora[@]}" --ranks 1 --name one
for n in 2 4; do ok train "${lora[@]}" --ranks $n --name ranks$n; done
ok train "${lora[@]}" --ranks 2 --zero 2 --name zero
losses one >want
[ "$(wc -l <want)" = 6 ] || fault "$(wc -l <want) losses"
ok train "${lora[@]}" --ranks 2 --zero 3 --name zero3
ok train "${lora[@]}" --ranks 2 --tp 2 --name tp
ok train "${lora[@]}" --ranks 2 --pp 2 --name pp
ok train "${lora[@]}" --ranks 4 --tp 2 --pp 2 --name both --stop-after 3
ok train --resume both --ranks 2 --tp 1 --pp 1
for r in ranks2 ranks4 zero zero3 tp pp both; do losses $r | cmp -s - want || fault "$r differs: $(losses $r | head -3) | $(head -3 want)"; done
first=$(head -1 want | cut -d, -f2) last=$(tail -1 want | cut -d, -f2)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 0.05) }' || fault "the loss went from $first to $last"
[ "$(cat "$(q "SELECT out_dir FROM runs WHERE run='base'")"/step-*/* | cksum)" = "$before" ] || fault "the base has changed"

# The first loss is that of the base, because B is zero.
ok train --init-from base --data chat.jsonl --form messages --batch-tokens 1536 --threads 1 --ranks 1 --steps 1 --set train.reproducible=true --set train.unit=1 --name full
[ "$(losses full)" = "$(head -1 want)" ] || fault "the first loss is $(head -1 want), the base's $(losses full)"

ok train "${lora[@]}" --ranks 1 --stop-after 3 --name halves
ok train --resume halves
losses halves | cmp -s - want || fault "a resumed run differs: $(losses halves)"

# Embedding and head in 8 bits and residuals in bf16 give similar losses, with the same bits in slices.
lean=("${lora[@]}" --set tune.lean=true --recompute full)
ok train "${lean[@]}" --ranks 1 --name lean
paste -d, want <(losses lean) | awk -F, '{ d = $2 / $4 - 1; if (d * d > 1e-3) far = 1 } END { exit far }' || fault "tune.lean: $(losses lean) | $(cat want)"
losses lean | cmp -s - want && fault "tune.lean does nothing"
ok train "${lean[@]}" --ranks 2 --tp 2 --name lean-tp
ok train "${lean[@]}" --ranks 2 --pp 2 --name lean-pp
for r in lean-tp lean-pp; do [ "$(losses $r)" = "$(losses lean)" ] || fault "$r differs: $(losses $r | head -3) | $(losses lean | head -3)"; done

# A run of adapters alone is no model to begin with: the message has both remedies.
code 2 train --init-from one --data chat.jsonl --form messages --batch-tokens 1536 --threads 1 --ranks 1 --steps 1 --name begins
says "contains adapters without the weights of their base"
says "--set tune.adapters="

# Adapters trained in slices are written like those of one rank.
ok convert one --to hf -o peft1
ok convert tp --to hf -o peft2
cmp -s peft1/adapter_model.safetensors peft2/adapter_model.safetensors || fault "the adapters of --tp 2 are written differently"

# Two tensor-parallel ranks share the kv head of a dense base: the same bits, and similar losses if sums have no fixed
# order.
ok train "${shape[@]}" --data synth:chain --steps 3 --name shared --set model.kv_heads=1 --set model.linear=dense --set model.qk_norm=true
ok train "${lora[@]}" --init-from shared --ranks 1 --steps 3 --name shared1
ok train "${lora[@]}" --init-from shared --ranks 2 --tp 2 --steps 3 --name shared2
[ "$(losses shared1)" = "$(losses shared2)" ] || fault "one kv head on two ranks: $(losses shared2) | $(losses shared1)"
ok train "${lora[@]}" --init-from shared --ranks 2 --tp 2 --steps 3 --set train.reproducible=false --name shared3
[ "$(losses shared3 | wc -l)" = 3 ] && paste -d, <(losses shared1) <(losses shared3) | awk -F, '{ d = $2 / $4 - 1; if (d * d > 1e-8) far = 1 } END { exit far }' ||
    fault "sums in another order: $(losses shared3) | $(losses shared1)"

killed lora-killed "${lora[@]}" --ranks 1
losses lora-killed | cmp -s - want || fault "killed and resumed, adapters differ: $(losses lora-killed)"

# The checkpoint contains only adapters: 4 x (32 inputs + outputs) for each of 14 matrices, with two moments.
size() { du -sb "$(q "SELECT out_dir FROM runs WHERE run='$1'")" | cut -f1; }
[ $((2 * $(size one))) -lt "$(size base)" ] || fault "$(size one) bytes of adapters, $(size base) of the base"
ok eval one --precision bf16 --json
says '"nats"'
nats=$(grep -o '"nats":[ 0-9.]*' out | head -1 | cut -d: -f2)
val=$(q "SELECT printf('%.6f', val_loss) FROM steps WHERE run='one' AND val_loss IS NOT NULL ORDER BY step DESC LIMIT 1")
awk -v a="$val" -v b="$nats" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 1e-4) }' || fault "eval prints $nats, the run $val"
ok generate one --prompt hi --tokens 4

# Preferences: the loss is ln 2 while the adapters are zero; the same bits on 2 ranks, after a resume, and with a
# teacher.
awk 'BEGIN { for (i = 0; i < 60; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"prompt\": \"say %s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", w, w, toupper(w) } }' >pairs.jsonl
dpo=(--tune lora --set tune.rank=4 --set tune.alpha=8 --init-from base --data pairs.jsonl --form preference --batch-tokens 768 --threads 1
     --steps 6 --lr 1e-2 --eval-every 6 --set train.reproducible=true --set train.unit=1)
ok train "${dpo[@]}" --ranks 1 --name dpo
losses dpo >want
case $(head -1 want) in 0,0.693147*) ;; *) fault "the first loss of preferences is $(head -1 want)" ;; esac
ok train "${dpo[@]}" --ranks 2 --name dpo2 --stop-after 3
ok train --resume dpo2 --ranks 2
losses dpo2 | cmp -s - want || fault "preferences on 2 ranks after a resume: $(losses dpo2 | head -4)"
ok train "${dpo[@]}" --ranks 2 --tp 2 --name dpo-tp
losses dpo-tp | cmp -s - want || fault "preferences with --tp 2: $(losses dpo-tp)"
killed dpo-killed "${dpo[@]}" --ranks 1
losses dpo-killed | cmp -s - want || fault "killed and resumed, preferences differ: $(losses dpo-killed)"
q "SELECT accuracy >= 0.5 AND reward_margin > 0 AND val_accuracy >= 0 FROM steps WHERE run='dpo' AND step = 5" | grep -qx 1 ||
    fault "preferences are not learned: $(q "SELECT accuracy, reward_margin, val_accuracy FROM steps WHERE run='dpo' AND step = 5")"
ok eval dpo
says "nats per preference"
{ head -3 pairs.jsonl; echo '{"prompt": "a", "chosen": "b"}'; } >bad.jsonl
code 6 train "${dpo[@]/pairs.jsonl/bad.jsonl}" --ranks 1
says "bad.jsonl' line 4: field 'rejected' is missing"
code 2 train "${dpo[@]}" --ranks 1 --tune full
says "data.form=preference needs adapters"
# ORPO has no reference, so all weights can train: the same bits on 2 ranks and in a pipeline
all=("${dpo[@]}" --tune full --set tune.preference=orpo --steps 3)
ok train "${all[@]}" --ranks 1 --name orpo
losses orpo >want
for how in zero pp; do
    ok train "${all[@]}" --ranks 2 --$how 2 --name orpo-$how
    losses orpo-$how | cmp -s - want || fault "ORPO of all weights with --$how 2: $(losses orpo-$how)"
done
ok eval orpo
says "nats per preference"
code 2 train "${all[@]}" --ranks 2 --tp 2
says "data.form=preference with --tp 2"
# KTO: the reference point is the same in every layout and after a resume.
awk 'BEGIN { for (i = 0; i < 60; i++) { w = sprintf("%c%c", 97 + i % 26, 97 + i * 7 % 26); printf "{\"prompt\": \"%s\", \"completion\": \"%s\", \"label\": %s}\n",
    w, i % 2 ? w : toupper(w), i % 2 ? "true" : "false" } }' >singles.jsonl
kto=("${dpo[@]/pairs.jsonl/singles.jsonl}" --set tune.preference=kto --set tune.desirable_weight=4)
ok train "${kto[@]}" --ranks 1 --name kto
losses kto >want
ok train "${kto[@]}" --ranks 2 --pp 2 --name kto2 --stop-after 3
ok train --resume kto2 --ranks 2 --pp 1 --tp 2
losses kto2 | cmp -s - want || fault "KTO in a pipeline, resumed with --tp 2: $(losses kto2) | $(cat want)"
code 2 train "${kto[@]}" --ranks 1 --set tune.label_smoothing=0.1
says "tune.label_smoothing applies to pairs of answers"
code 2 train "${dpo[@]}" --ranks 1 --set tune.adapters=one
says "are trained, and the reference would be their base without them"
# A reward model: adapters and a head of zeros, or all weights, train; the same bits in a pipeline, with --tp and
# --zero, and after a resume.
reward=("${dpo[@]}" --set tune.preference=reward --set tune.center_rewards=0.01)
ok train "${reward[@]}" --ranks 1 --name reward
losses reward >want
case $(head -1 want) in 0,0.693147*) ;; *) fault "the first loss of rewards is $(head -1 want)" ;; esac
awk -F, 'NR == 1 { a = $2 } END { exit !($2 < a - 0.01) }' want || fault "rewards are not learned: $(tail -1 want)"
ok train "${reward[@]}" --ranks 2 --pp 2 --name reward2 --stop-after 3
ok train --resume reward2 --ranks 2 --pp 1 --tp 2
losses reward2 | cmp -s - want || fault "rewards in a pipeline, resumed with --tp 2: $(losses reward2) | $(cat want)"
ok train "${reward[@]}" --tune full --ranks 2 --zero 3 --name reward-full
losses reward-full >want
ok train "${reward[@]}" --tune full --ranks 2 --tp 2 --name reward-full2
losses reward-full2 | cmp -s - want || fault "rewards of all weights with --tp 2: $(losses reward-full2) | $(cat want)"
for run in reward reward-full; do
    ok eval $run
    says "nats per preference"
    ok generate $run --prompt '{"prompt": "say abc", "completion": "abc"}' --json
    good=$(grep -o '"reward":[-0-9.e]*' out | cut -d: -f2)
    ok generate $run --prompt '{"prompt": "say abc", "completion": "ABC"}' --json
    awk -v a="$good" -v b="$(grep -o '"reward":[-0-9.e]*' out | cut -d: -f2)" 'BEGIN { exit !(a > b) }' || fault "$run gives $good, and $(cat out)"
    code 2 generate $run --prompt 'abc'
    says "a reward model scores an answer"
done
code 2 generate reward --chat --message hi
says "is a reward model and generates no text"
code 1 convert reward-full --to hf -o rewarding
says "it is a reward model"
code 2 eval reward --form messages --data chat.jsonl
says "which judges preferences"
code 2 train "${reward[@]}" --ranks 1 --set tune.sft_share=1
says "tune.sft_share applies to a model that predicts tokens"
code 2 train "${dpo[@]}" --ranks 1 --set tune.center_rewards=0.01
says "tune.center_rewards applies only to a reward model"
# Classes: adapters and a head of zeros train; the checkpoint finds its base and contains its labels.
awk 'BEGIN { for (i = 0; i < 60; i++) { w = sprintf("%c%c", 97 + i % 26, 97 + i * 7 % 26);
    print "{\"text\": \"" w (i % 3 ? i % 3 > 1 ? " not" : " so" : "?") "\", \"label\": \"" substr("abc", i % 3 + 1, 1) "\"}" } }' >labels.jsonl
kinds=("${dpo[@]/pairs.jsonl/labels.jsonl}")
kinds=("${kinds[@]/preference/label}")
ok train "${kinds[@]}" --ranks 1 --name kinds
losses kinds >want
case $(head -1 want) in 0,1.098612*) ;; *) fault "the first loss of three classes is $(head -1 want)" ;; esac
awk -F, 'NR == 1 { a = $2 } END { exit !($2 < a - 0.05) }' want || fault "classes are not learned: $(tail -1 want)"
ok train "${kinds[@]}" --ranks 2 --zero 2 --name kinds2 --stop-after 3
ok train --resume kinds2 --ranks 2
losses kinds2 | cmp -s - want || fault "classes on 2 ranks after a resume: $(losses kinds2)"
ok eval kinds
says "macro F1"
ok generate kinds --prompt "ab so"
grep -qE '^[abc]' out || fault "no label: $(head -2 out)"
code 1 convert kinds --merge dense --to hf -o labelled
says "it is a classifier of 3 labels"

taught=(--init-from base --teacher other --data chat.jsonl --form messages --batch-tokens 1536 --threads 1 --steps 4 --set train.reproducible=true --set train.unit=1)
ok train "${shape[@]}" --data synth:chain --steps 3 --name other --seed 2 --set model.linear=dense
ok train "${taught[@]}" --ranks 1 --dry-run
grep -qE '^ *teacher +[0-9.]+ [KM]iB' out || fault "the plan of memory has no teacher"
ok train "${taught[@]}" --ranks 1 --name taught
ok train "${taught[@]}" --ranks 2 --zero 1 --name taught2 --stop-after 2
ok train --resume taught2 --ranks 2
[ "$(losses taught)" = "$(losses taught2)" ] || fault "from a teacher, on 2 ranks after a resume: $(losses taught2 | head -4)"
# A file with all of the teacher's logits equals the teacher up to rounding, with the same bits in any layout and after
# a resume.
ok eval other --data chat.jsonl --form messages --logits all.btl --top-k 256
grep -q 'logits each' err || fault "eval does not report what it wrote: $(tail -1 err)"
filed=("${taught[@]/--teacher/--set}")
filed=("${filed[@]/other/tune.logits=all.btl}")
ok train "${filed[@]}" --ranks 1 --name filed
[ "$(losses filed | wc -l)" = 4 ] && paste -d, <(losses taught) <(losses filed) | awk -F, '{ d = $2 / $4 - 1; if (d * d > 1e-6) far = 1 } END { exit far }' ||
    fault "from a file: $(losses filed) | $(losses taught)"
ok train "${filed[@]}" --ranks 2 --zero 1 --name filed2 --stop-after 2
ok train --resume filed2 --ranks 2
[ "$(losses filed)" = "$(losses filed2)" ] || fault "from a file, on 2 ranks after a resume: $(losses filed2)"
for m in taught filed; do
    eval "killed $m-killed \"\${$m[@]}\" --ranks 1"
    [ "$(losses $m-killed)" = "$(losses $m)" ] || fault "killed and resumed, $m differs: $(losses $m-killed)"
done
ok eval other --data chat.jsonl --form messages --logits few.btl --top-k 8
ok train "${filed[@]/all.btl/few.btl}" --ranks 1 --set tune.top_k=8 --name few
code 2 train "${filed[@]/all.btl/few.btl}" --ranks 1 --set tune.top_k=9
says "has 8 logits of each token"
head -c 5000 few.btl >short.btl
code 6 train "${filed[@]/all.btl/short.btl}" --ranks 1
says "is truncated: it has 5000 bytes of"
cp few.btl foreign.btl && printf 'x' | dd of=foreign.btl bs=1 seek=16 conv=notrunc status=none
code 2 train "${filed[@]/all.btl/foreign.btl}" --ranks 1
says "has another tokenizer"
sed 's/say /tell /' chat.jsonl >chat2.jsonl
code 2 train "${filed[@]/chat.jsonl/chat2.jsonl}" --ranks 1
says "was written from other data"
code 2 train "${taught[@]}" --ranks 1 --set tune.logits=few.btl
says "a student learns either from a teacher or from a file"
code 2 eval other --logits none.btl
says "--logits needs --data"
code 2 train "${taught[@]}" --ranks 1 --teacher one
says "contains only adapters"

# Impossible requests.
code 2 train --tune lora --data chat.jsonl --form messages --ranks 1
says "tune.mode=lora needs a base"
code 2 train "${lora[@]}" --ranks 1 --set tune.targets=attn_x
says "the layer 'attn_x' is unknown (known: all, attn_q"
code 2 train "${lora[@]}" --ranks 1 --set tune.rank=0
says "tune.rank"
code 2 train "${lora[@]}" --ranks 1 --set tune.rank=33
says "tune.rank=33 is larger than a side of attn_q, which is 32 x 32"
code 3 train "${lora[@]}" --ranks 1 --init-from nobody
says "no run 'nobody'"
code 2 train "${lora[@]}" --ranks 1 --init-from one
says "contains only adapters"
ok train "${shape[@]}" --data synth:chain --steps 3 --name another --seed 2
other=$(q "SELECT out_dir FROM runs WHERE run='another'")
code 2 train --resume one --steps 9 --set tune.base="$other"
says "trained with another base"
code 2 eval one --base "$other"
says "trained with another base"

[ $faults -eq 0 ] && echo "adapters train as they should"
exit $faults
