#!/usr/bin/env bash
# slow_network.sh [RATE...] - training over a slow network: two network namespaces with one rank each, joined by a veth
# pair that tc's tbf limits to RATE in each direction (none, or a rate of tc such as 1gbit, 100mbit, 20mbit; by default
# all four). Every way of sending gradients gives one line: milliseconds of a step and the share of it spent waiting for
# exchanges, medians over the last steps; bytes of a step (both ranks); the loss of the last step; the codec that the
# dial chose. Rates and ways are measured in turn ROUNDS times, and each line is the median round. Needs root, iproute2,
# and BITRAIN=path/to/bitrain.
#
#     PRESET=small BATCH=32768 STEPS=24 ROUNDS=3 BITRAIN=build/bitrain tests/bench/slow_network.sh none 1gbit 100mbit
BT_SRC=${BT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BITRAIN=$(realpath "${BITRAIN:-$BT_SRC/build/bitrain}")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
command -v tc >/dev/null || skip "no 'tc' (iproute2)"
preset=${PRESET:-nano} batch=${BATCH:-8192} steps=${STEPS:-24} rounds=${ROUNDS:-1} last=${LAST:-8}
[ $# -gt 0 ] || set -- none 1gbit 100mbit 20mbit
ways=("none" "int8" "sign" "int8 --zero 1 --set parallel.gather=flips"
      "none --set train.reproducible=true" "int8 --set train.reproducible=true" "int8 --comm-budget auto" "sign --comm-budget auto")
[ -n "${WAYS:-}" ] && IFS=';' read -ra ways <<<"$WAYS"

limit() {
    local k
    for k in 1 2; do
        ip netns exec $ns$k tc qdisc del dev v$k$$ root 2>/dev/null
        [ "$1" = none ] || ip netns exec $ns$k tc qdisc add dev v$k$$ root tbf rate "$1" burst 128kb latency 50ms || skip "no tbf here"
    done
}
# Prints the median of a column of steps over the last steps.
median() { q "SELECT $2 FROM steps WHERE run='$1' AND step >= $((steps - last)) ORDER BY 1" |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
newest() { q "$1 ORDER BY $2 DESC LIMIT 1"; }

hosts 1 1
uptime | sed 's/.*load/# load/'
for round in $(seq "$rounds"); do
    for rate in "$@"; do
        limit "$rate"
        for i in "${!ways[@]}"; do
            name=r$round-$rate-$i
            # shellcheck disable=SC2086
            timeout 1800 "${here[@]}" "$BITRAIN" train --preset "$preset" --ranks 2 --threads 1 --batch-tokens "$batch" \
                --steps "$steps" --eval-every 1000000 --set ckpt.final=false --set train.eval_tokens=4096 --set parallel.codec_warmup=0 \
                --hosts hosts.txt --name "$name" --codec ${ways[$i]} >out 2>err || { fault "exit $? of ${ways[$i]} at $rate"; tail -n 3 err; continue; }
            printf '%s\t%s\t%s\t%.1f\t%.1f\t%.0f\t%s\t%s\n' "$rate" "${ways[$i]}" "$round" "$(median "$name" step_ms)" \
                "$(median "$name" '100 * comm_overhead')" "$(median "$name" bytes_wire)" \
                "$(newest "SELECT loss FROM steps WHERE run='$name'" step)" \
                "$(newest "SELECT step || ': ' || title FROM events WHERE run='$name' AND kind LIKE 'codec%'" seq |
                    cut -c1-90)" >>lines
            tail -n 1 lines >&2
        done
    done
done
echo "| link | --codec | ms a step | held up | bytes a step | loss | dial |"
echo "|---|---|---|---|---|---|---|"
for rate in "$@"; do
    for way in "${ways[@]}"; do
        awk -F'\t' -v r="$rate" -v w="$way" '$1 == r && $2 == w' lines | sort -t$'\t' -k4,4n |
            awk -F'\t' '{ v[NR] = $0 } END { if (NR) { split(v[int((NR + 1) / 2)], c, "\t"); printf "| %s | `%s` | %s | %s %% | %s | %s | %s |\n", c[1], c[2], c[4], c[5], c[6], c[7], c[8] } }'
    done
done
finish
