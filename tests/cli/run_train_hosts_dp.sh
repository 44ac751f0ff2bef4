#!/usr/bin/env bash
# ctest: ranks=4 timeout=180 labels=mpi
# --hosts with data parallelism: two ranks on each of two hosts. The losses are those of one host, in every ZeRO stage; between the hosts a
# gradient crosses once a host instead of once a rank, and --codec bf16 halves that. Needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
run=(train "${tiny[@]}" --ranks 4 --steps 12 --set ckpt.final=false --set train.stats_every=5 --set train.bucket_bytes=4096)

far() {
    local name=$1; shift
    timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" "$@" --hosts hosts.txt --name "$name" >out 2>err || { fault "exit $? of $name"; tail -n 5 err; }
}
# bytes of a step from host to host, and of a step between all ranks, of the newest sample
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

far half --codec bf16 --set train.distributions=0    # gradients alone
ratio "$(crossing half)" "$(crossing far0)" 0.5 || fault "$(crossing half) bytes a step cross with bf16, not half of $(crossing far0)"
[ "$(q "SELECT value FROM facts WHERE run='half' AND key='codec'")" = bf16 ] || fault "the codec is not among the run's facts"
# the same ratio by the run's own counters: a third of the sent bytes crosses
ratio "$(q "SELECT 1.0 * sum(bytes_logical - bytes_wire) FROM comm_ops WHERE run='half' AND axis='dp'")" \
    "$(q "SELECT 1.0 * sum(bytes_logical) / 6 FROM comm_ops WHERE run='half' AND axis='dp'")" 1 || fault "logical and wire bytes do not differ by what bf16 saves"
no_segments
finish
