#!/usr/bin/env bash
# ctest: ranks=2 timeout=300 labels=mpi,net soak
# --comm-budget between two hosts: a network of 20 Mbit/s delays steps, so gradients are sent as int8 after the first
# step, which the run's events and metrics show; a wide budget has no effect, and neither has other load on the
# processors; the codec changes when the network becomes slow and fast again during a run. The test needs root.
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
[ "$(q "SELECT count(*) FROM events WHERE run='narrow' AND kind='codec' AND title LIKE 'exchanges delay steps by%gradients travel as int8%'")" = 1 ] ||
    fault "20 Mbit/s: no decision for int8 ($(q "SELECT title FROM events WHERE run='narrow'"))"
# Only the first step is sent as fp32.
first=$(q "SELECT min(step) FROM steps WHERE run='narrow'")
[ "$(q "SELECT step FROM events WHERE run='narrow' AND kind='codec'")" = "$first" ] ||
    fault "decided after another step than the first: $(q "SELECT step, title FROM events WHERE run='narrow' AND kind='codec'")"
[ "$(losses narrow | head -n 2)" = "$(losses wide | head -n 2)" ] || fault "the first step does not travel as fp32"
before=$(q "SELECT bytes_wire FROM steps WHERE run='narrow' AND step=$first")
after=$(q "SELECT bytes_wire FROM steps WHERE run='narrow' AND step=10")
awk -v a="$before" -v b="$after" 'BEGIN { exit !(b > 0 && a / b > 3.3) }' || fault "$before bytes a step before, $after after"
ok query --lens codec narrow
says 8.125

# The link has no limit and the processors have other load: the codec is fp32 to the end, although steps are delayed.
for k in 1 2; do ip netns exec $ns$k tc qdisc del dev v$k$$ root; done
for k in 1 2 3 4; do while :; do :; done & started+=($!); done
far loaded --steps 60 --comm-budget auto
for k in 1 2 3 4; do kill "${started[-$k]}"; done
[ "$(q "SELECT count(*) FROM events WHERE run='loaded' AND kind='codec' AND title LIKE '%gradients travel as%'")" = 0 ] ||
    fault "other work on the processors: $(q "SELECT title FROM events WHERE run='loaded' AND kind='codec'")"

# The limit of the link begins and ends during the run.
until_event() { local i; for i in $(seq 600); do [ "$(q "SELECT count(*) FROM events WHERE run='follows' AND title LIKE '%gradients travel as $1 %'")" -gt 0 ] && return; sleep 0.1; done; fault "no '$1': $(q "SELECT step, title FROM events WHERE run='follows' AND kind='codec'")"; }
"${here[@]}" "$BITRAIN" "${run[@]}" --steps 20000 --comm-budget auto --name follows >out 2>err &
job=$!
started+=($job)
wait_step follows 12
for k in 1 2; do ip netns exec $ns$k tc qdisc add dev v$k$$ root tbf rate 20mbit burst 32kb latency 50ms; done
until_event int8
for k in 1 2; do ip netns exec $ns$k tc qdisc del dev v$k$$ root; done
until_event fp32
ok ctl follows stop
wait $job
q "SELECT step, title FROM events WHERE run='follows' AND kind='codec'"
no_segments
finish
