#!/usr/bin/env bash
# ctest: timeout=60
# nohup: a process that ignores the end of the terminal continues, supervised or in `dash`; a run without nohup saves
# and stops.
. "$BT_SRC/tests/cli/train_lib.sh"

nohup "$BITRAIN" train "${slow[@]}" --steps 200 --name kept >kept.out 2>&1 </dev/null &
job=$!
started+=($job)
wait_step kept 5
kill -HUP $job
wait $job || fault "exit $? of a run under nohup: $(tail -n 2 kept.out)"
[ "$(q "SELECT state, steps FROM runs WHERE run='kept'")" = done,200 ] || fault "SIGHUP ended a run under nohup: $(q "SELECT state, steps FROM runs WHERE run='kept'")"

"$BITRAIN" train "${slow[@]}" --steps 1000000 --name ended >ended.out 2>&1 </dev/null &
job=$!
started+=($job)
wait_step ended 5
kill -HUP $job
wait $job
[ "$(q "SELECT state FROM runs WHERE run='ended'")" = stopped ] || fault "SIGHUP does not stop a run without nohup"

nohup "$BITRAIN" dash --port 0 >dash.out 2>&1 </dev/null &
job=$!
started+=($job)
for _ in $(seq 100); do grep -q http dash.out && break; sleep 0.1; done
kill -HUP $job
sleep 0.5
kill -0 $job 2>/dev/null || fault "SIGHUP ended dash under nohup: $(cat dash.out)"
kill $job
wait $job
finish
