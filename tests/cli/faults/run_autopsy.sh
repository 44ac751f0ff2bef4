#!/usr/bin/env bash
# bitrain autopsy states what ended a run, which process, at which step, the evidence and the next command: for ranks
# that were killed or reported an error, a supervisor that was killed, a run that was stopped, and a run without a
# failure; as text and JSON.
. "$BT_SRC/tests/cli/train_lib.sh"
run=(train "${slow[@]}" --steps 2000 --ckpt-every 10 --max-restarts 0)
# start RUN WORDS...: starts a run in the background and waits for step 15
start() {
    local run_name=$1; shift
    "$BITRAIN" "${run[@]}" --name $run_name "$@" >$run_name.out 2>$run_name.err &
    job=$!
    started+=($job)
    wait_step $run_name 15
    [ "$(q "SELECT count(*) FROM attempts WHERE run='$run_name'")" = 1 ] ||
        fault "no fault hit $run_name, and it was restarted: $(q "SELECT step, kind, title, body FROM events WHERE run='$run_name'")"
    # A checkpoint is written during training, some steps after it was begun.
    local i
    for i in $(seq 200); do [ "$(q "SELECT count(*) > 0 FROM checkpoints WHERE run='$run_name'")" = 1 ] && return 0; sleep 0.05; done
    fault "no checkpoint of $run_name"
}

start killed && kill -9 $(q "SELECT pid FROM ranks WHERE run='killed' AND rank=1") && wait $job
ok autopsy killed
grep -qE "^killed: failed after step [0-9]+ of 2000" out || fault "what: $(head -n 1 out)"
says "rank 1 was ended by signal 9 (Killed) after step"
grep -qE "^  do +resume: training continues from the checkpoint of step [0-9]+" out || fault "advice: $(sed -n 3p out)"
grep -qE "^  command  bitrain train --resume killed" out || fault "command: $(sed -n 4p out)"
grep -qE "^  rank 1: .*, pid [0-9]+, last recorded step [0-9]+" out || fault "who: $(grep 'rank 1' out)"
grep -qE "^  when it ended (rank [01] is|all ranks are|the rank is|[0-9]+ ranks) " out || fault "places: $(cat out)"
grep -qE "^ +0  .+ 2 +1 +[0-9]+  rank 1 was ended" out || fault "steps count from 1: $(grep -A1 'from step' out)"
says "process rank 1"
! grep -q "since 0" out || fault "a duration of zero: $(grep since out)"
# The printed command works.
$(sed -n 's/^  command  bitrain/timeout 60 "$BITRAIN"/p' out | sed "s,\"\$BITRAIN\",$BITRAIN,") --steps 2000 --stop-after 3 >o2 2>e2 || fault "the command it gives: $(tail -n 2 e2)"

ok autopsy killed --json
grep -q '"why":"it was asked to"\|"state":"stopped"' out || fault "after the resume: $(head -c 300 out)"
grep -q '"attempt":1' out || fault "the second attempt is missing"

# If a restart succeeded, the report is about the attempt that failed.
start twice --max-restarts 3 && kill -9 $(q "SELECT pid FROM ranks WHERE run='twice' AND rank=0")
for i in $(seq 200); do [ "$(q "SELECT count(*) FROM steps WHERE run='twice' AND attempt > 0")" -gt 0 ] && break; sleep 0.1; done
kill -TERM $job; wait $job
ok autopsy twice
says "attempt 0: rank 0 was ended by signal 9"
says "twice: stopped"

# The ranks need a moment to exit; until then the state of the run is not `lost`. The next start removes their files.
start orphan && kill -9 $job
wait $job 2>/dev/null
wait_gone
for i in $(seq 100); do b autopsy orphan | grep -q "^orphan: lost" && break; sleep 0.1; done
ok autopsy orphan
says "its supervisor (pid $job"
ok train --resume orphan --stop-after 1

code 2 autopsy
code 3 autopsy nobody
finish
