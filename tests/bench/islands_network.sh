#!/usr/bin/env bash
# islands_network.sh [RATE...] - the share of its time that an island waits for the hub over a slow link: two network
# namespaces joined by a veth pair that tc's tbf limits to RATE in each direction (default 100mbit), with the hub in one
# and two islands of one rank in the other. Every way of exchanging gives one line: milliseconds of a step, the share of
# all steps' time spent waiting for exchanges, the same without the last step (no further steps hide the exchange after
# it, which counts more in a short run), the bytes of all messages in both directions per step and island, the last
# loss. Needs root, iproute2, and BITRAIN=path/to/bitrain.
#
#     PRESET=nano BATCH=2048 STEPS=400 WAYS='--codec int8 --set islands.overlap=-1' BITRAIN=build/bitrain tests/bench/islands_network.sh 100mbit
BT_SRC=${BT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BITRAIN=$(realpath "${BITRAIN:-$BT_SRC/build/bitrain}")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
command -v tc >/dev/null || skip "no 'tc' (iproute2)"
preset=${PRESET:-nano} batch=${BATCH:-2048} steps=${STEPS:-200}
[ $# -gt 0 ] || set -- 100mbit
ways=("--mode sync" "--codec int8" "--codec int8 --set islands.overlap=5" "--codec int8 --set islands.overlap=-1"
      "--codec int8 --set islands.overlap=5" "--codec int8 --set islands.fragments=5 --set islands.overlap=3")
[ -n "${WAYS:-}" ] && IFS=';' read -ra ways <<<"$WAYS"
ours=(--mode diloco --inner 50 --set islands.warmup=0 --set islands.ramp=0)
"$BITRAIN" hub --keys keys a b >/dev/null 2>&1

limit() {
    local k
    for k in 1 2; do
        ip netns exec $ns$k tc qdisc del dev v$k$$ root 2>/dev/null
        ip netns exec $ns$k tc qdisc add dev v$k$$ root tbf rate "$1" burst 128kb latency 50ms || skip "no tbf here"
    done
}
island() {                                      # NAME WORDS...
    local name=$1; shift
    ip netns exec ${ns}2 timeout 1200 "$BITRAIN" train --preset "$preset" --ranks 1 --threads 1 --batch-tokens "$batch" --steps "$steps" \
        --eval-every 1000000 --set ckpt.final=false --set train.eval_tokens=4096 --hub "10.77.$id.1:8160" --keys "keys/$name.key" \
        --name "isl-$name" --store "$name.db" --out "out-$name" --quiet "$@" >"$name.out" 2>"$name.err" &
}
of() { BITRAIN_STORE=a.db q "SELECT $1 FROM steps WHERE run='isl-a' ${2:-}"; }
held='100 * sum(comm_overhead * step_ms) / sum(step_ms)'
echo "load $(cut -d' ' -f1 /proc/loadavg)"
echo "| link | way | ms a step | held up | but for the last step | bytes a step and island | loss |"
echo "|---|---|---|---|---|---|---|"
for rate in "$@"; do
    limit "$rate"
    for way in "${ways[@]}"; do
        rm -rf out-* hub-out ./*.db*
        ip netns exec ${ns}1 "$BITRAIN" hub --listen "10.77.$id.1:8160" --keys keys --islands 2 --store hub.db --out hub-out --name hub \
            --quiet >address 2>hub.err &
        until [ -s address ]; do sleep 0.1; done
        # shellcheck disable=SC2086
        for i in a b; do island $i "${ours[@]}" $way; done
        wait
        : >address
        bytes=$(BITRAIN_STORE=hub.db q "SELECT value FROM facts WHERE key='islands.bytes_both_ways'")
        printf '| %s | `%s` | %.1f | %.2f %% | %.2f %% | %s | %s |\n' "$rate" "$way" "$(of 'avg(step_ms)')" "$(of "$held")" \
            "$(of "$held" "AND step < $steps - 1")" "$((${bytes:-0} / steps / 2))" "$(of 'loss' | tail -n 1)"
    done
done
finish
