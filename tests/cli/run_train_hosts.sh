#!/usr/bin/env bash
# ctest: timeout=180
# --hosts: two hosts made of network namespaces (own network, own host name, a script in place of ssh): a run across
# both has the same losses as on one host; a stopped far rank is reported; a far host's daemon is killed, and the run
# continues; files of its ranks in /dev/shm are removed. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
hosts 1 1
run=(train "${slow[@]}" --steps 40 --ckpt-every 10)

ok "${run[@]}" --name near
losses near >near.txt

timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name far >out 2>err
got=$?
[ $got -eq 0 ] || { fault "exit $got of a run on two hosts"; tail -n 5 err; cat runs/far/log.txt 2>/dev/null | tail -n 10; }
[ "$(q "SELECT group_concat(host) FROM (SELECT host FROM ranks WHERE run='far' ORDER BY rank)")" = "${hn}1,${hn}2" ] || fault "hosts: $(q "SELECT rank, host FROM ranks WHERE run='far'")"
losses far | cmp -s - near.txt || fault "two hosts give other losses than one"

# Hosts by their full names.
named_hosts 1 1
timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name named >out 2>err || { fault "exit $? of a run on hosts with whole names"; tail -n 3 err; }
losses named | cmp -s - near.txt || fault "hosts by name give other losses"
hosts 1 1

# A far rank is stopped: it is invisible from this host, but all other ranks wait for it.
far_rank() { for p in $(ip netns pids ${ns}2); do [ "$(cat /proc/$p/comm 2>/dev/null)" = bitrain ] && echo $p; done; }
"${here[@]}" "$BITRAIN" "${run[@]}" --steps 200 --hosts hosts.txt --name still >s.out 2>s.err &
job=$!
started+=($job)
if wait_step still 20; then
    p=$(far_rank | tail -n 1)
    kill -STOP $p
    for i in $(seq 200); do
        [ "$(q "SELECT count(*) FROM events WHERE run='still' AND kind='slow'")" -gt 0 ] && break
        sleep 0.1
    done
    kill -CONT $p
    q "SELECT rank, title FROM events WHERE run='still' AND kind='slow'" | grep -qE '^1,rank 1 is not (in the exchange|in a checkpoint|recording measurements) of step [0-9]+, where the other ranks wait since .* \(host '${hn}2'\)' ||
        fault "a far rank that is stopped: $(q "SELECT rank, title FROM events WHERE run='still'")"
    wait $job || fault "exit $? after a rank of another host stood still"
fi

# The death of the far daemon is detected at once, and the run restarts.
"${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name lost >l.out 2>l.err &
job=$!
started+=($job)
if wait_step lost 15; then
    for p in $(ip netns pids ${ns}2); do grep -qx 'orted\|prted' /proc/$p/comm 2>/dev/null && kill -9 "$p"; done
    wait $job
    got=$?
    [ $got -eq 0 ] || { fault "exit $got after a lost host"; tail -n 5 l.err; }
    losses lost | cmp -s - near.txt || fault "losses differ after a lost host"
    [ "$(q "SELECT count(*) FROM attempts WHERE run='lost'")" = 2 ] || fault "a lost host is not a restart"
    q "SELECT title FROM events WHERE run='lost' AND kind='failure'" | grep -q "node .*was lost" || fault "$(q "SELECT title FROM events WHERE run='lost' AND kind='failure'")"
fi

# Rank 0 is on another host: the error contains the remedy.
printf '10.77.%d.2 slots=2\n' $id >wrong.txt
timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts wrong.txt --name wrong >out 2>err
got=$?
[ $got -eq 1 ] || [ $got -eq 0 ] || fault "exit $got with rank 0 elsewhere"
# The hosts share one file system, so the socket exists here; on real hosts it does not.
no_segments
finish
