#!/usr/bin/env bash
# ctest: ranks=2 timeout=200 labels=mpi,net
# States in memory are copied to another host over a slow link (20 Mbit/s by tc's tbf): the measured link decides when
# the first copy begins, so a short run copies nothing; over a fast link states are copied at once. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
command -v tc >/dev/null || skip "no 'tc' (iproute2)"
hosts 1 1
shape=(train "${tiny[@]}" --zero 3 --hosts hosts.txt --steps 8 --ckpt-every 1000 --set ckpt.final=false)
bytes() { q "SELECT sum(bytes_wire) FROM steps WHERE run='$1' AND step > 0"; }
run() { timeout 80 "${here[@]}" "$BITRAIN" "${shape[@]}" "${@:2}" --name "$1" >out 2>err || { fault "exit $? of $1"; tail -n 4 err; }; }

run none --set ckpt.memory=off
# The first copy follows the measurement of the link, which may need more than eight of these steps.
run fast --steps 200
[ "$(q "SELECT sum(bytes_wire) * 7.0 / 199 > $(bytes none) FROM steps WHERE run='fast' AND step > 0")" = 1 ] ||
    fault "no state went to the other host over a fast link: $(bytes fast) bytes in 199 steps, $(bytes none) in 7 without"
for k in 1 2; do ip netns exec $ns$k tc qdisc add dev v$k$$ root tbf rate 20mbit burst 32kb latency 400ms || skip "no tbf here"; done
run late
[ "$(bytes late)" = "$(bytes none)" ] || fault "a state went to the other host in a run of 8 steps: $(bytes late) bytes, $(bytes none) without"
finish
