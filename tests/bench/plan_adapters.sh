#!/usr/bin/env bash
# plan_adapters.sh - the step time of adapters that 'bitrain plan' predicts and the measured one: processor time, which
# other programs on the machine disturb little. The bases are random (random_bitnet.py) and have a few layers: ternary,
# dense in bf16, dense in int8.
#
#     tests/bench/plan_adapters.sh [TIMES [THREADS]]     with several THREADS predictions are wall time, so the machine must be idle
# Prints a line per base and repetition: predicted and measured milliseconds of a step with 2 x 512 tokens, of which
# about 28 % are learned. The measured value is the processor time of a run of 6 steps minus that of a run of 2 steps,
# divided by 4.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
bitrain=${BITRAIN:-$here/build/bitrain}
times=${1:-1} threads=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export BITRAIN_STORE=$work/s.db XDG_DATA_HOME=$work/xdg
python3 "$here/tests/bench/random_bitnet.py" ternary --shape base --layers 4 >/dev/null
python3 "$here/tests/bench/random_bitnet.py" dense --shape qwen3-0.6b --layers 2 --vocab 32000 >/dev/null
awk 'BEGIN { n = split("sun moon star river stone cloud tree wind fire snow leaf sand rain hill lake", w, " ")
    for (i = 0; i < 2000; i++) { ask = say = ""
        for (k = 1; k <= 8; k++) { x = w[(i * k + k * k) % n + 1]; if (k < 7) ask = ask " " x; say = x " " say }
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say again:%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]}\n", ask, say } }' >chat.jsonl

one() {                                         # NAME BASE WORDS...
    local name=$1 base=$2 n predicted; shift 2
    local words=(--init-from "$base" --tune lora --data chat.jsonl --form messages --seq-len 512 --micro-batch 2 --batch-tokens 1024 --ranks 1
        --threads "$threads" --recompute full --eval-every 1000000 --set data.val_frac=0 --set ckpt.async=false --set ckpt.memory=off
        --set ckpt.final=false --set train.distributions=0 "$@")
    predicted=$("$bitrain" plan "${words[@]}" --steps 6 --trial 0 --measure --json 2>plan.err | grep -o '"step_ms":[0-9.]*' | head -n 1 | cut -d: -f2)
    for n in 2 6; do
        TIMEFORMAT='%U %S'
        { time "$bitrain" train "${words[@]}" --steps $n --name "x$RANDOM$RANDOM" --quiet >/dev/null 2>train.err; } 2>time.$n || { cat train.err; exit 1; }
    done
    paste time.2 time.6 | awk -v name="$name" -v p="$predicted" -v load="$(cut -d' ' -f1 /proc/loadavg)" -v t="$threads" '
        { m = 1000 * ($3 + $4 - $1 - $2) / 4; printf "%-24s predicted %6.0f ms  measured %6.0f  ratio %.2f  (load %s)\n", name, p * t, m, p * t / m, load }'
}

for _ in $(seq "$times"); do
    one "ternary, lean" ternary --set tune.lean=true
    one "dense" dense
    one "dense, int8" dense --set tune.base_type=q8
done
