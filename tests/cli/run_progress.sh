#!/usr/bin/env bash
# ctest: timeout=200
# Long operations show their progress on a terminal only: tokenising (data prepare, and train before its ranks start),
# tokenizer train, loading a model, eval, convert, export, plan, report, runs gc and repair.
. "$BT_SRC/tests/cli/train_lib.sh"
if ! script -qec true "$tmp/try" >/dev/null 2>&1 </dev/null; then skip "script cannot open a pseudo-terminal here"; fi

# has_bar WORD COMMAND...: returns whether a line on a terminal has WORD, a bar and a percentage. bar: fails the test
# otherwise.
has_bar() {
    local word=$1; shift
    local line
    line=$(printf '%q ' "$BITRAIN" "$@")
    BITRAIN_TEST_PROGRESS=1 TERM=xterm timeout 100 script -qec "$line" "$tmp/tty" >/dev/null 2>&1 </dev/null || fault "exit $? on a terminal: $*"
    tr '\r' '\n' <tty | grep -qE "$word [█░#-]{24} +[0-9]+ %"
}
bar() { has_bar "$@" || fault "no bar '$1' of: bitrain ${*:2}: $(tail -c 300 tty)"; }
# quiet: checks that no progress is shown without a terminal
quiet() {
    local word=$1; shift
    ok "$@"
    if grep -qE "$word" out err; then fault "a bar without a terminal: bitrain $*"; fi
}

awk 'BEGIN { split("the light and darkness was upon face of waters earth evening morning first day God called", w, " ");
             for (i = 1; i <= 250000; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%s%d%s", w[1 + int(x / 65536) % 16], x % 977, x / 4096 % 13 < 1 ? ".\n" : " " } }' >prose.txt
bar "counting words" tokenizer train prose.txt --vocab 600 --out t.json
quiet "counting words" tokenizer train prose.txt --vocab 300 --out u.json
bar tokenising data prepare prose.txt --tokenizer t.json --out p.bts
quiet tokenising data prepare prose.txt --tokenizer t.json --out p.bts --force
bar tokenising train "${tiny[@]/synth:chain/prose.txt}" --tokenizer t.json --dry-run
# Rates of the machine, then layouts that are almost equally fast.
quiet "measuring this machine" plan "${tiny[@]}" --trial 0
# On a loaded machine the rates may exclude all layouts except the first one, and a single layout is not tried.
for _ in 1 2 3 4; do
    bar "measuring this machine" plan "${slow[@]}" --trial 1 --measure
    if tr '\r' '\n' <tty | grep -qE "trying layouts [█░#-]{24} +[0-9]+ %"; then tried=yes; break; fi
done
[ "${tried:-}" ] || fault "no bar while layouts are tried: $(tail -c 300 tty)"
ok train "${slow[@]}" --steps 3 --name done
# Measurements of this machine: in this process, on separate ranks, and row by row.
for quick in "train ${tiny[*]} --steps 1" "train ${tiny[*]} --steps 1 --ranks 2" "comm ${tiny[*]} --ranks 2" "kernels --isa generic --slot quant_rows"; do
    # shellcheck disable=SC2086  # several arguments
    bar measuring bench $quick
done
bar writing bench store --steps 100 --runs 1 --ranks 1
quiet "measuring|writing" bench train "${tiny[@]}" --steps 1
bar measuring eval done --tokens 200k --threads 1
bar loading generate done --prompt x --tokens 4 --threads 1
quiet loading generate done --prompt x --tokens 4 --threads 1
quiet measuring eval done --tokens 100k --threads 1
bar converting convert done -o copied
bar comparing convert done --verify -o compared
quiet "converting|comparing" convert done --verify -o quietly
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" long ranks=16 steps=500 || fault "no long run"
bar exporting export long --what rank_steps --format jsonl --out rows.jsonl
quiet exporting export long --what rank_steps --out rows.csv
bar exporting export long --format tensorboard --out tb
quiet exporting export long --format tensorboard --out tb
bar exporting export long --format trace --from 0 --to 400 --out trace.json
bar drawing report long -o long.html
bar "making summaries" runs gc --rebuild
bar checking runs repair
quiet checking runs repair
# Pages of rows are overwritten; all other rows are saved.
dd if=/dev/zero of="$BITRAIN_STORE" bs=4096 seek=60 count=2 conv=notrunc status=none
bar "saving rows" runs repair
grep -q "rows saved from the damaged file" tty || fault "nothing was damaged: $(cat tty)"
finish
