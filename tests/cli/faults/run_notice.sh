#!/usr/bin/env bash
# ctest: timeout=180
# A shutdown notice: SIGTERM to every process of the job at once, including mpirun, as scancel and a systemd slice send
# it, or SIGUSR1 to the supervisor, as Slurm's --signal=B:USR1@N does. Each time a checkpoint of the last step is
# written, and the same command with --continue ends with the bits of the undisturbed run. A TERM to rank 0 alone makes
# the ranks save and exit, and the run continues.
. "$BT_SRC/tests/cli/train_lib.sh"
export BITRAIN_TEST_DELAY=10 # steps remain when a signal arrives, on any processor
run=(train "${light[@]}" --steps 20000 --set train.reproducible=true --set train.unit=2 --set ckpt.minutes=0)
everybody() { pgrep -f -- "$tmp/m.db|$tmp/runs|bitrain rank .*$tmp|(mpirun|prterun) .*$tmp" | grep -vx $$; }
saved() { # RUN: the newest checkpoint is that of the last recorded step
    local last=$(q "SELECT max(step) FROM steps WHERE run='$1'")
    [ -f "runs/$1/step-$(printf %012d $((last + 1)))/manifest.json" ] || fault "$1: no checkpoint of step $last: $(ls runs/$1)"
}

"$BITRAIN" "${run[@]}" --name all >a.out 2>a.err &
job=$!
started+=($job)
if wait_step all 10; then
    mpirun=$(pgrep -f -- "^[^ ]*(mpirun|prterun) .*$tmp" | head -n 1)
    kill -CONT $job $mpirun $(pgrep -f -- "bitrain rank .*$tmp")
    kill -TERM $job $mpirun $(pgrep -f -- "bitrain rank .*$tmp")
    wait $job
    got=$?
    [ $got -eq 143 ] || { fault "exit $got after a TERM to every process"; tail -n 3 a.err; }
    saved all
    [ "$(q "SELECT state FROM runs WHERE run='all'")" = stopped ] || fault "state $(q "SELECT state, exit_kind FROM runs WHERE run='all'")"
    [ "$(q "SELECT count(*) FROM attempts WHERE run='all'")" = 1 ] || fault "the notice cost a restart"
fi

"$BITRAIN" "${run[@]}" --name batch >b.out 2>b.err &
job=$!
started+=($job)
if wait_step batch 10; then
    kill -USR1 $job
    wait $job
    got=$?
    [ $got -eq 138 ] || { fault "exit $got after SIGUSR1 to the supervisor"; tail -n 3 b.err; }
    saved batch
fi

# systemd by default sends TERM to every process of the service's group, then CONT to every process, in any order. The
# service is started again with the same command until the run is done; then the command does nothing.
again=(train "${light[@]}" --steps 120 --continue)
below() { local p; for p in $(pgrep -P "$1"); do below "$p"; done; echo "$1"; } # prints the ranks, mpirun, then the supervisor
BITRAIN_TEST_DELAY='' ok "${again[@]}" --name calm
losses calm >calm.txt
for turn in 1 2; do
    "$BITRAIN" "${again[@]}" --name unit >"u$turn.out" 2>"u$turn.err" &
    job=$!
    started+=($job)
    # Counts only steps of this start, because a fast machine has done many before.
    for i in $(seq 400); do [ "$(q "SELECT count(*) FROM steps WHERE run='unit' AND attempt = $turn - 1")" -gt 4 ] && break; sleep 0.05; done
    group=$(below $job)
    [ "$(wc -w <<<"$group")" -ge 4 ] || fault "the group of the service is $group"
    for p in $group; do kill -TERM "$p"; done
    for p in $group; do kill -CONT "$p" 2>/dev/null; done
    wait $job
    got=$?
    [ $got -eq 143 ] || { fault "exit $got of a stopped service"; tail -n 3 "u$turn.err"; }
    saved unit
done
ok "${again[@]}" --name unit
losses unit | cmp -s - calm.txt || fault "stopped twice and started again with --continue: other losses"
[ "$(q "SELECT count(*) FROM attempts WHERE run='unit'")" = 3 ] || fault "$(q "SELECT count(*) FROM attempts WHERE run='unit'") attempts of the service"
ok "${again[@]}" --name unit
says "run unit has done its 120 steps already"

# Slurm sends TERM before the time limit and again at the limit, then KILL: the second TERM must not abort the save.
# Steps take some seconds, so that the second and third signal arrive before the first one has taken effect.
SLURM_JOB_ID=1 BITRAIN_TEST_SLOW=0:150 "$BITRAIN" "${run[@]}" --name limit >l.out 2>l.err &
job=$!
started+=($job)
if wait_step limit 0; then
    for i in 1 2 3; do kill -TERM $job 2>/dev/null; sleep 1.1; done
    wait $job
    got=$?
    [ $got -eq 143 ] || { fault "exit $got after three TERM under Slurm"; tail -n 3 l.err; }
    saved limit
fi

# Only rank 0 gets the signal and exits; the run continues.
"$BITRAIN" "${run[@]}" --name rank >r.out 2>r.err &
job=$!
started+=($job)
if wait_step rank 10; then
    kill -TERM $(q "SELECT pid FROM ranks WHERE run='rank' AND rank=0")
    for i in $(seq 200); do [ "$(q "SELECT count(*) FROM steps WHERE run='rank' AND attempt > 0")" -gt 0 ] && break; sleep 0.1; done
    [ "$(q "SELECT count(*) FROM attempts WHERE run='rank'")" = 2 ] || fault "a TERM to rank 0: $(q "SELECT kind, title FROM events WHERE run='rank'")"
    [ "$(q "SELECT from_step FROM attempts WHERE run='rank' AND attempt=1")" -gt 5 ] || fault "it did not save before it left"
    kill -INT $job
    wait $job
    got=$?
    [ $got -eq 130 ] || fault "exit $got after Ctrl-C"
fi
finish
