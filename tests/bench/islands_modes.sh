#!/usr/bin/env bash
# islands_modes.sh - validation loss of the modes of islands (trainings that exchange updates through a hub) at equal
# numbers of tokens: 2 or 4 islands of one rank on this machine, which together train on the same number of tokens per
# step.
#
#     tests/bench/islands_modes.sh [STEPS [SEEDS [WORDS...]]]     WORDS: options of `bitrain train` (default: a model of 117 k parameters)
#     FIRST=2 ISLANDS='2 4' BATCH=512 WAYS='sync;diloco H=50|--mode diloco --inner 50' tests/bench/islands_modes.sh 1000 3
#     MODEL=small tests/bench/islands_modes.sh 500 1
# With MODEL=small: the preset `small` on bytes and two islands; one job of two ranks, which has the losses of `sync` without
# sending its gradients of 95 MB, and H = 50; 1.0 M tokens.
# SEEDS is the last seed, FIRST (1) the first one. Each mode, number of islands and seed gives one line: validation loss
# at the end, in nats, of the island that ends last (if islands do not step together they end one after another, and
# only the last has all updates in its weights); bytes of all messages in both directions; seconds. Then a table
# contains the means over seeds with half of their range, and the loss of each mode relative to the first one with the
# same seeds. A mode is NAME|WORDS of `train`; JOB as its first word is one job of as many ranks.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
bitrain=$(realpath "${BITRAIN:-$here/build/bitrain}")
own='--mode diloco --codec int8'
case ${MODEL:-} in
small)
    model=(--preset small --set model.vocab=256 --seq-len 128 --micro-batch 4 --tokenizer bytes --warmup 50 --set train.eval_tokens=65536)
    ways_of_it="one job|JOB;diloco H=50|$own --inner 50" islands_of_it=2 batch_of_it=2048 steps_of_it=500 seeds_of_it=1
    ;;
*)
    model=(--preset nano --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=192
        --seq-len 64 --micro-batch 2 --tokenizer bytes --lr 3e-3 --warmup 50)
    ways_of_it="sync;ps s=4|--mode ps --staleness 4;ps async|--mode ps --staleness -1;diloco H=10|$own --inner 10;diloco H=50|$own --inner 50;diloco H=200|$own --inner 200"
    islands_of_it='2 4' batch_of_it=512 steps_of_it=1000 seeds_of_it=3
    ;;
esac
steps=${1:-$steps_of_it} seeds=${2:-$seeds_of_it} batch=${BATCH:-$batch_of_it}
shift $(($# > 2 ? 2 : $#))
words=("$@")
[ ${#words[@]} -gt 0 ] || words=("${model[@]}")
IFS=';' read -ra ways <<<"${WAYS:-$ways_of_it}"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
"$bitrain" hub --keys keys a b c d >/dev/null 2>&1

of() { "$bitrain" query --csv --store "$1" "$2" | tail -n 1 | tr -d '"'; }
last_of() { # NAMES...: prints the island that ended last
    local i
    for i in "$@"; do echo "$(of $i.db "SELECT max(ended_s) FROM attempts") $i"; done | sort -n | tail -n 1 | cut -d' ' -f2
}
train() {                                       # NAME WORDS...
    local i=$1; shift
    "$bitrain" train "${words[@]}" --steps "$steps" --seed "$seed" --threads 1 --eval-every 1000000 --name isl-$i --store $i.db --out out-$i \
        --quiet "$@" >$i.out 2>&1
}
one() {                                         # NAME ISLANDS WORDS...
    local name=$1 many=$2 all=(a b c d) i began=$SECONDS; shift 2
    rm -rf out-* hub-out ./*.db* address
    if [ "${1:-}" = JOB ]; then
        shift
        all=(a)
        train a --batch-tokens "$batch" --ranks "$many" "$@" || true
    else
        "$bitrain" hub --listen 127.0.0.1:0 --keys keys --islands "$many" --store hub.db --out hub-out --name hub --quiet >address 2>hub.err &
        until [ -s address ] || ! kill -0 $!; do sleep 0.1; done
        for i in "${all[@]:0:many}"; do
            train $i --batch-tokens $((batch / many)) --ranks 1 --hub "$(cat address)" --keys keys/$i.key "$@" &
        done
        wait
    fi
    i=$(last_of "${all[@]:0:many}")
    parameters=$(of $i.db "SELECT value FROM facts WHERE key = 'params'")
    printf '%s,%s,%s,%s,%s,%s\n' "$name" "$many" "$seed" \
        "$(of $i.db "SELECT round(val_loss, 4) FROM steps WHERE val_loss IS NOT NULL ORDER BY step DESC LIMIT 1")" \
        "$([ ! -e hub.db ] || of hub.db "SELECT value FROM facts WHERE key = 'islands.bytes_both_ways'")" $((SECONDS - began)) | tee -a lines
}

echo "load $(cut -d' ' -f1 /proc/loadavg)"
echo "mode,islands,seed,validation loss,bytes both ways,seconds"
for seed in $(seq "${FIRST:-1}" "$seeds"); do
    for many in ${ISLANDS:-$islands_of_it}; do
        for way in "${ways[@]}"; do
            # shellcheck disable=SC2046
            one "${way%%|*}" "$many" $([[ $way == *'|'* ]] && echo "${way#*|}")
        done
    done
done
echo
echo "$parameters parameters, $steps steps of $batch tokens: $((steps * batch)) tokens"
awk -F, '$4 != "" { key = $2 SUBSEP $1; if (!(key in n)) order[++rows] = key
        if (first == "") first = $1
        n[key]++; sum[key] += $4; if (n[key] == 1 || $4 < low[key]) low[key] = $4; if (n[key] == 1 || $4 > high[key]) high[key] = $4
        if ($1 == first) base[$2, $3] = $4
        else if (($2, $3) in base) { d = 100 * ($4 / base[$2, $3] - 1); cost[key] += d
            if (n[key] == 1 || d < dl[key]) dl[key] = d; if (n[key] == 1 || d > dh[key]) dh[key] = d }
        bytes[key] += $5 }
    END { print ""; print "| islands | mode | validation loss, nats | against " first " | MB both ways |"; print "|---|---|---|---|---|"
        for (r = 1; r <= rows; r++) { k = order[r]; split(k, part, SUBSEP)
            printf "| %d | %s | %.4f ± %.4f | %s | %.1f |\n", part[1], part[2], sum[k] / n[k], (high[k] - low[k]) / 2,
                part[2] == first ? "" : sprintf("%+.2f ± %.2f %%", cost[k] / n[k], (dh[k] - dl[k]) / 2), bytes[k] / n[k] / 1e6 } }' lines
