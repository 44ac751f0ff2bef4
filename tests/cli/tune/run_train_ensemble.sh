#!/usr/bin/env bash
# ctest: timeout=240 labels=mpi
# `bitrain train --ensemble`: members are trained one after the other as one group, which continues after a kill; their
# mean is evaluated and recorded; a student; a chain of students; settings that contradict each other are refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 900; i++) printf "%s has %d of the %d words, %c.\n", i % 3 ? "nobody" : "everybody", i * 7 % 90, i % 17, 97 + i * 5 % 26 }' >text.txt
shape=(--preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
       --seq-len 64 --batch-tokens 512 --threads 1 --ranks 1 --data text.txt --set data.tokenizer=bytes --eval-every 20 --set train.eval_tokens=1024 --steps 40 --lr 5e-3)

ok train "${shape[@]}" --ensemble 3 --distill --name abl --dry-run
says "ensemble   3 trainings as above that differ by seed, abl-1 to abl-3, one after the other"
says "student    abl-distilled learns from their mean"
[ -e "$BITRAIN_STORE" ] && fault "a dry run made a database"
for n in 0 1; do
    code 2 train "${shape[@]}" --ensemble $n
    says "--ensemble $n: an ensemble has at least 2 members"
done
code 2 train "${shape[@]}" --distill
says "--distill goes with --ensemble N"
code 2 train "${shape[@]}" --ensemble 2 --detach
says "--ensemble is not possible with --detach"
code 2 train "${shape[@]}" --ensemble 2 --chain --teacher text.txt
says "leave --teacher out"

# The command is killed during its second member and repeated: the first member is not trained again.
both=("${shape[@]}" --steps 400 --ensemble 2 --distill --name abl --seed 7)
"$BITRAIN" train "${both[@]}" >k.out 2>k.err &
job=$!
started+=($job)
wait_step abl-2 10
kill -9 $job $(ours) 2>/dev/null
wait $job 2>/dev/null
wait_gone || fault "ranks are left"
ok train "${both[@]}"
[ "$(q "SELECT count(*) FROM runs WHERE run IN ('abl-1', 'abl-2', 'abl-distilled') AND state='done' AND steps=400")" = 3 ] || fault "the runs are $(q "SELECT run, state, steps FROM runs")"
says "mean of 2"
says "abl-distilled"
[ "$(q "SELECT value FROM configs WHERE run='abl-2' AND key='run.seed'")" = 8 ] || fault "the seeds do not count up"
mean=$(q "SELECT value FROM facts WHERE run='abl-1' AND key='ensemble.bits_per_byte'")
ok show abl --json
says "\"ensemble_members\":2"
awk -v m="$mean" 'BEGIN { exit !(m > 0) }' || fault "the mean is not recorded: '$mean'"
# The student has learned from both members, and a member is an ordinary training with its seed.
q "SELECT value FROM configs WHERE run='abl-distilled' AND key='tune.teacher'" | grep -q 'abl-1.*,.*abl-2' || fault "the student's teachers: $(q "SELECT value FROM configs WHERE run='abl-distilled' AND key='tune.teacher'")"
# A member that was killed between its last checkpoint and its end has no step left.
sqlite3 "$BITRAIN_STORE" "UPDATE run SET state = 'failed', last_step = last_step - 1 WHERE name = 'abl-2'"
ok train "${both[@]}"
says "mean of 2"
ok train "${shape[@]}" --steps 400 --seed 8 --name plain
losses plain >want
losses abl-2 | cmp -s - want || fault "member 2 is not the training of its seed"
# A repeated command trains nothing; other settings are refused; another member is added.
attempts=$(q "SELECT count(*) FROM attempts")
ok train "${both[@]}"
[ "$(q "SELECT count(*) FROM attempts")" = "$attempts" ] || fault "a complete ensemble is trained again"
code 4 train "${both[@]}" --lr 1e-3
says "ensemble 'abl' began with other settings: then 'optim.lr=0.005"
ok train "${shape[@]}" --ensemble 3 --chain --name line
for k in 1 2 3; do
    want=$([ $k -gt 1 ] && echo "$tmp/runs/line/line-$((k - 1))")
    have=$(q "SELECT value FROM configs WHERE run='line-$k' AND key='tune.teacher'")
    [ "${have%/best}" = "$want" ] || fault "the teacher of line-$k is '$have', not '$want'"
done
# A user who stops a member stops the ensemble, which does not start the member again.
"$BITRAIN" train "${shape[@]}" --ensemble 2 --name held --steps 100000 >held.out 2>held.err &
job=$!
started+=($job)
wait_step held-1 3
ok ctl held-1 stop
wait $job
[ $? = 4 ] || fault "an ensemble with a stopped member ends otherwise: $(cat held.err)"
grep -q "run 'held-1' was stopped (the same command continues it)" held.err || fault "held-1: $(cat held.err)"
[ "$(q "SELECT count(*) FROM attempts WHERE run LIKE 'held-%'")" = 1 ] || fault "a stopped member is started again"
# The members and the student share a budget of time and have one plan; a later command uses the plan in the folder.
budget=("${shape[@]:0:24}" --ensemble 2 --distill --minutes 5)
"$BITRAIN" train "${budget[@]}" --name budget >budget.out 2>budget.err &
job=$!
started+=($job)
wait_step budget-1 3
kill -9 $job $(ours) 2>/dev/null
wait $job 2>/dev/null
wait_gone || fault "ranks are left"
grep -q "plan       5 minutes: " budget.out || fault "no plan: $(cat budget.err)"
steps=$(sed -n 's/^train.steps=//p' runs/budget/ensemble.plan)
[ "$(q "SELECT value FROM configs WHERE run='budget-1' AND key='train.steps'")" = "$steps" ] || fault "the plan is not that of the member"
mkdir -p runs/later
sed 's/^train.steps=.*/train.steps=20/' runs/budget/ensemble.plan >runs/later/ensemble.plan
ok train "${budget[@]}" --name later
says "plan       as in '$tmp/runs/later/ensemble.plan'"
[ "$(q "SELECT count(*) FROM runs WHERE run LIKE 'later-%' AND state='done' AND steps=20")" = 3 ] ||
    fault "the runs are $(q "SELECT run, state, steps FROM runs WHERE run LIKE 'later-%'")"
# The members hold out different parts of the text.
ok train "${shape[@]}" --ensemble 3 --folds --name fold
says "held out in turn, 3 parts of the text: "
[ "$(q "SELECT group_concat(value) FROM (SELECT value FROM configs WHERE run LIKE 'fold-%' AND key='data.fold' ORDER BY run)")" = "1/3,2/3,3/3" ] ||
    fault "the folds are $(q "SELECT run, value FROM configs WHERE key='data.fold'")"
code 2 eval fold
says "no part is held out from all of them"
ok train "${shape[@]}" --tokenizer bpe:280 --steps 2 --ensemble 2 --folds --name words
[ "$(q "SELECT count(DISTINCT value) FROM configs WHERE run LIKE 'words-%' AND key='data.tokenizer'")" = 2 ] ||
    fault "the vocabularies of the folds are learned from held-out text"
code 2 train "${shape[@]}" --ensemble 2 --folds --chain
says "--folds with --chain is not possible"
code 2 train "${shape[@]}" --ensemble 40 --folds
says "are more than the whole text"
code 4 train "${shape[@]}" --ensemble 2 --name plain
says "'plain' is a run: an ensemble needs a name of its own"
ok train "${shape[@]}" --group mixed --name stray --steps 2
code 4 train "${shape[@]}" --ensemble 2 --name mixed
says "group 'mixed' has runs of another command ('stray')"

finish
