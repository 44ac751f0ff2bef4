#!/usr/bin/env bash
# ctest: timeout=400 waits
# Ranks are killed at any moment, in every layout: the run continues from the state in shared memory, at most a few
# steps are repeated, and the losses equal those of an undisturbed run, bit for bit. If there is no such state, or a
# damaged one, the run continues from the disk.
. "$BT_SRC/tests/cli/train_lib.sh"

export BITRAIN_TEST_DELAY=60 # long steps, so that a kill happens within one on any processor
# A copy of the state may take more than 2 % of such short steps, so not every step has a state.
run=(train "${light[@]}" --steps 45 --ckpt-every 40)
rank_pids() { q "SELECT pid FROM ranks WHERE run='$1' AND attempt = (SELECT max(attempt) FROM ranks WHERE run='$1')"; }
attempts() { q "SELECT count(*) FROM attempts WHERE run='$1'"; }

seed=${SEED:-$RANDOM}
echo "seed $seed (SEED=$seed repeats the choice of ranks and steps)"
RANDOM=$seed

start() { # NAME STEP WORDS...: starts a run and waits for STEP
    local name=$1 step=$2; shift 2
    b "${run[@]}" --name "$name" "$@" >"$name.out" 2>"$name.err" &
    job=$!
    started+=($job)
    wait_step "$name" "$step"
}
kill_one() { # NAME: kills a random rank of the run and waits until the next attempt has begun
    local before pids i
    before=$(attempts "$1")
    mapfile -t pids < <(rank_pids "$1")
    kill -9 "${pids[RANDOM % ${#pids[@]}]}"
    for i in $(seq 400); do
        [ "$(attempts "$1")" -gt "$before" ] && return
        sleep 0.05
    done
    fault "$1 is not started again"
}
same() {                                        # NAME CALM
    wait "$job"
    local got=$?
    [ $got -eq 0 ] || { fault "exit $got of $1"; tail -n 5 "$1.err"; }
    losses "$1" | cmp -s - "$2" || { fault "run $1 has other losses"; losses "$1" | diff - "$2" | head -n 4; }
    [ "$(q "SELECT count(*), count(DISTINCT step) FROM steps WHERE run='$1'")" = 45,45 ] || fault "steps of $1 are missing or double"
}

layout() { # NAME WORDS...: an undisturbed run, and a run with two kills before its first checkpoint on disk
    local name=$1; shift
    BITRAIN_TEST_DELAY='' ok "${run[@]}" --name "$name-calm" --set ckpt.memory=off "$@"
    losses "$name-calm" >"$name.txt"
    start "$name" $((12 + RANDOM % 6)) "$@" # on a loaded machine only every tenth step may have a state
    kill_one "$name"
    wait_step "$name" $((27 + RANDOM % 8))
    kill_one "$name"
    same "$name" "$name.txt"
    [ "$(attempts "$name")" = 3 ] || fault "$name has $(attempts "$name") attempts, not 3"
    # There is no checkpoint on disk, so the run continued from memory, within a few steps.
    [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND kind='resumed' AND title LIKE '%from memory%'")" = 2 ] ||
        fault "$name did not go on from memory: $(q "SELECT title FROM events WHERE run='$name' AND kind IN ('resumed', 'started')" | tr '\n' ';')"
    [ "$(q "SELECT count(*) FROM attempts WHERE run='$name' AND attempt > 0 AND from_step = 0")" = 0 ] || fault "$name began anew"
    q "SELECT key || ' ' || value FROM facts WHERE run='$name' AND key='memory_states'" | grep -q "memory_states two, [0-9.]* [KMG]iB on rank 0" || fault "$name does not print that states are kept"
}
layout dp
layout zero --zero 3
layout tensor --tp 2
layout pipe --pp 2 --micro-batch 4

# Two simulated hosts: the first host keeps the whole state and sends it to the other host's ranks; in layouts where it
# has only a part, each host keeps its part.
export BITRAIN_TEST_HOSTS=1
layout hosts
layout apart --zero 3
unset BITRAIN_TEST_HOSTS

# A hot spare waits and takes over: twice, from the state in memory. A killed spare is replaced.
ok train "${tiny[@]}" --hot-spare --dry-run --name plan
says "at most, beside them"
printf 'localhost slots=2\n' >hosts.txt
code 2 train "${tiny[@]}" --hot-spare --hosts hosts.txt --name plan
says "only for a run on one host"
waits() { # prints the number of spares that have waited so far
    local i
    for i in $(seq 400); do
        [ "$(q "SELECT count(*) FROM events WHERE run='spare' AND kind='spare' AND title LIKE 'a hot spare waits: 2 ranks,%'")" -ge "$1" ] && break
        sleep 0.05
    done
    [ $i -lt 400 ] || fault "no hot spare waits: $(q "SELECT kind, title FROM events WHERE run='spare'")"
}
start spare 4 --hot-spare
ok ctl spare pause # keeps the run from ending
waits 1
kill -9 $(pgrep -f -- "bitrain rank .*--spare $TMPDIR" | tail -n 1)
waits 2
ok ctl spare resume
kill_one spare
wait_step spare 20
ok ctl spare pause
waits 3
ok ctl spare resume
kill_one spare
same spare dp.txt
[ "$(q "SELECT count(*) FROM events WHERE run='spare' AND kind='spare' AND title LIKE 'attempt _ is that of the hot spare'")" = 2 ] ||
    fault "the spare did not go on: $(q "SELECT kind, title FROM events WHERE run='spare'")"
[ "$(q "SELECT count(*) FROM events WHERE run='spare' AND kind='resumed' AND title LIKE '%from memory%'")" = 2 ] || fault "the spare did not begin from memory"

# States are switched off: the run continues from the disk, here from the beginning.
start off 8 --set ckpt.memory=off
kill_one off
same off dp.txt
[ "$(q "SELECT group_concat(from_step, ' ') FROM attempts WHERE run='off'")" = "0 0" ] || fault "without states in memory the run continues from step $(q "SELECT max(from_step) FROM attempts WHERE run='off'")"

# A state that is damaged after it was found costs an attempt, not the run.
start hurt 8
folder=$(grep -lsF "$TMPDIR/" /dev/shm/bitrain-"$(id -u)"-*/lock "$TMPDIR"/bitrain-*/lock | head -n 1)
if [ -d "${folder%/lock}/states" ]; then
    mapfile -t pids < <(rank_pids hurt)
    kill -STOP "${pids[@]}"
    for f in "${folder%/lock}"/states/state-*; do # the last byte of the data, which no head and no table covers
        printf '\377\377\377' | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") - 67)) conv=notrunc status=none
    done
    kill -9 "${pids[@]}"
    same hurt dp.txt
    q "SELECT title FROM events WHERE run='hurt' AND kind='failure'" | grep -q "the state in memory .* is damaged" || fault "no message states that the state in memory is damaged"
    [ "$(q "SELECT max(from_step) FROM attempts WHERE run='hurt' AND attempt = (SELECT max(attempt) FROM attempts WHERE run='hurt')")" = 0 ] || fault "a damaged state was used"
else
    kill_one hurt
    same hurt dp.txt
fi
finish
