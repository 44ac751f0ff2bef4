#!/usr/bin/env bash
# ctest: timeout=120 waits
# `bitrain sweep`: a grid is trained as one group and compared, halving is killed with -9 and continues to the same end,
# budget and folder are respected, bad input gives one line each.
. "$BT_SRC/tests/cli/train_lib.sh"

cat > grid.yaml <<'EOF'
name: lr
settings:
  model: {preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}
  train: {steps: 12, batch_tokens: 64, eval_tokens: 64, eval_every: 1000000}
  data.path: synth:chain
  launch: {ranks: 1, threads: 1}
space:
  optim.lr: log 1e-3 .. 4e-3 in 2
  optim.weight_decay: [0, 0.1]
EOF
line() { sed -e "$1" grid.yaml >changed.yaml; }
# refused CODE TEXT SED: the file, changed by SED, is refused in one line
refused() {
    line "$3"
    code "$1" sweep changed.yaml
    says "$2"
    [ "$(grep -c . err)" -eq 1 ] || fault "not one line: $(cat err)"
}
refused 2 "changed.yaml:8: unknown option 'space.optim.lrr' (did you mean 'space.optim.lr'?)" 's/optim.lr:/optim.lrr:/'
refused 2 "unknown option 'settings.train.stepz' (did you mean 'settings.train.steps'?)" 's/steps:/stepz:/'
refused 2 "unknown option 'settings.run.name'" 's/data.path: .*/run.name: x/'
refused 2 "the space is empty" '/optim/d; s/space:/space: {}/'
refused 2 "space.optim.weight_decay has no values" 's/\[0, 0.1\]/[]/'
refused 2 "has the value '0.1' twice" 's/\[0, 0.1\]/[0.1, 0.1]/'
refused 2 "weight_decay must be a number" 's/\[0, 0.1\]/[0, heavy]/'
refused 2 "is a range, and a grid needs values" 's/ in 2//'
refused 2 "give the number of runs" 's/^name: lr/method: random/'
refused 2 "budget.steps 11 is less than one run of 12 steps" 's/^name: lr/budget: {steps: 11}/'
refused 2 "goal 'los' is no metric" 's/^name: lr/goal: los/'
refused 2 "run lr-001 (optim.lr=0.001 optim.weight_decay=0): model.heads 3 does not divide" 's/heads: 2, kv/heads: 3, kv/'
refused 2 "is under settings, and under space" 's/data.path: .*/optim.lr: 1/'
code 3 sweep none.yaml
code 2 sweep
[ ! -e m.db ] && [ ! -e sweeps ] || fault "a refused sweep left something: $(ls)"

# A grid: its plan, then all runs; a second call starts no run.
ok sweep grid.yaml --dry-run
says "4 runs, grid over optim.lr, optim.weight_decay; 48 steps in all"
[ ! -e m.db ] || fault "a dry run made a database"
line 's/^name: lr/name: lr\nbudget: {steps: 30}/'
ok sweep changed.yaml --dry-run
says "2 points of the space are omitted"

# Steps counted in epochs: 101 sequences of 32 bytes, two per step; the size of a step is an axis of the grid too.
head -c 3233 "$BT_SRC/tests/cli/sweep/run_sweep.sh" >epochs.txt
epochs() { line "s/steps: 12/epochs: 2, eval_tokens: 32/; s/, eval_tokens: 64//; s/data.path: .*/data: {path: epochs.txt, val_frac: 0}/; $1"; }
epochs ""
ok sweep changed.yaml --dry-run
says "4 runs, grid over optim.lr, optim.weight_decay; 404 steps in all"
epochs 's/ batch_tokens: 64,//; s/optim.weight_decay: .*/train.batch_tokens: [64, 128]/'
ok sweep changed.yaml --dry-run
says "grid over train.batch_tokens, optim.lr; 304 steps in all"
epochs 's/^name: lr/name: lr\nbudget: {steps: 210}/'
ok sweep changed.yaml --dry-run
says "2 points of the space are omitted"
ok sweep changed.yaml --dry-run --json
grep -q '"steps":202,"left_out":2' out || fault "two runs of two epochs have other steps: $(cut -c1-300 out)"
epochs 's/^name: lr/name: lr\nmethod: halving\nruns: 4\nhalving: {keep: 2}/; s/ in 2//'
ok sweep changed.yaml --dry-run
says "after 25 steps the best 2 of 4 continue"
refused 2 "train.epochs: 'synth:chain' is endless and has no epochs" 's/steps: 12/epochs: 2/'
printf 'data: {path: epochs.txt}\ntrain: {epochs: 2, batch_tokens: 64}\nmodel: {preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}\n' >base.yaml
ok sweep --find-lr base.yaml --steps 40 --dry-run
says "40 steps"

ok sweep grid.yaml
says "lr-004     0.004                 0.1"
[ "$(q "SELECT count(*) FROM runs WHERE state='done' AND steps=12")" = 4 ] || fault "not four runs of 12 steps: $(b runs)"
[ "$(q "SELECT group_concat(DISTINCT value) FROM configs WHERE key='run.group'")" = lr ] || fault "they are not one group"
before=$(q "SELECT sum(attempts) FROM runs")
ok sweep grid.yaml --json
[ "$(q "SELECT sum(attempts) FROM runs")" = "$before" ] || fault "a sweep that is done trained again"
# Runs are ranked by validation loss if every run has one.
best=$(q "SELECT run FROM runs ORDER BY best_val LIMIT 1")
grep -q '"goal":"best_val"' out || fault "the goal is not reported: $(cut -c1-200 out)"
grep -q "\"ended\":true,\"rungs\":\[\],\"runs\":\[{\"run\":\"$best\"" out || fault "the best run, $best, is not the first: $(cut -c1-300 out)"
ok compare group=lr --group-by optim.lr --json
# The mean over the two runs of a learning rate, computed independently.
want=$(q "SELECT printf('%.9f', avg(loss)) FROM steps WHERE run IN ('lr-001', 'lr-002')")
got=$(sed 's/.*"optim.lr":"0.001"},"runs":2,"without_value":0,"mean":\([0-9.]*\).*/\1/' out)
[ "$(printf '%.9f' "$got")" = "$want" ] || fault "group mean $got, not $want"
ok compare lr-001 lr-003 --group-by optim.lr,optim.weight_decay
says "loss of 2 runs"
code 2 compare --group-by optm
code 3 compare --group-by lr group=none

# The same folder: another sweep is refused, added runs continue.
refused 4 "belongs to another sweep: its 'lr-002: optim.lr=0.001 optim.weight_decay=0.1'" 's/\[0, 0.1\]/[0, 0.2]/'
line 's/4e-3 in 2/8e-3 in 2/'
code 4 sweep changed.yaml --out elsewhere
says "run 'lr-001' is in the database already"

# A learning rate is found: one run with a rising rate is evaluated, annotated once, and shown by the page's route.
line '/weight_decay/d; s/^name: lr/name: find\nmethod: find-lr/; s/optim.lr: .*/optim.lr: log 1e-5 .. 1/; s/steps: 12/steps: 40/'
ok sweep changed.yaml
grep -q '^suggested learning rate: [0-9]' out || fault "no rate is suggested: $(cat out)"
steepest=$(q "SELECT printf('%.2g', lr) FROM steps s JOIN events e ON e.run = s.run AND e.step = s.step
    WHERE s.run = 'find-001' AND e.kind = 'annotation'")
ok sweep changed.yaml --json
grep -q '"method":"find-lr","run":"find-001","suggested":[0-9]' out || fault "its JSON: $(cut -c1-200 out)"
# The rate is that of the steepest step, or a lower one if the loss diverges soon after it.
rate=$(printf '%.2g' "$(sed 's/.*"suggested":\([0-9.e-]*\).*/\1/' out)")
title="suggested learning rate $rate (steepest descent at $steepest)"
[ "$(q "SELECT count(*) FROM events WHERE run = 'find-001' AND title = '$title'")" = 1 ] ||
    fault "'$title' is not noted once, at its step: $(q "SELECT step, title FROM events WHERE run = 'find-001' AND kind = 'annotation'")"
[ "$(q "SELECT count(*) FROM steps s JOIN steps t ON t.run = s.run AND t.step = s.step + 1 WHERE s.run = 'find-001' AND abs(t.lr / s.lr - pow(1e5, 1. / 39)) > 1e-6")" = 0 ] ||
    fault "the rate does not rise by equal factors"
cp changed.yaml find.yaml
for bad in 's/log 1e-5 .. 1/log 1e-5 .. 1 in 5/' 's/log 1e-5 .. 1/[1e-3, 1e-2]/' 's/log 1e-5 .. 1/0 .. 1/' 's/optim.lr:/optim.beta2:/'; do
    sed -e "$bad" find.yaml >changed.yaml
    code 2 sweep changed.yaml
done
refused 2 "the range must go upwards" 's/^name: lr/name: x\nmethod: find-lr/; /weight_decay/d; s/log 1e-3 .. 4e-3 in 2/log 1 .. 1e-3/'
refused 2 "12 steps are no range test" 's/^name: lr/name: x\nmethod: find-lr/; /weight_decay/d; s/log 1e-3 .. 4e-3 in 2/log 1e-3 .. 1/'
refused 2 "a range test sets 'optim.schedule' itself" 's/^name: lr/name: x\nmethod: find-lr/; /weight_decay/d; s/log 1e-3 .. 4e-3 in 2/log 1e-3 .. 1/; s/steps: 12/steps: 40/; s/^  launch:/  optim.schedule: wsd\n  launch:/'
code 2 sweep --find-lr --from 1 --to 0.1
says "the range must go upwards"
code 2 sweep --find-lr --steps 3
code 2 sweep grid.yaml --to 1
says "is an option of --find-lr"

# Halving, killed with -9 in its first rung and again later, ends as an undisturbed sweep does.
line 's/^name: lr/name: hv\nmethod: halving\nruns: 4\nhalving: {keep: 2, first_steps: 6}/; s/ in 2//; s/steps: 12/steps: 24/'
cp changed.yaml hv.yaml
for rung in 5 11; do
    BITRAIN_TEST_SLOW=0:20 "$BITRAIN" sweep hv.yaml >hv.out 2>&1 &
    pid=$!
    started+=($pid)
    for i in $(seq 400); do
        [ "$(q "SELECT count(*) FROM steps WHERE run LIKE 'hv-%' AND step >= $rung" 2>/dev/null)" -gt 0 ] 2>/dev/null && break
        sleep 0.05
    done
    code 4 sweep hv.yaml
    says "a sweep is at work in"
    kill -9 $pid || fault "the sweep ended before it was killed"
    wait $pid 2>/dev/null
done
ok sweep hv.yaml --json
cp out killed.json
wait_gone || fault "runs of the killed sweep are left"
sed 's/^name: hv/name: once/' hv.yaml >once.yaml
ok sweep once.yaml --json
tail='s/.*"rungs"/"rungs"/; s/hv-/once-/g'
[ "$(sed "$tail" killed.json)" = "$(sed "$tail" out)" ] || fault "killed: $(sed "$tail" killed.json) whole: $(sed "$tail" out)"
[ "$(q "SELECT group_concat(steps) FROM (SELECT steps FROM runs WHERE run LIKE 'once-%' ORDER BY steps)")" = 6,6,12,24 ] || fault "halving: $(b runs once)"
finish
