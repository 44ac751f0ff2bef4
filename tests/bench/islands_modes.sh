#!/usr/bin/env bash
# islands_modes.sh - what the modes of islands cost in validation loss at equal tokens, and in bytes: two islands of one
# rank on this machine.
#
#     tests/bench/islands_modes.sh [STEPS [SEEDS [WORDS...]]]     WORDS go to `bitrain train` (default: nano, 2048 tokens a step and island)
# One line a mode and seed: validation loss of island a at the end, nats; bytes of all messages, both ways.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
bitrain=${BITRAIN:-$here/build/bitrain}
steps=${1:-60} seeds=${2:-1}
shift $(($# > 2 ? 2 : $#))
words=("$@")
[ ${#words[@]} -gt 0 ] || words=(--preset nano --batch-tokens 2048 --warmup 6)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
"$bitrain" hub --keys keys a b >/dev/null 2>&1

one() {                                         # MODE SEED WORDS...
    local mode=$1 seed=$2 i; shift 2
    rm -rf out-* hub-out ./*.db*
    "$bitrain" hub --listen 127.0.0.1:0 --keys keys --islands 2 --store hub.db --out hub-out --name hub --quiet >address 2>hub.err &
    until [ -s address ]; do sleep 0.1; done
    for i in a b; do
        "$bitrain" train "${words[@]}" --steps "$steps" --seed "$seed" --ranks 1 --threads 1 --hub "$(cat address)" --keys keys/$i.key \
            --name isl-$i --store $i.db --out out-$i --quiet "$@" >$i.out 2>&1 &
    done
    wait
    "$bitrain" query --csv --store a.db \
        "SELECT '$mode', $seed, round(val_loss, 4) FROM steps WHERE val_loss IS NOT NULL ORDER BY step DESC LIMIT 1" |
        tail -n 1 | tr -d '"' | tr '\n' ','
    "$bitrain" query --csv --store hub.db "SELECT value FROM facts WHERE key = 'islands.bytes_both_ways'" | tail -n 1
}

echo "mode,seed,validation loss,bytes both ways"
for seed in $(seq "$seeds"); do
    one sync "$seed"
    one 'ps s=4' "$seed" --mode ps --staleness 4
    one 'ps async' "$seed" --mode ps --staleness -1
    one 'diloco H=10 int8' "$seed" --mode diloco --inner 10 --codec int8
    one 'diloco H=50 int8' "$seed" --mode diloco --inner 50 --codec int8
    one 'diloco H=50 int4' "$seed" --mode diloco --inner 50 --codec int4
    one 'diloco H=50 int4, 5 fragments, overlap 3' "$seed" --mode diloco --inner 50 --codec int4 --set islands.fragments=5 --set islands.overlap=3
    one 'diloco H=50 int8 async' "$seed" --mode diloco --inner 50 --codec int8 --staleness -1
done
