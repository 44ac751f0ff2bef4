#!/usr/bin/env bash
# ctest: timeout=240 waits
# A rank, rank 0 or mpirun is killed, or a rank is stopped: the run continues from the newest checkpoint and its losses
# equal those of an undisturbed run, bit for bit; no processes or files remain; a recurring failure is not retried
# forever.
. "$BT_SRC/tests/cli/train_lib.sh"

export BITRAIN_TEST_DELAY=60 # the delay keeps a fast machine from reaching the next checkpoint before the kill
# The run continues from the disk, as after the loss of a host; cli.recovery.kill_memory tests states in memory.
run=(train "${light[@]}" --steps 40 --ckpt-every 15 --set ckpt.memory=off)
BITRAIN_TEST_DELAY='' ok "${run[@]}" --name calm
losses calm >calm.txt
[ "$(wc -l <calm.txt)" = 40 ] || fault "the calm run has $(wc -l <calm.txt) steps"

disturbed() { # disturbed NAME: same losses, one restart, reported correctly
    wait "$job"
    local got=$?
    [ $got -eq 0 ] || { fault "exit $got of the disturbed run $1"; tail -n 5 "$1.err"; }
    losses "$1" | cmp -s - calm.txt || { fault "run $1 has other losses"; losses "$1" | diff - calm.txt | head -n 4; }
    # On a busy machine the run may be a checkpoint further when it is disturbed.
    q "SELECT count(*), min(from_step), max(from_step) FROM attempts WHERE run='$1'" | grep -Eqx "2,0,${3:-(15|30)}" ||
        fault "attempts of $1: $(q "SELECT attempt, from_step, reason FROM attempts WHERE run='$1'" | tr '\n' ';') $(q "SELECT attempt, step, kind, title FROM events WHERE run='$1' AND kind IN ('failure', 'stalled', 'warning')" | tr '\n' ';')"
    q "SELECT title FROM events WHERE run='$1' AND kind='failure'" | grep -q "$2" || fault "no event of $1 prints '$2': $(q "SELECT title FROM events WHERE run='$1' AND kind='failure'")"
    [ "$(q "SELECT count(*) FROM events WHERE run='$1' AND kind='restarted'")" = 1 ] || fault "no 'restarted' event of $1"
    [ "$(q "SELECT count(*), count(DISTINCT step) FROM steps WHERE run='$1'")" = 40,40 ] || fault "steps of $1 are missing or double"
}

# start NAME WORDS...: starts a run and waits for step 18 and the checkpoint of step 15, which a slow disk writes later; the
# ranks' process ids are in pids. They are read before, because a query on a busy machine takes as long as some steps.
start() {
    local name=$1
    shift
    b "${run[@]}" --name "$name" "$@" >"$name.out" 2>"$name.err" &
    job=$!
    started+=($job)
    wait_step "$name" 1
    mapfile -t pids < <(q "SELECT pid FROM ranks WHERE run='$name' ORDER BY rank")
    for _ in $(seq 200); do
        [ "$(q "SELECT (SELECT max(step) FROM steps WHERE run='$name') >= 18 AND (SELECT count(*) FROM checkpoints WHERE run='$name' AND step = 15)")" = 1 ] && return
        sleep 0.05
    done
    fault "run $name does not reach step 18"
}

start one
kill -9 "${pids[1]}"
disturbed one "rank 1 was ended by signal 9"
ok logs one --rank 1 --grep SIGNAL
grep -q "rank 1 (.*signal 9" out || fault "the lines that were printed are not recorded: $(cat out err)"
# A restart on the same processors uses the link rates and the peak that the first attempt measured.
[ "$(q "SELECT value, attempt FROM facts WHERE run='one' AND key='measured.attempt'")" = "0,1" ] ||
    fault "attempt 1 does not take over what attempt 0 measured: $(q "SELECT * FROM facts WHERE run='one' AND key='measured.attempt'")"
[ "$(q "SELECT attempt FROM facts WHERE run='one' AND key='peak_flops' AND value > 0")" = 1 ] || fault "attempt 1 does not know the peak"

start zero
kill -9 "${pids[0]}"
disturbed zero "rank 0 was ended by signal 9"

start launcher
kill -9 "$(ps -o ppid= -p "${pids[0]}" | tr -d " ")" # mpirun
disturbed launcher "signal 9"

# mpirun of Open MPI 5 exits with 0 after it lost a host: the run is not done.
printf '#!/bin/sh\nmpirun "$@" 2>&1 | grep -v "process rank"\nexit 0\n' >early_end && chmod +x early_end
export BITRAIN_MPIRUN=$tmp/early_end
start early
kill -ABRT "${pids[1]}"
disturbed early "mpirun ended with exit code 0 after step .*, before rank 0 had finished the run"
start spent --set launch.max_restarts=0
kill -ABRT "${pids[1]}"
wait "$job"
[ $? -eq 1 ] || fault "an unfinished run without restarts: exit is not 1: $(tail -n 3 spent.err)"
[ "$(q "SELECT state FROM runs WHERE run='spent'")" = failed ] || fault "an unfinished run is '$(q "SELECT state FROM runs WHERE run='spent'")'"
code 0 autopsy spent
says "before rank 0 had finished the run"
unset BITRAIN_MPIRUN

# A stopped rank gives no signal, so the missing steps are detected.
start frozen --set launch.hang_s=6
kill -STOP "${pids[1]}"
disturbed frozen "no progress"
q "SELECT title FROM events WHERE run='frozen'" | grep -q "rank 1 (pid .*) is stopped by a signal" || fault "the stopped rank is not named"
q "SELECT title FROM events WHERE run='frozen' AND kind='failure'" | grep -Eq "(in (data|the exchange|forward and backward|the optimizer|a checkpoint)|recording measurements) of step" || fault "no message states where the ranks were: $(q "SELECT title FROM events WHERE run='frozen'")"

# The defaults (600 s without a step): a stopped rank is detected and ended soon.
start halted
kill -STOP "${pids[1]}"
disturbed halted "no progress"
q "SELECT title FROM events WHERE run='halted' AND kind='stalled'" | grep -q "rank 1 (pid .*) is stopped by a signal; the ranks are started again in" || fault "the stopped rank is not reported"
# A rank that continues in time causes no restart.
start waited
pid="${pids[1]}"
kill -STOP "$pid"; sleep 1; kill -CONT "$pid"
wait $job || fault "waited: exit $?"
[ "$(q "SELECT count(*) FROM attempts WHERE run='waited'")" = 1 ] || fault "a rank that was stopped for a second cost a restart"

# No restart is allowed.
start mourned --max-restarts 0
kill -9 "${pids[1]}"
wait "$job"
[ $? -eq 1 ] || fault "a lost run does not exit 1"
grep -q "rank 1 was ended by signal 9 (Killed).*no restart: 0 restarts are allowed" mourned.err || fault "the reason is not reported: $(tail -n 1 mourned.err)"
[ "$(q "SELECT state FROM runs WHERE run='mourned'")" = failed ] || fault "a lost run is not 'failed'"
ok train --resume mourned --threads 1 --ranks 2
finish
