#!/usr/bin/env bash
# ctest: timeout=180
# The supervisor is killed with -9: the ranks detect it, save and exit; no acknowledged step is lost; a new `train
# --resume` continues, even while the old ranks are still stopping; two supervisors never share a run.
. "$BT_SRC/tests/cli/train_lib.sh"

export BITRAIN_TEST_DELAY=40 # the delay keeps a fast machine from ending the run before the kill
run=(train "${light[@]}" --steps 60)
BITRAIN_TEST_DELAY='' ok "${run[@]}" --name calm
losses calm >calm.txt

"$BITRAIN" "${run[@]}" --name orphan >o.out 2>o.err &
job=$!
started+=($job)
wait_step orphan 15

# A second supervisor for the same run is refused while the first is alive.
code 4 train --resume orphan --threads 1 --ranks 2
says "is being trained by pid"

known=$(q "SELECT max(step) FROM steps WHERE run='orphan'")
kill -9 $job
wait $job 2>/dev/null
ok train --resume orphan --threads 1 --ranks 2 # waits for the old ranks, then continues from their checkpoint
from=$(q "SELECT from_step FROM attempts WHERE run='orphan' AND attempt=1")
[ "${from:-0}" -gt "$known" ] || fault "the ranks did not save when their supervisor died: resumed from ${from:-nothing}, step $known was recorded"
[ "$(q "SELECT count(*) FROM steps WHERE run='orphan' AND step <= $known")" = $((known + 1)) ] || fault "acknowledged steps are lost"
# The ring contains the steps that the ranks made after their supervisor's death.
missing=$((60 - $(q "SELECT count(*) FROM steps WHERE run='orphan'")))
[ $missing -eq 0 ] || fault "$missing steps have no record"
[ "$(q "SELECT count(*) FROM (SELECT kind, time, title FROM events WHERE run='orphan' GROUP BY kind, time, title HAVING count(*) > 1)")" = 0 ] || fault "events were recorded twice"
[ -e runs/orphan/metrics.ring ] && fault "the ring of a finished run remains"
losses orphan >o.txt
join -t, -j1 <(sort o.txt) <(sort calm.txt) | awk -F, '$2 != $3 { exit 1 }' || fault "losses differ after the supervisor's death"
[ "$(q "SELECT state FROM runs WHERE run='orphan'")" = done ] || fault "the run did not end"

# The supervisor is killed and not started again: the ranks write a checkpoint and end; the next run removes their files
# in /tmp.
"$BITRAIN" "${run[@]}" --name alone >a.out 2>a.err &
job=$!
started+=($job)
wait_step alone 10
kill -9 $job
wait $job 2>/dev/null
wait_gone || fault "the ranks outlive their supervisor"
ls runs/alone/step-*/manifest.json >/dev/null 2>&1 || fault "the ranks saved nothing"
[ "$("$BITRAIN" runs --json | grep -o '"run":"alone","state":"[a-z]*"')" = '"run":"alone","state":"lost"' ] || fault "a run whose supervisor died is not 'lost'"
code 4 ctl alone status
# The state is the same in every list, filter and SQL.
[ "$(q "SELECT state FROM runs WHERE run='alone'")" = lost ] || fault "SQL returns $(q "SELECT state FROM runs WHERE run='alone'")"
ok runs state:lost
says "alone"
ok runs state:running
if grep -q alone out; then fault "a lost run is listed as running"; fi
ok show alone
says "alone  lost"
ok compare alone calm
says "lost"
ok autopsy alone
says "attempt 0: lost"
if grep -q "still running" out; then fault "autopsy: $(grep running out)"; fi
ok top alone --once
says "LOST"
if grep -qE "ranks 2/2| now " out; then fault "top shows a lost run as live: $(grep -E "ranks|now" out)"; fi

# The supervisor no longer receives records, then all processes are killed at once: the steps trained and saved
# meanwhile have their rows.
"$BITRAIN" "${run[@]}" --steps 100000 --ckpt-every 5 --name wiped >w.out 2>w.err &
job=$!
started+=($job)
wait_step wiped 10
kill -STOP $job
known=$(q "SELECT max(step) FROM steps WHERE run='wiped'")
saved() { ls -d runs/wiped/step-*/manifest.json 2>/dev/null | sed 's/[^0-9]*//; s/[^0-9].*//; s/^0*//' | sort -n | tail -n 1; }
for i in $(seq 400); do [ "$(saved)" -gt $((known + 15)) ] && break; sleep 0.05; done
kill -9 $job $(ours)
wait $job 2>/dev/null
wait_gone || fault "ranks are left"
reached=$(saved)
[ "${reached:-0}" -gt $((known + 15)) ] || fault "the ranks did not go on beside a stopped supervisor: saved ${reached:-nothing}, known $known"
ok runs # any command that reads the database
[ "$(q "SELECT count(*) FROM steps WHERE run='wiped' AND step < $reached")" = "$reached" ] || fault "steps below $reached that never got a row: $((reached - $(q "SELECT count(*) FROM steps WHERE run='wiped' AND step < $reached")))"
[ "$(q "SELECT count(*) FROM rank_steps WHERE run='wiped' AND step < $reached")" = $((2 * reached)) ] || fault "rank rows were not rescued"
[ ! -e runs/wiped/metrics.ring ] || fault "the ring remains after the rescue"
ok train "${tiny[@]}" --steps 2 --name after
finish
