#!/usr/bin/env bash
# ctest: timeout=120
# A rank that is delayed for a few seconds is reported with its position while the other ranks wait for it; the run
# continues unharmed, and an undisturbed run raises no such alarm.
. "$BT_SRC/tests/cli/train_lib.sh"

# Hangs are not ended here: on a loaded machine a stopped rank would be ended before it is reported.
b train "${slow[@]}" --set launch.hang_s=0 --steps 100000 --name held >h.out 2>h.err &
job=$!
started+=($job)
wait_step held 20
pid=$(q "SELECT pid FROM ranks WHERE run='held' AND rank=1")
slow_events() { q "SELECT count(*) FROM events WHERE run='held' AND kind='slow'"; }
[ "$(slow_events)" = 0 ] || fault "a calm run is reported to be slow: $(q "SELECT title FROM events WHERE run='held'")"
# The rank must be stopped while it reads data or computes (positions 2 and 3 in its shared page), not while it waits
# for the other rank.
place() { od -An -td4 -j64 -N4 "$TMPDIR"/bitrain-*/0/places | tr -d ' '; }
for try in $(seq 200); do
    kill -STOP "$pid"
    case $(place) in 2 | 3) break ;; esac
    kill -CONT "$pid"
    sleep 0.013
done
for i in $(seq 200); do [ "$(slow_events)" != 0 ] && break; sleep 0.05; done
kill -CONT "$pid"
[ "$(q "SELECT count(*) FROM events WHERE run='held' AND kind='slow' AND rank=1 AND level='warning'")" -ge 1 ] ||
    fault "rank 1 is not named: $(q "SELECT kind, rank, title FROM events WHERE run='held'" | tail -n 3)"
q "SELECT title FROM events WHERE run='held' AND kind='slow'" | grep -Eq "^rank 1 is in (data|forward and backward) of step [0-9]+ since [0-9.]+ s, the other ranks wait for it$" ||
    fault "the place is not reported: $(q "SELECT title FROM events WHERE run='held' AND kind='slow'")"
at=$(q "SELECT max(step) FROM steps WHERE run='held'")
wait_step held $((at + 20))
[ "$(q "SELECT attempts FROM runs WHERE run='held'")" = 1 ] || fault "the run was restarted"
ok ctl held stop
wait $job || fault "exit $? of the held run"
finish
