#!/usr/bin/env bash
# ctest: timeout=300 labels=mpi
# The modes of fine-tuning in layouts that divide the model: preferences, classes, distillation from a teacher and from
# a file of its logits have the bits of one rank with --tp, --pp, virtual stages and both, and continue in another
# layout and after a kill. The teacher is wider than its student.
. "$BT_SRC/tests/cli/train_lib.sh"

shape=(--preset nano --set model.layers=4 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
       --seq-len 192 --batch-tokens 768 --threads 1 --ranks 1 --set train.eval_tokens=384 --eval-every 1000000 --data synth:chain --steps 3)
ok train "${shape[@]}" --name base
ok train "${shape[@]}" --name wide --seed 2 --set model.linear=dense --set model.d_model=48 --set model.heads=4 --set model.d_ff=80
awk 'BEGIN { for (i = 0; i < 60; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"prompt\": \"say %s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", w, w, toupper(w) >"pairs.jsonl"
    printf "{\"text\": \"%s %s\", \"label\": \"%s\"}\n", w, substr("?no!", i % 3 + 1, 2), substr("abc", i % 3 + 1, 1) >"labels.jsonl"
    printf "{\"instruction\": \"say %s\", \"output\": \"%s%s\"}\n", w, w, i % 5 ? "" : w >"asked.jsonl" } }'
ok eval wide --data asked.jsonl --form alpaca --logits some.btl --top-k 9

same=(--init-from base --batch-tokens 768 --threads 1 --steps 4 --lr 1e-2 --eval-every 4 --set train.eval_tokens=384
      --set train.reproducible=true --set train.unit=1)
lora=(--tune lora --set tune.rank=4 --set tune.alpha=8 --set tune.dropout=0.2)
preferences=("${same[@]}" "${lora[@]}" --data pairs.jsonl --form preference)
classes=("${same[@]}" --data labels.jsonl --form label)
classes_lora=("${classes[@]}" "${lora[@]}")
teacher=("${same[@]}" --data asked.jsonl --form alpaca --teacher wide)
logits=("${same[@]}" --data asked.jsonl --form alpaca --set tune.logits=some.btl)
# The last stage computes the measures other than the loss.
judged() { q "SELECT step, printf('%.9g', accuracy), printf('%.9g', reward_margin), printf('%.9g', val_loss), printf('%.9g', val_accuracy), printf('%.9g', val_f1) FROM steps WHERE run='$1' ORDER BY step"; }

for mode in preferences classes classes_lora teacher logits; do
    declare -n words=$mode
    ok train "${words[@]}" --ranks 1 --name $mode
    losses $mode >want
    judged $mode >judged
    [ "$(wc -l <want)" = 4 ] || fault "$mode: $(wc -l <want) losses"
    ok train "${words[@]}" --ranks 2 --tp 2 --name $mode-tp
    ok train "${words[@]}" --ranks 2 --pp 2 --name $mode-pp
    ok train "${words[@]}" --ranks 4 --tp 2 --pp 2 --name $mode-both --stop-after 2
    ok train --resume $mode-both --ranks 2 --tp 1 --pp 1
    for layout in tp pp both; do
        losses $mode-$layout | cmp -s - want || fault "$mode, $layout: $(losses $mode-$layout | head -4) | $(head -4 want)"
        judged $mode-$layout | cmp -s - judged || fault "$mode, $layout: $(judged $mode-$layout | tail -1) | $(tail -1 judged)"
    done
    killed $mode-killed "${words[@]}" --ranks 2 --pp 2 --virtual-stages 2
    losses $mode-killed | cmp -s - want || fault "$mode, killed and resumed: $(losses $mode-killed)"
    # Sums in another order give similar losses.
    case $mode in classes_lora | logits) continue ;; esac # similar to classes and teacher
    ok train "${words[@]}" --set train.reproducible=false --precision fp32 --set train.grad=float --ranks 1 --name $mode-free
    ok train "${words[@]}" --set train.reproducible=false --precision fp32 --set train.grad=float --ranks 2 --tp 2 --name $mode-free2
    paste -d, <(losses $mode-free) <(losses $mode-free2) | awk -F, '{ d = $2 / $4 - 1; if (d * d > 1e-6 || $4 == "") far = 1 } END { exit far }' ||
        fault "$mode, --tp in another order: $(losses $mode-free2) | $(losses $mode-free)"
done

# Relations of attention: a whole layer on a rank, so no --tp.
relation=("${teacher[@]}" --set tune.relation=2 --set tune.relation_layer=4)
ok train "${relation[@]}" --ranks 1 --name relation
losses relation >want
losses teacher | cmp -s - want && fault "tune.relation changes nothing: $(cat want)"
ok train "${relation[@]}" --ranks 1 --recompute full --name relation-full
ok train "${relation[@]}" --ranks 2 --zero 3 --name relation-zero
ok train "${relation[@]}" --ranks 2 --pp 2 --name relation-pp --stop-after 2
ok train --resume relation-pp --ranks 1 --pp 1 --recompute full
for layout in full zero pp; do
    losses relation-$layout | cmp -s - want || fault "relation, $layout: $(losses relation-$layout | head -4) | $(head -4 want)"
done
code 1 train "${relation[@]}" --ranks 2 --tp 2
says "tune.relation with --tp 2"
code 1 train "${relation[@]/wide/base,wide}" --ranks 1
says "supports only one teacher, not 2"
code 1 train "${relation[@]}" --ensemble 2 --distill --ranks 1 --name several
says "--distill has several models as teachers, and tune.relation one"
code 2 train "${relation[@]/relation_layer=4/relation_layer=1}" --ranks 2 --pp 2
says "the last stage, which has the teacher, begins with layer"
code 2 train "${relation[@]/relation_layer=4/relation_layer=5}" --ranks 1
says "this model has 4 layers"
code 2 train "${relation[@]}" --set tune.relation_heads=3 --ranks 1
says "tune.relation_heads=3 does not divide"
code 2 train "${logits[@]}" --set tune.relation=1 --ranks 1
says "needs tune.teacher"

code 2 train "${teacher[@]}" --ranks 3 --tp 3
says "--tp 3 does not divide"
ok train "${shape[@]}" --name odd --seed 2 --set model.d_model=48 --set model.heads=3 --set model.kv_heads=3
code 2 train "${teacher[@]/wide/odd}" --ranks 2 --tp 2
says "tune.teacher: --tp 2 does not divide model.heads = 3"
ok train "${teacher[@]/wide/odd}" --ranks 2 --pp 2 --name odd-pp
ok train "${teacher[@]/wide/odd}" --ranks 1 --name odd-one
[ "$(losses odd-pp)" = "$(losses odd-one)" ] || fault "a teacher of three heads: $(losses odd-pp) | $(losses odd-one)"

[ $faults -eq 0 ] && echo "the modes of fine-tuning train alike in all layouts"
exit $faults
