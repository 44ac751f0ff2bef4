#!/usr/bin/env bash
# ctest: timeout=5400 soak
# The image of cli/launch/Containerfile, built by buildah from Debian's packages, trains: a run as the image's user,
# which continues from its checkpoint in another container, and a hub and an island in separate containers. The image's
# second stage is that of the file; the program is that of this build. FULL=1 also builds the program in the first stage
# (minutes). The test needs root, buildah, debootstrap and a network (not in CI's packages); otherwise it is skipped
# with a reason. STORAGE=FOLDER: storage of buildah with an existing image localhost/debian12.
. "$BT_SRC/tests/cli/train_lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root (chroot, debootstrap)"
command -v buildah >/dev/null || skip "no buildah (apt-get install buildah)"
storage=${STORAGE:-$tmp/storage}
export BUILDAH_ISOLATION=chroot
build() { buildah --root "$storage" --runroot "$tmp/run" --storage-driver vfs "$@"; }
if ! build inspect --type image localhost/debian12 >/dev/null 2>&1; then
    command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
    debootstrap --variant=minbase bookworm root >debootstrap.log 2>&1 || skip "Debian's packages cannot be fetched: $(tail -n 1 debootstrap.log)"
    base=$(build from scratch) && build add -q "$base" root / >/dev/null && build commit -q "$base" localhost/debian12 >/dev/null ||
        fault "no base image"
    rm -rf root
fi
mkdir tree
if [ -n "${FULL:-}" ]; then
    git -C "$BT_SRC" archive HEAD | tar -x -C tree || fault "no sources"
    cp "$BT_SRC/cli/launch/Containerfile" tree/
else
    cpack --config "$BT_BIN/CPackConfig.cmake" -B "$tmp/tree" >package.out 2>&1 || fault "no package: $(tail -n 2 package.out)"
    { printf 'ARG BASE\nFROM scratch AS build\nCOPY *.deb /src/build/\n'; awk '/^FROM/ { n++ } n > 1' "$BT_SRC/cli/launch/Containerfile"; } >tree/Containerfile
fi
image=localhost/bitrain
build bud -q --build-arg BASE=localhost/debian12 -f tree/Containerfile -t $image tree >bud.out 2>bud.err ||
    { fault "the image is not built: $(tail -n 3 bud.err)"; exit 1; }
mkdir -m 777 data
chmod 711 "$tmp"
printf 'the quick brown fox jumps over the lazy dog. %.0s' $(seq 2000) >book.txt
inside() { # WORDS...: does what `podman run IMAGE WORDS` does, each time in a new container
    local c got
    c=$(build from --pull=never "$image") || return 1
    build run -v "$tmp/data:/data" -v "$tmp/book.txt:/book.txt:ro" "$c" -- bitrain "$@"
    got=$?
    build rm "$c" >/dev/null
    return $got
}
model=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 32
       --batch-tokens 256 --data /book.txt --tokenizer bytes --threads 1 --quiet)
for step in 1 2; do
    inside train "${model[@]}" --ranks 2 --steps 20 --name book --continue --stop-after $((step * 10)) >train.out 2>train.err ||
        fault "exit $? of the training in a container: $(tail -n 3 train.err)"
done
[ "$(BITRAIN_STORE=data/bitrain.db q "SELECT state, steps FROM runs WHERE run='book'")" = done,20 ] || fault "the run is $(BITRAIN_STORE=data/bitrain.db q "SELECT state, steps FROM runs")"
[ "$(stat -c %u data/bitrain.db)" = 1000 ] || fault "the image's user is not 1000"
[ "$(BITRAIN_STORE=data/bitrain.db q "SELECT count(*) FROM attempts WHERE run='book'")" = 2 ] || fault "the second container did not go on"

inside hub --keys /data/keys a >/dev/null 2>keys.err || fault "no keys: $(cat keys.err)"
inside hub --listen 127.0.0.1:0 --keys /data/keys --name hub --store /data/hub.db --out /data/hub >address 2>hub.err &
hub=$!
started+=($hub)
for i in $(seq 600); do [ -s address ] && break; sleep 0.1; done
[ -s address ] || fault "the hub does not start in a container: $(tail -n 3 hub.err)"
inside train "${model[@]}" --ranks 2 --steps 20 --mode diloco --inner 5 --codec int8 --hub "$(tr -d '\r' <address)" --keys /data/keys/a.key --name isl \
    --store /data/isl.db >isl.out 2>isl.err || fault "exit $? of the island in a container: $(tail -n 3 isl.err hub.err)"
wait $hub || fault "exit $? of the hub in a container: $(tail -n 3 hub.err)"
[ "$(BITRAIN_STORE=data/hub.db q "SELECT state FROM runs WHERE run='hub'")" = done ] || fault "the hub's run is not done"
finish
