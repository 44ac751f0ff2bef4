#!/usr/bin/env bash
# ctest: timeout=180
# Small texts: a run that memorises its text reports that and ends early (train.stop_when), a budget of time is planned
# (--minutes), and texts of at least one kilobyte train without an error.
. "$BT_SRC/tests/cli/train_lib.sh"
small=(--ranks 1 --threads 1 --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2
       --set model.d_ff=128 --set model.seq_len=64 --batch-tokens 512 --set data.tokenizer=bytes)
head -c 6000 "$BT_SRC/engine/kernels/table/kernels.h" >book.txt

# A run that memorises, and its early end.
book=("${small[@]}" --data book.txt --lr 5e-3 --steps 400 --eval-every 20 --set train.stop_when=3)
ok train "${book[@]}" --name book
says "ended early: 3 evaluations without a new best validation loss"
says "passes over the data"
says "Memorising since step "
grep -qE 'run book done after step (80|[12][0-9]0|3[0-8]0),' out || fault "it did not end early: $(head -1 out)"
ok show book
says "done (early, after 3 evaluations"
says "Memorising since step "
says "validation less training loss"
says "passes over the data"
ok top book --once
says "Memorising since step "
[ "$(q "SELECT max(val_gap) - min(val_gap) > 0.1 FROM evaluations WHERE run = 'book'")" = 1 ] || fault "the gap does not grow"
[ "$(q "SELECT passes > 10 AND state = 'done' FROM runs WHERE run = 'book'")" = 1 ] || fault "passes or state of the run"
[ "$(q "SELECT count(*) FROM events WHERE run = 'book' AND kind = 'stopped' AND title LIKE 'finished early: % of 400 steps, after 3 %'")" = 1 ] ||
    fault "the reason of the end is not recorded"
[ -e runs/book/best ] || fault "the best checkpoint is not kept"
code 4 train --resume book
says "(--set train.stop_when=0 goes further, book@best has the best weights)"
ok train --continue "${book[@]}" --name book
says "ended early after step"
ok train --resume book --set train.stop_when=0 --stop-after 2
says "run book stopped after step"

# A budget of time.
ok train "${small[@]}" --data book.txt --name two --ranks 2 --minutes 0.2 --dry-run
says "plan       0.2 minutes: "
ok train "${small[@]}" --data book.txt --name timed --minutes 0.15
says "run timed done"
says "plan       0.15 minutes: "
says "vocabulary 256"
[ "$(q "SELECT (SELECT value FROM facts WHERE run = 'timed' AND key = 'steps_total') = steps AND state = 'done' FROM runs WHERE run = 'timed'")" = 1 ] ||
    fault "the planned steps, or the corrected ones, are not the steps of the run"
[ "$(q "SELECT count(*) FROM events WHERE run = 'timed' AND kind = 'recipe'")" -ge 2 ] || fault "the plan is not recorded"
code 2 train --resume timed --minutes 1
says "a resumed one keeps the schedule it began with"
code 4 train --resume timed
says "has done its"

# The number of steps is corrected during a run, and a resumed run uses the corrected number.
ok train "${small[@]}" --data book.txt --name short --ranks 2 --steps 1000000 --set train.time_budget=0.5
says "run short done after step"
[ "$(q "SELECT (SELECT value FROM facts WHERE run = 'short' AND key = 'steps_total') = steps AND steps < 1000000 FROM runs WHERE run = 'short'")" = 1 ] ||
    fault "the number of steps was not corrected"
code 4 train --resume short
says "has done its $(q "SELECT steps FROM runs WHERE run = 'short'") steps"
# The sequences reach their full length, and the layers become ternary, in the shorter run, too.
ok train "${small[@]}" --data book.txt --name ramp --steps 1000000 --set train.time_budget=0.5 --set train.seq_ramp=0.4,0.7
[ "$(q "SELECT count(*) FROM events WHERE run = 'ramp' AND title LIKE '%attention sees stretches of 64'")" = 1 ] || fault "the sequences did not reach their full length"
for start in dense_steps lambda_steps; do
    ok train "${small[@]}" --data book.txt --name $start --steps 1000000 --set train.time_budget=0.1 --set train.$start=400
    [ "$(q "SELECT steps BETWEEN 401 AND 10000 FROM runs WHERE run = '$start'")" = 1 ] ||
        fault "$start=400: the run ended after $(q "SELECT steps FROM runs WHERE run = '$start'") steps"
done
ok train "${small[@]}" --data book.txt --name long --steps 100 --set train.time_budget=100 --stop-after 140
says "run long stopped after step 140"
ok train --resume long
says "run long done after step 150"
! grep -q warning err || fault "a resumed run warns: $(grep warning err)"
ok train --resume long --steps 155
says "run long done after step 155"

# A kilobyte: sequences and the held-out share fit the text, and a note states the expected result; given values are
# kept.
head -c 1000 "$BT_SRC/engine/kernels/table/kernels.h" >kilo.txt
ok train --data kilo.txt --name kilo --ranks 1 --threads 1 --steps 40 --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 \
    --set model.d_ff=64 --batch-tokens 256 --eval-every 10
says "run kilo done after step 40"
grep -qE "note: validation has [67][0-9] tokens, so its loss is uncertain by about 0.2[0-9] nats" err || fault "no note: $(head -3 err)"
[ "$(q "SELECT count(*) FROM configs WHERE run = 'kilo' AND (key = 'model.seq_len' AND value = 64 OR key = 'data.val_frac' AND value BETWEEN 0.05 AND 0.1)")" = 2 ] ||
    fault "sequences or the held-out share do not fit the text"
code 2 train --data kilo.txt --name given --seq-len 256 --set data.val_frac=0.05 --dry-run
says "one sequence needs 257"

finish
