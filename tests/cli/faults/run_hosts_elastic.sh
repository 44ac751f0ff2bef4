#!/usr/bin/env bash
# ctest: timeout=240
# --elastic on two hosts (network namespaces): the link to one is cut, and the run continues without it; the host
# responds again and joins after the next checkpoint; a shutdown notice makes it leave, and the run continues without
# it; the losses equal those of one undisturbed rank. A link that is cut for 2 s causes no restart. If the run has no
# --elastic, it waits for its host. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
hosts 1 1
run=(train "${light[@]}" --steps 20000 --ckpt-every 10 --set train.reproducible=true --set train.unit=2)
down() { ip -n ${ns}2 link set v2$$ down; }
up() { ip -n ${ns}2 link set v2$$ up; }
count() { q "SELECT count(*) FROM $1" 2>/dev/null; }
# until_row SECONDS FROM-AND-WHERE: waits until a row exists
until_row() {
    local i
    for i in $(seq $((10 * $1))); do [ "$(count "$2")" -gt 0 ] 2>/dev/null && return 0; sleep 0.1; done
    fault "never: $2"
    q "SELECT kind, title FROM events ORDER BY time_s" | tail -n 8
    return 1
}
# The losses of a run that was stopped are the beginning of calm.txt.
same_as_calm() {
    losses $1 >this.txt
    local n m
    n=$(wc -l <this.txt) m=$(wc -l <calm.txt)
    [ $n -gt 10 ] || fault "run $1 did $n steps"
    cmp -s <(head -n $((n < m ? n : m)) this.txt) <(head -n $((n < m ? n : m)) calm.txt) || fault "run $1 has other losses than one rank"
}
ok "${run[@]}" --ranks 1 --stop-after 400 --name calm
losses calm >calm.txt
export BITRAIN_TEST_DELAY=8 # a delay makes steps longer without using the processor

"${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --elastic 1:2 --name away >a.out 2>a.err &
job=$!
started+=($job)
if wait_step away 15; then
    down
    t0=$(date +%s.%N)
    if until_row 30 "steps WHERE run='away' AND attempt > 0"; then
        echo "from the lost link to going on: $(echo "$(date +%s.%N) - $t0" | bc) s (limit on a quiet machine: 5)"
        q "SELECT title FROM events WHERE run='away' AND kind='failure'" | grep -q "host 10.77.$id.2 has not answered for" || fault "$(q "SELECT title FROM events WHERE run='away' AND kind='failure'")"
        [ "$(count "events WHERE run='away' AND kind='host_lost' AND title LIKE 'host 10.77.$id.2 is set aside%'")" = 1 ] || fault "the host is not named"
        q "SELECT title FROM events WHERE run='away' AND kind='resumed' ORDER BY time_s LIMIT 1" | grep -q "from memory on 1 rank$" || fault "the state was not in memory: $(q "SELECT title FROM events WHERE run='away' AND kind='resumed'")"
        [ "$(q "SELECT world_size FROM attempts WHERE run='away' AND attempt=1")" = 1 ] || fault "it did not go on with one rank"
    fi
    up
    until_row 30 "events WHERE run='away' AND kind='host_back'"
    until_row 30 "attempts WHERE run='away' AND attempt > 1 AND world_size = 2"
    until_row 30 "steps WHERE run='away' AND attempt > 1"
    # A shutdown notice to the far host's rank and its daemon (not to the ssh session): the ranks save and exit, and the
    # run continues without that host.
    for p in $(ip netns pids ${ns}2); do grep -qx 'bitrain\|orted\|prted' /proc/$p/comm && kill -TERM $p; done
    until_row 30 "steps WHERE run='away' AND attempt > 2"
    [ "$(count "events WHERE run='away' AND kind='rank_leaves' AND rank=1")" = 1 ] || fault "no message states which rank had to leave"
    [ "$(count "events WHERE run='away' AND kind='host_lost' AND title LIKE 'host 10.77.$id.2 is set aside for 150 s: a signal ended%'")" = 1 ] ||
        fault "after a notice: $(q "SELECT kind, title FROM events WHERE run='away' AND kind IN ('host_lost', 'failure')")"
    [ "$(q "SELECT a.from_step - 1 - max(s.step) FROM attempts a JOIN steps s ON s.run=a.run AND s.attempt=2 WHERE a.run='away' AND a.attempt=3")" = 0 ] ||
        fault "steps are done again after a notice"
    ok ctl away stop
    wait $job || { fault "exit $? of a run that lost a host and took it back"; tail -n 5 a.err; }
    same_as_calm away
    [ "$(count "events WHERE run='away' AND kind='resized'")" = 3 ] || fault "$(q "SELECT kind, title FROM events WHERE run='away' AND kind<>'checkpoint'")"
fi

# A link that is interrupted for 2 s causes no restart.
"${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --elastic 1:2 --name blink >b.out 2>b.err &
job=$!
started+=($job)
if wait_step blink 15; then
    step=$(q "SELECT max(step) FROM steps WHERE run='blink'")
    down; sleep 1.9; up
    until_row 40 "steps WHERE run='blink' AND step > $step + 20"
    ok ctl blink stop
    wait $job || fault "exit $? after a link was gone for 2 s"
    [ "$(count "attempts WHERE run='blink'")" = 1 ] || fault "a link gone for 2 s cost a restart: $(q "SELECT title FROM events WHERE run='blink'")"
    same_as_calm blink
fi

# A run that is not elastic waits for its host.
"${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name waits >w.out 2>w.err &
job=$!
started+=($job)
if wait_step waits 15; then
    down
    until_row 30 "events WHERE run='waits' AND kind='failure' AND title LIKE 'node 10.77.$id.2 was lost%'"
    sleep 2
    up
    until_row 60 "steps WHERE run='waits' AND attempt > 0"
    ok ctl waits stop
    wait $job || fault "exit $? of a run that waited for its host"
    # The far rank has no state in memory, so the first host sends it.
    q "SELECT title FROM events WHERE run='waits' AND kind='resumed' ORDER BY time_s LIMIT 1" | grep -q "from memory on 2 ranks$" || fault "the state was not copied from the other host's memory"
    [ "$(count "attempts WHERE run='waits' AND world_size <> 2")" = 0 ] || fault "it continued with other ranks"
    same_as_calm waits
fi

printf '10.77.%d.1 slots=1\n10.77.%d.2\n' $id $id >loose.txt
timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts loose.txt --elastic 1:2 --name loose >out 2>err
[ $? -eq 2 ] || fault "a host without slots"
says "has no slots=N"
no_segments
finish
