#!/usr/bin/env bash
# ctest: ranks=4 timeout=180 labels=mpi
# --hosts with data parallelism: two ranks on each of two hosts. The losses are those of one host, in every ZeRO stage;
# a gradient is sent between the hosts once per host instead of once per rank, and --codec bf16 halves these bytes. The
# test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
run=(train "${tiny[@]}" --ranks 4 --steps 12 --set ckpt.final=false --set train.stats_every=5 --set train.bucket_bytes=4096)

far() {
    local name=$1; shift
    timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" "$@" --hosts hosts.txt --name "$name" >out 2>err || { fault "exit $? of $name"; tail -n 5 err; }
}
# Bytes of a step from host to host, and bytes of a step between all ranks, of the newest sample.
crossing() { q "SELECT sum(bytes_wire / steps) FROM comm_pairs WHERE run='$1' AND (rank < 2) <> (peer < 2) AND step = (SELECT max(step) FROM comm_pairs WHERE run='$1')"; }
all() { q "SELECT sum(bytes_wire / steps) FROM comm_pairs WHERE run='$1' AND step = (SELECT max(step) FROM comm_pairs WHERE run='$1')"; }
# ratio A B WANT: requires A / B = WANT within 1 %
ratio() { awk -v a="$1" -v b="$2" -v want="$3" 'BEGIN { exit !(b > 0 && a / b > want * 0.99 && a / b < want * 1.01) }'; }

hosts 2 2
for zero in 0 1 3; do
    far "far$zero" --zero $zero
    ok "${run[@]}" --zero $zero --name "near$zero"
    [ "$(losses "far$zero" | wc -l)" = 12 ] || fault "far$zero has not recorded its steps"
    [ "$(losses "far$zero")" = "$(losses "near$zero")" ] || fault "--zero $zero: two hosts give other losses than one"
done
ratio "$(crossing far0)" "$(crossing near0)" 0.5 || fault "$(crossing far0) bytes a step cross, not half of $(crossing near0)"
ratio "$(all far0)" "$(all near0)" 1 || fault "$(all far0) bytes a step between ranks, not $(all near0)"

far half --codec bf16 --set train.distributions=0 # only gradients are sent
ratio "$(crossing half)" "$(crossing far0)" 0.5 || fault "$(crossing half) bytes a step cross with bf16, not half of $(crossing far0)"
[ "$(q "SELECT value FROM facts WHERE run='half' AND key='codec'")" = bf16 ] || fault "the codec is not among the run's facts"
# The run's own counters give the same ratio: a third of the sent bytes crosses.
ratio "$(q "SELECT 1.0 * sum(bytes_logical - bytes_wire) FROM comm_ops WHERE run='half' AND axis='dp'")" \
    "$(q "SELECT 1.0 * sum(bytes_logical) / 6 FROM comm_ops WHERE run='half' AND axis='dp'")" 1 || fault "logical and wire bytes do not differ by what bf16 saves"
no_segments
finish
