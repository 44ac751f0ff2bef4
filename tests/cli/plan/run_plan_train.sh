#!/usr/bin/env bash
# timeout: 240
# labels: mpi
# mpi: 2
# train --layout auto: the planner chooses what was left open, says so in a line, an event and facts; the steps' time is held
# against its prediction; --dry-run predicts where no run is recorded.
. "$(dirname "$0")/../train_lib.sh"

# a plan that is only printed measures nothing: it says what does, and that runs as printed
ok train "${tiny[@]}" --layout auto --dry-run
says "time       not known"
says "layout     not chosen: --layout auto needs rates of this machine"
rates=$(dirname "$BITRAIN_STORE")/rates
[ ! -e "$rates" ] || fault "a dry run has measured: $(ls "$rates")"
measure=$(sed -n 's/^prediction none: .*to measure them: bitrain \(plan .*\)/\1/p' out)
eval "ok $measure"
ok train "${tiny[@]}" --layout auto --dry-run
says "a prediction, by this machine's measured rates ('$rates/"
grep -qE "\.json', 20[0-9]{2}-[0-9]{2}-[0-9]{2} " out || fault "it is not told when: $(grep '^time' out)"
# rates of another build are not used, and it is said why
for f in "$rates"/*.json; do cp "$f" "$f.kept"; sed -i 's/"build":"[0-9a-f]*"/"build":"0"/' "$f"; done
ok train "${tiny[@]}" --dry-run
says "are not used: they were measured with another build of this program"
says "prediction none"
for f in "$rates"/*.json; do mv "$f.kept" "$f"; done
ok train "${tiny[@]}" --layout auto --steps 60 --name auto --set train.stats_every=0
grep -q "^layout     pp [12] x dp [12].*predicted" out err || fault "no line tells the layout: $(cat out err | head)"
[ "$(q "SELECT count(*) FROM events WHERE run='auto' AND kind='layout' AND title LIKE '%predicted%'")" = 1 ] || fault "no event tells the layout"
[ "$(q "SELECT count(*) FROM facts WHERE run='auto' AND key LIKE 'plan.%_ms' AND CAST(value AS REAL) >= 0")" -ge 8 ] || fault "no facts of the prediction"
[ "$(q "SELECT count(*) FROM steps WHERE run='auto' AND plan_ratio > 0")" = 60 ] || fault "steps have no plan_ratio"
# what was predicted stands beside what was measured, phase by phase
ok show auto
grep -qE '^ +PHASE +MEAN +PREDICTED +SHARE' out || fault "no phases predicted: $(grep PHASE out)"
awk '$1 == "forward" {n += $4 > 0} $1 == "step" {n += NF == 5 && $4 > 0} END {exit n != 2}' out || fault "phases: $(grep -A12 PHASE out)"
ok show auto --json
grep -qE '"predicted_step_ms":[0-9.]+.*"fwd_ms":\{"mean_ms":[0-9.]+,"predicted_ms":[0-9.]+' out || fault "no phases predicted in JSON"
ok train "${tiny[@]}" --dry-run --steps 70 --batch-tokens 512
says "a prediction, by this machine's"          # the run that is recorded did other work
rm -f "$BITRAIN_STORE"*
ok train "${tiny[@]}" --dry-run
says "a prediction, by this machine's measured rates"
# what is given stays
ok train "${tiny[@]}" --layout auto --tp 2 --dry-run
says "x tp 2"
# a prediction that is far off is told once, with a cause
ok train "${tiny[@]}" --steps 45 --name off --set launch.predicted_ms=0.001
[ "$(q "SELECT count(*) FROM events WHERE run='off' AND kind='prediction' AND title LIKE 'steps take %longer than%'")" = 1 ] || fault "not told: $(q "SELECT kind, title FROM events WHERE run='off'")"
ok train "${tiny[@]}" --steps 25 --name near --set launch.predicted_ms=1000000
[ "$(q "SELECT count(*) FROM events WHERE run='near' AND kind='prediction' AND title LIKE '%quieter%'")" = 1 ] || fault "not told: $(q "SELECT kind, title FROM events WHERE run='near'")"
finish
