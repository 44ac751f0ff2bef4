#!/usr/bin/env bash
# timeout: 240
# labels: mpi
# mpi: 2
# train --layout auto: the planner chooses what was left open, says so in a line, an event and facts; the steps' time is held
# against its prediction; --dry-run predicts where no run is recorded.
. "$(dirname "$0")/../train_lib.sh"

ok train "${tiny[@]}" --dry-run
says "time       not known"
ok train "${tiny[@]}" --layout auto --steps 60 --name auto --set train.stats_every=0
grep -q "^layout     pp [12] x dp [12].*predicted" out err || fault "no line tells the layout: $(cat out err | head)"
[ "$(q "SELECT count(*) FROM events WHERE run='auto' AND kind='layout' AND title LIKE '%predicted%'")" = 1 ] || fault "no event tells the layout"
[ "$(q "SELECT count(*) FROM facts WHERE run='auto' AND key LIKE 'plan.%_ms' AND CAST(value AS REAL) >= 0")" -ge 8 ] || fault "no facts of the prediction"
[ "$(q "SELECT count(*) FROM steps WHERE run='auto' AND plan_ratio > 0")" = 60 ] || fault "steps have no plan_ratio"
ok train "${tiny[@]}" --dry-run --steps 70 --batch-tokens 512
says "time "
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
