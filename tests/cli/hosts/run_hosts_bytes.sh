#!/usr/bin/env bash
# ctest: ranks=8 timeout=180 labels=mpi,net
# Traffic between two hosts of four ranks each: the ranks of a host add their gradients first, so at most 1/3.8 (1/4 and
# message overhead) of the bytes are sent that the same eight ranks otherwise send between the halves, with the same
# losses; a codec divides the bytes again according to its bits. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
run=(train "${tiny[@]}" --ranks 8 --steps 3 --set ckpt.final=false --set train.stats_every=2 --set train.bucket_bytes=65536 --set train.distributions=0
    --set parallel.codec_warmup=0)

far() {
    local name=$1; shift
    timeout 90 "${here[@]}" "$BITRAIN" "${run[@]}" "$@" --hosts hosts.txt --name "$name" >out 2>err || { fault "exit $? of $name"; tail -n 5 err; }
}
# Returns the bytes of a step between ranks 0 to 3 and ranks 4 to 7.
crossing() { q "SELECT sum(bytes_wire / steps) FROM comm_pairs WHERE run='$1' AND (rank < 4) <> (peer < 4) AND step = (SELECT max(step) FROM comm_pairs WHERE run='$1')"; }
# at_most A B PART: A is above 0 and at most PART of B
at_most() { awk -v a="$1" -v b="$2" -v part="$3" 'BEGIN { exit !(b > 0 && a > 0.9 * b * part && a <= b * part) }'; }

hosts 4 4
ok "${run[@]}" --name one
far two
[ "$(losses two | wc -l)" = 3 ] && [ "$(losses two)" = "$(losses one)" ] || fault "two hosts give other losses than one: $(losses two), not $(losses one)"
at_most "$(crossing two)" "$(crossing one)" "$(awk 'BEGIN { print 1 / 3.8 }')" || fault "$(crossing two) bytes a step cross between hosts, of $(crossing one) without host leaders"
far int8 --codec int8
at_most "$(crossing int8)" "$(crossing two)" 0.28 || fault "$(crossing int8) bytes a step cross with int8, of $(crossing two) as fp32"
no_segments
finish
