#!/usr/bin/env bash
# islands_modes.sh - what the modes of islands cost in validation loss at equal tokens: islands of one rank on this machine, which together
# train on the same number of tokens a step, 2 of them or 4.
#
#     tests/bench/islands_modes.sh [STEPS [SEEDS [WORDS...]]]     WORDS go to `bitrain train` (default: a model of 117 k parameters)
#     FIRST=2 ISLANDS='2 4' BATCH=512 WAYS='sync;diloco H=50|--mode diloco --inner 50' tests/bench/islands_modes.sh 1000 3
# SEEDS is the last seed, FIRST (1) the first one. One line a mode, number of islands and seed: validation loss at the end, nats, of the island
# that ends last (islands that do not step together end one after another, and its weights alone have all updates in them); bytes of all
# messages both ways. Then a table of means over seeds with half of their range, and of what a mode costs against `sync` of the same seeds.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
bitrain=${BITRAIN:-$here/build/bitrain}
steps=${1:-1000} seeds=${2:-3} batch=${BATCH:-512}
shift $(($# > 2 ? 2 : $#))
words=("$@")
[ ${#words[@]} -gt 0 ] || words=(--preset nano --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2
    --set model.d_ff=192 --seq-len 64 --micro-batch 2 --tokenizer bytes --lr 3e-3 --warmup 50)
own='--mode diloco --codec int8'
IFS=';' read -ra ways <<<"${WAYS:-sync;ps s=4|--mode ps --staleness 4;ps async|--mode ps --staleness -1;diloco H=10|$own --inner 10;diloco H=50|$own --inner 50;diloco H=200|$own --inner 200}"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
"$bitrain" hub --keys keys a b c d >/dev/null 2>&1

last_of() {                                     # NAMES...: the island that ended last
    local i
    for i in "$@"; do echo "$("$bitrain" query --csv --store $i.db "SELECT max(ended_s) FROM attempts" | tail -n 1) $i"; done | sort -n | tail -n 1 | cut -d' ' -f2
}
one() {                                         # NAME ISLANDS SEED WORDS...
    local name=$1 many=$2 seed=$3 all=(a b c d) i; shift 3
    rm -rf out-* hub-out ./*.db* address
    "$bitrain" hub --listen 127.0.0.1:0 --keys keys --islands "$many" --store hub.db --out hub-out --name hub --quiet >address 2>hub.err &
    until [ -s address ] || ! kill -0 $!; do sleep 0.1; done
    for i in "${all[@]:0:many}"; do
        "$bitrain" train "${words[@]}" --batch-tokens $((batch / many)) --steps "$steps" --seed "$seed" --ranks 1 --threads 1 \
            --eval-every 1000000 --hub "$(cat address)" --keys keys/$i.key --name isl-$i --store $i.db --out out-$i --quiet "$@" >$i.out 2>&1 &
    done
    wait
    printf '%s,%s,%s,%s,%s\n' "$name" "$many" "$seed" \
        "$("$bitrain" query --csv --store "$(last_of "${all[@]:0:many}").db" "SELECT round(val_loss, 4) FROM steps WHERE val_loss IS NOT NULL ORDER BY step DESC LIMIT 1" | tail -n 1)" \
        "$("$bitrain" query --csv --store hub.db "SELECT value FROM facts WHERE key = 'islands.bytes_both_ways'" | tail -n 1 | tr -d '"')"
}

echo "mode,islands,seed,validation loss,bytes both ways"
for seed in $(seq "${FIRST:-1}" "$seeds"); do
    for many in ${ISLANDS:-2 4}; do
        for way in "${ways[@]}"; do
            # shellcheck disable=SC2046
            one "${way%%|*}" "$many" "$seed" $([[ $way == *'|'* ]] && echo "${way#*|}")
        done
    done
done | tee lines
awk -F, 'NR > 0 && $4 != "" { key = $2 SUBSEP $1; if (!(key in n)) order[++rows] = key
        n[key]++; sum[key] += $4; if (n[key] == 1 || $4 < low[key]) low[key] = $4; if (n[key] == 1 || $4 > high[key]) high[key] = $4
        if ($1 == "sync") sync[$2, $3] = $4
        else if (($2, $3) in sync) { d = 100 * ($4 / sync[$2, $3] - 1); cost[key] += d
            if (n[key] == 1 || d < dl[key]) dl[key] = d; if (n[key] == 1 || d > dh[key]) dh[key] = d }
        bytes[key] += $5 }
    END { print ""; print "| islands | mode | validation loss, nats | against sync | MB both ways |"; print "|---|---|---|---|---|"
        for (r = 1; r <= rows; r++) { k = order[r]; split(k, part, SUBSEP)
            printf "| %d | %s | %.4f ± %.4f | %s | %.1f |\n", part[1], part[2], sum[k] / n[k], (high[k] - low[k]) / 2,
                part[2] == "sync" ? "" : sprintf("%+.2f ± %.2f %%", cost[k] / n[k], (dh[k] - dl[k]) / 2), bytes[k] / n[k] / 1e6 } }' lines
