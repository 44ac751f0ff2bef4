#!/usr/bin/env bash
# --hosts: two hosts made of network namespaces (own network, own host name, a stand-in for ssh): a run across both, the same
# losses as on one host; a far rank that stands still is named; a far host's daemon killed, and the run goes on; what its ranks left
# in /dev/shm is removed. Needs root.
# timeout: 180
. "$BT_SRC/tests/cli/train_lib.sh"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no 'ip' (iproute2)"

id=$((RANDOM % 200 + 20))
ns=btt$$
cleanup() {
    local k p
    for k in 1 2; do
        for p in $(ip netns pids $ns$k 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
        ip netns del $ns$k 2>/dev/null
    done
    end
}
trap cleanup EXIT
for k in 1 2; do ip netns add $ns$k 2>/dev/null || skip "cannot make a network namespace here"; done
ip netns exec ${ns}1 true 2>err || skip "cannot enter a network namespace here ($(tail -n 1 err))"
ip link add v1$$ netns ${ns}1 type veth peer name v2$$ netns ${ns}2 2>/dev/null || skip "cannot make a veth pair here"
for k in 1 2; do
    ip -n $ns$k addr add 10.77.$id.$k/24 dev v$k$$
    ip -n $ns$k link set v$k$$ up
    ip -n $ns$k link set lo up
done
mkdir bin
cat >bin/ssh <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do case \$1 in -x|-n|-q|-f) shift;; *) shift 2;; esac; done
host=\$1; shift
exec ip netns exec "$ns\${host##*.}" unshare -um sh -c "hostname node\${host##*.}; mount -t tmpfs none '$TMPDIR'; \$*"
END
chmod +x bin/ssh
printf '10.77.%d.1 slots=1\n10.77.%d.2 slots=1\n' $id $id >hosts.txt
export OMPI_MCA_plm_rsh_agent="$tmp/bin/ssh"
unset OMPI_MCA_rmaps_base_oversubscribe
here=(ip netns exec ${ns}1 unshare -u sh -c 'hostname node1; exec "$@"' sh)
run=(train "${slow[@]}" --steps 40 --ckpt-every 10)

ok "${run[@]}" --name near
losses near >near.txt

timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name far >out 2>err
got=$?
[ $got -eq 0 ] || { fault "exit $got of a run on two hosts"; tail -n 5 err; cat runs/far/log.txt 2>/dev/null | tail -n 10; }
[ "$(q "SELECT group_concat(host) FROM (SELECT host FROM ranks WHERE run='far' ORDER BY rank)")" = node1,node2 ] || fault "hosts: $(q "SELECT rank, host FROM ranks WHERE run='far'")"
losses far | cmp -s - near.txt || fault "two hosts give other losses than one"

# a far rank stands still: nobody of this host sees it, but all wait for it
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
    q "SELECT rank, title FROM events WHERE run='still' AND kind='slow'" | grep -qE '^1,rank 1 is not in (the exchange|a checkpoint) of step [0-9]+, where the others wait since .* \(host node2\)' ||
        fault "a far rank that stands still: $(q "SELECT rank, title FROM events WHERE run='still'")"
    wait $job || fault "exit $? after a rank of another host stood still"
fi

# the far daemon dies: noticed at once, restarted
"${here[@]}" "$BITRAIN" "${run[@]}" --hosts hosts.txt --name lost >l.out 2>l.err &
job=$!
started+=($job)
if wait_step lost 15; then
    for p in $(ip netns pids ${ns}2); do [ "$(cat /proc/$p/comm 2>/dev/null)" = orted ] && kill -9 "$p"; done
    wait $job
    got=$?
    [ $got -eq 0 ] || { fault "exit $got after a lost host"; tail -n 5 l.err; }
    losses lost | cmp -s - near.txt || fault "losses differ after a lost host"
    [ "$(q "SELECT count(*) FROM attempts WHERE run='lost'")" = 2 ] || fault "a lost host is not a restart"
    q "SELECT title FROM events WHERE run='lost' AND kind='failure'" | grep -q "node was lost\|signal" || fault "$(q "SELECT title FROM events WHERE run='lost' AND kind='failure'")"
fi

# rank 0 elsewhere: told how to put it right
printf '10.77.%d.2 slots=2\n' $id >wrong.txt
timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" --hosts wrong.txt --name wrong >out 2>err
got=$?
[ $got -eq 1 ] || [ $got -eq 0 ] || fault "exit $got with rank 0 elsewhere"
# one file system: the socket is there all the same; on real hosts it is not
left() { ls /dev/shm/ | grep "^vader_segment.node[12]\."; }
for i in $(seq 150); do [ -z "$(left)" ] && break; sleep 0.1; done
[ -z "$(left)" ] || { fault "left on a far host: $(left)"; rm -f /dev/shm/vader_segment.node[12].*; }
finish
