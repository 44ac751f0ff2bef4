#!/usr/bin/env bash
# ctest: timeout=180 labels=mpi
# --hosts with --tp: tensor-parallel ranks are neighbours on one host, replicas and shards span hosts; if that is
# impossible, the run reports it. With any placement the losses have the bits of the same layout on one host, and those
# of reproducible training the bits of one rank. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
run=(train "${tiny[@]}" --precision fp32 --steps 12 --set ckpt.final=false)

# far NAME WORDS...: runs on both hosts, then on one, and compares the losses; the run NAME-near remains in the database
far() {
    local name=$1; shift
    timeout 60 "${here[@]}" "$BITRAIN" "${run[@]}" "$@" --hosts hosts.txt --name "$name" >out 2>err || { fault "exit $? of $name"; tail -n 5 err; }
    ok "${run[@]}" "$@" --name "$name-near"
    [ "$(losses "$name" | wc -l)" = 12 ] || fault "$name has not recorded its steps"
    [ "$(losses "$name")" = "$(losses "$name-near")" ] || fault "$name: two hosts give other losses than one"
}
apart() { q "SELECT count(*) FROM events WHERE run='$1' AND title LIKE '%tensor-parallel groups span several hosts%'"; }
places() { q "SELECT group_concat(substr(host, -1) || dp_shard || tp, ' ') FROM (SELECT * FROM ranks WHERE run='$1' ORDER BY rank)"; }

hosts 2 2
far inside --ranks 4 --tp 2
[ "$(places inside)" = "100 101 200 201" ] || fault "ranks are placed at $(places inside)"
far shards --ranks 4 --tp 2 --zero 3 --dp-shard 2 --set train.bucket_bytes=4096
[ "$(places shards)" = "100 101 210 211" ] || fault "ranks are placed at $(places shards)"
[ "$(apart inside)$(apart shards)" = 00 ] || fault "groups within hosts are called apart"

hosts 1 1
far across --ranks 2 --tp 2
far exact --ranks 2 --tp 2 --set train.reproducible=true
[ "$(places across)" = "100 201" ] || fault "ranks are placed at $(places across)"
[ "$(apart across)$(apart across-near)" = 10 ] || fault "a group on two hosts is not reported"
ok "${run[@]}" --ranks 1 --set train.reproducible=true --name one
[ "$(losses one)" = "$(losses exact)" ] || fault "reproducible losses of two hosts are not those of one rank"
no_segments
finish
