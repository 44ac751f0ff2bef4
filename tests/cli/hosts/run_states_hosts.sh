#!/usr/bin/env bash
# ctest: ranks=4 timeout=200 labels=mpi
# States in memory of a run on two hosts, each of which holds a part that the other lacks (ZeRO-3, pipeline stages): a
# rank is killed on the first and on the second host, and the run continues from memory; the second host is lost, and
# with --elastic the run continues from the copies on the first. The losses equal those of an undisturbed run, the
# memory equals --dry-run, and no files remain on any host. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
FAR_SHM=1
. "$BT_SRC/tests/cli/hosts_lib.sh"
hosts 2 2
export BITRAIN_TEST_DELAY=4 # steps take time without using the processor, so that they can be observed
run=(train "${tiny[@]}" --ranks 4 --steps 40 --ckpt-every 1000 --set ckpt.final=false)
# prints the process id of a rank in the newest attempt
pid_of() { q "SELECT pid FROM ranks WHERE run='$1' AND rank=$2 AND attempt=(SELECT max(attempt) FROM attempts WHERE run='$1')"; }
resumed() { q "SELECT count(*) FROM events WHERE run='$1' AND kind='resumed' AND title LIKE '%from memory on $2 ranks%'"; }
until_attempt() { # NAME N: waits until attempt N has made a step (30 s)
    local i
    for i in $(seq 300); do [ "$(q "SELECT count(*) FROM steps WHERE run='$1' AND attempt=$2")" -gt 0 ] 2>/dev/null && return 0; sleep 0.1; done
    fault "$1 does not go on"
    q "SELECT kind, title FROM events WHERE run='$1' ORDER BY time_s" | tail -n 6
    return 1
}
begin() {                                        # NAME WORDS...
    local name=$1; shift
    timeout 100 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt "$@" --name "$name" >"$name.out" 2>"$name.err" &
    job=$!
    started+=($job)
}
end_of() {                                       # NAME CALM
    wait $job || { fault "exit $? of $1"; tail -n 5 "$1.err"; }
    [ "$(losses "$1")" = "$(losses "$2")" ] || fault "$1 has other losses than $2"
}

# killed_on NAME WORDS...: kills a rank of each host before a checkpoint is on the disk
killed_on() {
    local name=$1; shift
    BITRAIN_TEST_DELAY='' ok "${run[@]}" --set ckpt.memory=off "$@" --name "$name-calm"
    BITRAIN_TEST_DELAY=60 begin "$name" "$@" # the kills happen before its last step, on any machine
    wait_step "$name" 10 && kill -9 "$(pid_of "$name" 3)"
    until_attempt "$name" 1 && wait_step "$name" 20 && kill -9 "$(pid_of "$name" 1)"
    end_of "$name" "$name-calm"
    [ "$(resumed "$name" 4)" = 2 ] || fault "$name continued from memory $(resumed "$name" 4) times: $(q "SELECT title FROM events WHERE run='$name' AND kind IN ('resumed', 'failure')")"
    q "SELECT value FROM facts WHERE run='$name' AND key='memory_states'" | grep -q "part copied to the next host" || fault "the copies are not among the facts"
    [ -z "$(ls "$far_shm" | grep bitrain)" ] || fault "left on the far host: $(ls "$far_shm")"
}
killed_on zero --zero 3
killed_on stages --pp 2 --tp 2 --set model.layers=2

# The plan states the memory of the first host's ranks, which also hold the second host's parts.
ok "${run[@]}" --zero 3 --hosts hosts.txt --dry-run --json
planned=$(tr ',{' '\n\n' <out | sed -n 's/^"memory states":\([0-9]*\).*/\1/p' | head -n 1)
kept=$(q "SELECT value FROM facts WHERE run='zero' AND key='memory_states'" | awk '{print $2 * ($3 == "GiB" ? 2 ^ 30 : $3 == "MiB" ? 2 ^ 20 : 1024)}')
awk -v p="$planned" -v k="$kept" 'BEGIN { exit !(k > 0 && p >= 0.98 * k && p <= 2 * k) }' || fault "--dry-run prints $planned bytes of states, rank 0 keeps $kept"   # tables are a large share of so small a model

# The second host is lost: the first has copies of its parts.
run=(train "${tiny[@]}" --ranks 4 --steps 20000 --ckpt-every 20000 --set train.reproducible=true --set train.unit=2 --zero 3)
BITRAIN_TEST_DELAY='' ok "${run[@]}" --stop-after 80 --name lost-calm
begin lost --elastic 2:4
if wait_step lost 15; then
    ip -n ${ns}2 link set v2$$ down
    if until_attempt lost 1 && wait_step lost 70; then
        [ "$(resumed lost 2)" = 1 ] || fault "not from the copies: $(q "SELECT kind, title FROM events WHERE run='lost'")"
    fi
    ip -n ${ns}2 link set v2$$ up
    ok ctl lost stop
    wait $job || { fault "exit $? of a run that lost a host"; tail -n 5 lost.err; }
    losses lost >this.txt
    losses lost-calm >calm.txt
    n=$(cat this.txt calm.txt | wc -l) m=$(wc -l <calm.txt); n=$((n - m < m ? n - m : m))
    [ "$n" -gt 50 ] && cmp -s <(head -n $n this.txt) <(head -n $n calm.txt) || fault "the run that lost a host has other losses ($n steps)"
fi
no_segments
finish
