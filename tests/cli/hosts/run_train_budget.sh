#!/usr/bin/env bash
# --comm-budget between two hosts: a network of 20 Mbit/s holds steps up, so gradients travel as int8 after the first window, which the run's
# events and metrics tell; a wide budget decides nothing. Needs root.
# soak: yes
# timeout: 120
# labels: mpi net
# mpi: 2
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
command -v tc >/dev/null || skip "no 'tc' (iproute2)"
run=(train "${slow[@]}" --steps 12 --set ckpt.final=false --set train.stats_every=5 --hosts hosts.txt)

far() {
    local name=$1; shift
    timeout 100 "${here[@]}" "$BITRAIN" "${run[@]}" "$@" --name "$name" >out 2>err || { fault "exit $? of $name"; tail -n 5 err; }
}
hosts 1 1
far wide --comm-budget 1000Gbit
[ "$(q "SELECT count(*) FROM events WHERE run='wide' AND kind='codec'")" = 0 ] || fault "a budget that is wide enough has a decision"

for k in 1 2; do ip netns exec $ns$k tc qdisc add dev v$k$$ root tbf rate 20mbit burst 32kb latency 50ms || skip "no tbf here"; done
far narrow --comm-budget auto
[ "$(q "SELECT count(*) FROM events WHERE run='narrow' AND kind='codec' AND title LIKE 'exchanges hold steps up%gradients travel as int8%'")" = 1 ] ||
    fault "20 Mbit/s: no decision for int8 ($(q "SELECT title FROM events WHERE run='narrow'"))"
[ "$(losses narrow | head -n 8)" = "$(losses wide | head -n 8)" ] || fault "the first window does not travel as fp32"
before=$(q "SELECT bytes_wire FROM steps WHERE run='narrow' AND step=2")
after=$(q "SELECT bytes_wire FROM steps WHERE run='narrow' AND step=10")
awk -v a="$before" -v b="$after" 'BEGIN { exit !(b > 0 && a / b > 3.3) }' || fault "$before bytes a step before, $after after"
ok query --lens codec narrow
says 8.125
no_segments
finish
