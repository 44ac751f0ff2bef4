#!/usr/bin/env bash
# ctest: timeout=240 labels=mpi
# bitrain plan measures rates once and stores them, ranks layouts, and refuses impossible requests; a written plan can
# be trained.
. "$(dirname "$0")/../train_lib.sh"

# A file that cannot be written is reported before anything is measured.
for path in "$tmp/no/such/plan.yaml" "$tmp"; do
    b plan "${tiny[@]}" --write "$path" >out 2>err && fault "wrote $path"
    grep -qF "cannot write '$path'" err || fault "prints: $(cat err)"
    [ ! -e "$tmp/rates" ] || fault "measured before it was told that $path cannot be written"
done
ok plan "${tiny[@]}" --rows 100 --trial 20
says "why "
says "pp 1 x dp 2"
says "pp 1 x dp 1 x tp 2"
says "storage    a checkpoint of "
grep -q "measured " err || fault "nothing was measured: $(cat err)"
ls "$tmp"/rates/*.json >/dev/null || fault "no rates beside the database"
# A busy machine needs several calls until all rates are measured.
for _ in 1 2 3 4 5 6; do
    ok plan "${tiny[@]}" --json --trial 20
    grep -qE "^(measured|tried)" err || break
done
grep -q measured err && fault "measured again: $(cat err)"
python_free() { grep -o "\"$1\":[0-9.e+-]*" out | cut -d: -f2; }
[ "$(python_free legal)" -ge 8 ] || fault "only $(python_free legal) layouts"
# Measured layouts are first, the fastest at the top; differences below two hundredths do not count. The number of
# layouts near enough for a trial depends on the machine.
tried() { python_free tried_ms | grep .; }
awk -v first="$(tried | head -1)" -v least="$(tried | sort -g | head -1)" 'BEGIN {exit !(first <= 1.02 * least)}' ||
    fault "the first is not the fastest: $(tried)"
ok plan "${tiny[@]}" --trial 0 --measure --json --tp 1
grep -q tried err && fault "tried without time for it: $(cat err)"
awk -v first="$(python_free step_ms | head -1)" -v least="$(python_free step_ms | sort -g | head -1)" \
    'BEGIN {exit !(first <= 1.02 * least)}' || fault "the first is not predicted to be the fastest"

# The race between layouts as plan starts it: with persistent trainers, and with new trainers for every turn.
for how in keep anew; do
    racer=(--racer 1 0.01 1 "${tiny[@]}")
    mpirun -np 2 --bind-to none "$BITRAIN" plan layout-race 60 $how "${racer[@]}" --tp 2 "${racer[@]}" --zero 3 >out 2>err || fault "$how: $(tail -n 2 err)"
    grep -qE 'bitrain result: \{"rounds":[1-9].*"racers":\[(\{"step_s":[0-9.e-]+,"runs":[1-9][0-9]*,"out":(true|false)\},?){2}\]\}' out ||
        fault "$how: $(tail -n 2 out)"
    grep -q "^bitrain progress: [01]" out || fault "$how shows no progress"
done
mpirun -np 2 --bind-to none "$BITRAIN" plan layout-race 60 keep "${racer[@]}" >out 2>err && fault "a race of one"
grep -q "a race is of 2 to 8 layouts" out err || fault "a race of one: $(tail -n 3 err)"

# The plan prints advice with its source for the ranks that share a batch.
ok plan "${tiny[@]}" --tp 1 --pp 1 --trial 0
says "AdamW's grows by the square root (Malladi et al. 2022, arXiv:2205.10287)"
says "energy     "
says "codec      none, as set: the other codecs round gradients, so none is chosen for its speed"
lr=$(sed -n 's/^batch .*--lr \([0-9.e-]*\) now, \([0-9.e-]*\) with a batch 2 times as large.*/\1 \2/p' out)
awk '{exit !(NF == 2 && $2 > 1.4 * $1 && $2 < 1.43 * $1)}' <<<"$lr" || fault "not the square root of 2: $lr"
ok plan "${tiny[@]}" --tp 1 --pp 1 --trial 0 --json
grep -q '"lr_rule":"sqrt","lr_source":"Malladi et al. 2022, arXiv:2205.10287","larger_batches":\[{"batch_tokens":512,"lr":' out || fault "no advice in JSON: $(grep -o '"lr_rule.*' out | cut -c1-200)"
# The rate rule is for AdamW and is not applied to other optimizers.
ok plan "${tiny[@]}" --tp 1 --pp 1 --trial 0 --optimizer lion
says "for a larger batch with --optimizer lion find --lr anew: the rule of the square root is AdamW's"
ok plan "${tiny[@]}" --tp 1 --pp 1 --trial 0
says "tokens a rank, then an exchange of gradients"

# Given settings are not changed.
ok plan "${tiny[@]}" --tp 2 --json
[ "$(python_free tp | sort -u)" = 2 ] || fault "--tp 2 was not kept"
# Rates of another build are reported and measured again.
sed -i 's/"build":"[0-9a-f]*"/"build":"0123456789abcdef"/' "$tmp"/rates/*.json
ok plan "${tiny[@]}"
grep -q "measured with another build" err || fault "not reported: $(cat err)"

# A written plan is a configuration file.
ok plan "${tiny[@]}" --write best.yaml
planned=$(grep -o '^time .* for .* steps of [^,:]*' out)
ok train best.yaml --dry-run
# Both commands show the same time for the same layout, from the same source.
[ -n "$planned" ] || fault "a plan without a time: $(cat out)"
grep -qF "$planned" out || fault "plan: $planned; dry run: $(grep ^time out)"
says "layout"
b train best.yaml --steps 2 --name written --quiet >out 2>err || fault "cannot train with it: $(cat err)"

# Adapters: the shape is that of their base, a layer with adapters is measured, and --dry-run then uses these rates.
ok train "${tiny[@]}" --ranks 1 --steps 2 --name base
lora=(--tune lora --set tune.rank=4 --init-from base --ranks 1 --threads 1 --batch-tokens 256 --data synth:chain)
ok plan "${lora[@]}" --trial 0
grep -q measured err || fault "no layer with adapters was measured: $(cat err)"
grep -qh '"layer:32:2:2:16:64:0:32:[0-9:]*:4:127:0:0"' "$tmp"/rates/*.json || fault "no such layer: $(grep -oh '"layer:[0-9:]*"' "$tmp"/rates/*.json)"
ok train "${lora[@]}" --dry-run
says "a prediction, by this machine's measured rates"

# A model that is too large for the memory is refused in one line.
b plan --preset bitnet-2b4t --ranks 1 --threads 1 --set model.vocab=256 --set model.layers=200 >out 2>err && fault "nothing is too large"
grep -q "fits under no layout of 1 rank: the least is .* on a host of 1 rank, .* too little (would fit: " err || fault "prints: $(cat err)"
[ "$(wc -l <err)" = 1 ] || fault "more than a line: $(cat err)"
finish
