# ctest: timeout=120
# Every view command and every screen for a run of each kind: one rank, four ranks, resumed, live, a hub, imported,
# failed in its first step, fine-tuned. None ends by a signal, and no text or JSON contains an invalid number.
set -u
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
export BITRAIN_STORE=$d/m.db LC_ALL=C.UTF-8 TERM=dumb COLUMNS=80 LINES=24
cd "$d" || exit 1
n_failed=0
fail() { echo "FAIL: $*"; n_failed=$((n_failed + 1)); }
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" --kinds || exit 1

# ok COMMAND...: the command exits with 0 and prints no "nan", "inf" or empty JSON number
ok() {
    "$BITRAIN" "$@" > out 2> err < /dev/null
    local got=$?
    [ $got -eq 0 ] || { fail "exit $got: $*"; head -3 err; }
    ! grep -qwE -- '-?(nan|inf)' out || { fail "a number that is none: $*"; grep -nwE -- '-?(nan|inf)' out | head -3; }
}
json() {
    ok "$@"
    sqlite3 :memory: "SELECT json_valid(readfile('out'))" | grep -qx 1 || { fail "no JSON: $*"; head -c 300 out; }
}
says() { grep -qE -- "$1" out err || { fail "no '$1': $2"; head -30 out err; }; }

screens=$(sed -n 's/^BT_SCREEN([A-Z]*, *\([a-z]*\),.*/\1/p' "$BT_SRC/monitor/tui/screens/screens.def")
[ "$(echo "$screens" | wc -w)" -ge 10 ] || fail "no screens"
runs=$(sqlite3 "$BITRAIN_STORE" "SELECT name FROM run")
[ "$(echo "$runs" | wc -w)" -eq 11 ] || fail "runs: $runs"
for run in $runs; do
    ok show "$run"
    ok show "$run" --all
    json show "$run" --json
    json top "$run" --once --json
    for s in $screens; do ok top "$run" --once --screen "$s"; done
    ok export "$run" --format csv
    ok compare four "$run"
    ok compare "$run" four
    json compare "$run" one --json
    "$BITRAIN" autopsy "$run" > out 2> err; [ $? -lt 128 ] || fail "autopsy $run"
    "$BITRAIN" plot "$run" val_loss > out 2> err; [ $? -lt 128 ] || fail "plot $run"
done
ok runs
says "^labels +done .* 20.0 % " "runs"
json runs --json
# Lists fit the width of the terminal.
if script -qec true "$d/try" >/dev/null 2>&1 </dev/null; then
    for words in "runs" "show four" "show resumed --all" "show hub"; do
        script -qec "stty cols 80; '$BITRAIN' $words" "$d/pty" >/dev/null 2>&1 </dev/null
        # A printed command is complete, so that it can be pasted.
        [ "$(grep -vE '^  command|^Script' "$d/pty" | tr -d '\r' | wc -L)" -le 80 ] || fail "wider than 80 columns: $words"
    done
fi

# Some parts of the output exist only for one kind of run.
ok show hub
says "islands \(1 of 2 train; 2 joined, 0 left, 1 lost\)" "show hub"
says "^ +north +n1 +trains +25 +30 " "show hub"
json show hub --json
says '"islands":\{"step":39,' "show hub --json"
# The first page of fine-tuning shows its measure and the newest evaluation.
ok show dpo
says "validation accuracy 20.0 %, reward margin 2.0000" "show dpo"
ok show labels
says "validation accuracy 20.0 %, F1 20.0 %" "show labels"
ok top labels --once --size 120x30
says "val accuracy 20 %  F1 20 %" "top labels"
ok top hub --once --size 100x30
says "islands -+ 1 of 2 train" "top hub"
says "north +trains +step 25 +loss 2.0000" "top hub"
# The advice depends on the kind of run.
"$BITRAIN" ctl import-a status > out 2> err; says "is an imported record: no process trains it" "ctl import-a"
"$BITRAIN" ctl hub status > out 2> err; says "is a hub of islands, which takes no requests" "ctl hub"
"$BITRAIN" autopsy import-a > out 2> err; ! grep -q "folder is on" out || fail "autopsy of an imported run names a folder"
ok show failed-first
! head -1 out | grep -q "error" || fail "the heading of show: $(head -1 out)"
ok compare import-a import-b
says "no step in common for which both recorded a loss" "compare of runs without losses"
says "^results: val_loss at " "compare of runs without losses"
ok compare one four
says "the same losses to the last bit in all 60 common steps" "compare of equal losses"
exit $((n_failed > 0))
