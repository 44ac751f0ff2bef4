#!/usr/bin/env bash
# ctest: timeout=240 labels=mpi
# train --layout auto: the planner chooses the settings that are not given and reports them in a line, an event and
# facts; the time of the steps is compared with the prediction; --dry-run predicts before a run is recorded.
. "$(dirname "$0")/../train_lib.sh"

# A plan that is only printed measures nothing and prints the command for a measurement, which runs as printed.
ok train "${tiny[@]}" --layout auto --dry-run
says "time       not known"
says "layout     not chosen: --layout auto needs rates of this machine"
rates=$(dirname "$BITRAIN_STORE")/rates
[ ! -e "$rates" ] || fault "a dry run has measured: $(ls "$rates")"
measure=$(sed -n 's/^prediction none: .*to measure them: bitrain \(plan .*\)/\1/p' out)
eval "ok $measure"
ok train "${tiny[@]}" --layout auto --dry-run
# The layout has the time of its trial if it was tried, and otherwise a prediction with the file and the date of its
# rates.
source_of_time="(measured in a trial under load .*predicted: |a prediction, by this machine's measured rates)"
grep -qE "^time .*$source_of_time" out || fault "the time has no source: $(grep '^time' out)"
# Rates of another build are not used, and the reason is printed.
for f in "$rates"/*.json; do cp "$f" "$f.kept"; sed -i 's/"build":"[0-9a-f]*"/"build":"0"/' "$f"; done
ok train "${tiny[@]}" --dry-run
says "are not used: they were measured with another build of this program"
says "prediction none"
for f in "$rates"/*.json; do mv "$f.kept" "$f"; done
ok train "${tiny[@]}" --layout auto --steps 60 --name auto --set train.stats_every=0
grep -q "^layout     pp [12] x dp [12].*predicted" out err || fault "no line prints the layout: $(cat out err | head)"
[ "$(q "SELECT count(*) FROM events WHERE run='auto' AND kind='layout'")" -ge 1 ] || fault "no event contains the layout"
[ "$(q "SELECT count(*) FROM facts WHERE run='auto' AND key LIKE 'plan.%_ms' AND CAST(value AS REAL) >= 0")" -ge 8 ] || fault "no facts of the prediction"
[ "$(q "SELECT count(*) FROM steps WHERE run='auto' AND plan_ratio > 0")" = 60 ] || fault "steps have no plan_ratio"
# plan_ratio is relative to the time of the layout's trial, or else to the prediction.
expected=$(q "SELECT coalesce(max(CASE key WHEN 'plan.tried_ms' THEN value END), max(CASE key WHEN 'plan.step_ms' THEN value END)) FROM facts WHERE run='auto'")
same_ratio() { # run
    q "SELECT abs(plan_ratio * $expected / step_ms - 1) < 0.01 FROM steps WHERE run='$1' ORDER BY step DESC LIMIT 1"
}
[ "$(same_ratio auto)" = 1 ] || fault "plan_ratio is not over $expected ms: $(q "SELECT step_ms, plan_ratio FROM steps WHERE run='auto' LIMIT 1")"
# A run that continues with the same layout keeps its prediction; with another batch it has none.
ok train --resume auto --steps 62
[ "$(same_ratio auto)" = 1 ] || fault "resumed without its prediction"
ok train --resume auto --steps 64 --ranks 1
[ "$(q "SELECT count(*) FROM steps WHERE run='auto' AND plan_ratio > 0")" = 62 ] || fault "a prediction of 2 ranks is held against 1"
ok show auto
grep -q PREDICTED out && fault "shows a prediction of another layout: $(grep -A3 PHASE out)"
ok train "${tiny[@]}" --layout auto --steps 60 --name auto2 --set train.stats_every=0
# A written plan contains its prediction.
ok plan "${tiny[@]}" --write planned.yaml
ok train planned.yaml --steps 3 --name planned
[ "$(q "SELECT count(*) FROM steps WHERE run='planned' AND plan_ratio > 0")" = 3 ] || fault "a written plan has no prediction"
[ "$(q "SELECT count(*) FROM facts WHERE run='planned' AND key IN ('plan.step_ms', 'plan.fwd_ms')")" = 2 ] || fault "a written plan has no facts of it"
# The prediction is shown beside the measurement, phase by phase.
ok show auto2
grep -qE '^ +PHASE +MEAN +PREDICTED +SHARE' out || fault "no phases predicted: $(grep PHASE out)"
awk '$1 == "forward" {n += $4 > 0} $1 == "step" {n += NF == 5 && $4 > 0} END {exit n != 2}' out || fault "phases: $(grep -A12 PHASE out)"
ok show auto2 --json
grep -qE '"predicted_step_ms":[0-9.]+.*"fwd_ms":\{"mean_ms":[0-9.]+,"predicted_ms":[0-9.]+' out || fault "no phases predicted in JSON"
ok train "${tiny[@]}" --dry-run --steps 70 --batch-tokens 512
says "a prediction, by this machine's" # the recorded run did other work
rm -f "$BITRAIN_STORE"*
ok train "${tiny[@]}" --dry-run
grep -qE "^time .*$source_of_time" out || fault "the time has no source: $(grep '^time' out)"
# Given settings are not changed.
ok train "${tiny[@]}" --layout auto --tp 2 --dry-run
says "x tp 2"
# A large error of the prediction is reported once, with a cause.
ok train "${tiny[@]}" --steps 45 --name off --set launch.predicted_ms=0.001
[ "$(q "SELECT count(*) FROM events WHERE run='off' AND kind='prediction' AND title LIKE 'steps take %longer than%'")" = 1 ] || fault "not reported: $(q "SELECT kind, title FROM events WHERE run='off'")"
ok train "${tiny[@]}" --steps 25 --name near --set launch.predicted_ms=1000000
[ "$(q "SELECT count(*) FROM events WHERE run='near' AND kind='prediction' AND title LIKE '%quieter%'")" = 1 ] || fault "not reported: $(q "SELECT kind, title FROM events WHERE run='near'")"
finish
