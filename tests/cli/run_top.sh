# ctest: timeout=60
# top and plot as text and JSON on synthetic runs with known values; databases that cannot be read give one line and its
# exit code.
set -u
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
export BITRAIN_STORE=$d/m.db LC_ALL=C.UTF-8 TERM=xterm-256color COLUMNS=100 LINES=30
unset NO_COLOR
n_failed=0
make=$BT_BIN/tests/t.store.synth_runs

fail() { echo "FAIL: $*"; n_failed=$((n_failed + 1)); }
expect() {                              # CODE PATTERN COMMAND...
    local code=$1 pattern=$2 got
    shift 2
    "$@" > "$d/out" 2> "$d/err" < /dev/null
    got=$?
    [ $got -eq "$code" ] || { fail "exit $got, not $code: $*"; cat "$d/err"; }
    grep -qE -- "$pattern" "$d/out" "$d/err" || { fail "no '$pattern' from: $*"; head -40 "$d/out" "$d/err"; }
    if [ "$code" -ne 0 ] && [ "$(grep -c . "$d/err")" -ne 1 ]; then fail "not one line of error: $*"; cat "$d/err"; fi
}

expect 3 "no metrics database at" "$BITRAIN" top --once
: > "$d/empty.db"
expect 3 "empty file" "$BITRAIN" top --once --store "$d/empty.db"
head -c 5000 /dev/urandom > "$d/noise.db"
expect 6 "not an SQLite file" "$BITRAIN" top --store "$d/noise.db"

"$make" "$BITRAIN_STORE" base-1 ranks=4 steps=300 || fail "base-1"
"$make" "$BITRAIN_STORE" demo ranks=8 straggler=5 phase=bwd_ms excess=0.5 fail_at=120 resume_from=100 down_s=4 || fail "demo"

# Known values: the backward pass takes 60 ms, and 1.5 times as long on rank 5: a step takes 143 ms, and 113 ms on all
# other ranks.
expect 0 '"stragglers":\[\{"rank":5,' "$BITRAIN" top demo --once --json
for p in '"schema":"bitrain.view/1"' '"state":"done"' '"phase":"bwd","phase_frac":1' '"blame":1' '"step_ms":143' '"what_if":{"step_ms":113,"saved_ms":30' \
         '"heatmap":{"value":"busy"' '"layers":{' '"events":{' '"series":\[' '"goodput":0.8' '; 100 % of its delay is in bwd'; do
    grep -q -- "$p" "$d/out" || fail "no $p in the JSON of top"
done
[ "$(wc -l < "$d/out")" -eq 1 ] || fail "the JSON of top is not one line"
expect 0 "without rank 5: 143 ms → 113 ms \(-21 %\)" "$BITRAIN" top demo --screen ranks
expect 0 "^ demo  ○ DONE  ranks 8  " "$BITRAIN" top demo --once
[ "$(wc -l < "$d/out")" -eq 30 ] || fail "the frame has not 30 lines"
grep -q "$(printf '\033')" "$d/out" && fail "colour in a pipe"
# The figure in monitor/README.md is of this program: it has the same titles.
if command -v sqlite3 > /dev/null; then
    cp "$BITRAIN_STORE" "$d/figure.db"
    sqlite3 "$d/figure.db" "INSERT INTO event(run, t_us, step, kind, level, title, body) SELECT id, last_us, 50 * v.column1, 'sample', 0, 'x', '{\"text\":\"x\"}' FROM run, (VALUES (1), (2)) v WHERE name = 'demo'"
    titles() { grep '──' | grep -oE '[[:alpha:]]{3,}' | sort -u; }
    sed -n '/figure: live/,/end figure/p' "$BT_SRC/monitor/README.md" | titles | grep -vx now > "$d/figure" # the run of the figure trains
    for size in 80x24 80x30; do "$BITRAIN" top demo --once --size $size --store "$d/figure.db"; done | titles > "$d/shown"
    [ "$(wc -l < "$d/figure")" -ge 8 ] || fail "no titles in the figure"
    old=$(comm -23 "$d/figure" "$d/shown")
    [ -z "$old" ] || fail "the figure of monitor/README.md has titles that the screen has not: $(echo $old); tests/bench/README.md says how it is made"
fi
expect 0 "step 51/200" "$BITRAIN" top demo --step 51 --once
expect 0 "^base-1 ○ DONE" "$BITRAIN" top base-1 --once --size 60x10
expect 0 "baseline" "$BITRAIN" top demo --baseline base-1 --once
expect 0 "x tokens" "$BITRAIN" top demo --x tokens --once
LC_ALL=C expect 0 "^ demo  o DONE" "$BITRAIN" top demo --once
LC_ALL=C "$BITRAIN" top demo --once | LC_ALL=C grep -q '[^ -~]' && fail "not ASCII in the C locale"
for s in overview ranks step comm ternary events runs system metrics 1 8 9; do expect 0 "demo" "$BITRAIN" top demo --screen $s --once --size 200x60; done
for w in 1 7 20 33 80; do for h in 1 2 5 24; do expect 0 "" "$BITRAIN" top demo --once --size ${w}x$h; done; done

expect 0 '"runs":\{"total":2' "$BITRAIN" top demo --screen runs --json
expect 3 "did you mean 'demo'" "$BITRAIN" top dem --once
expect 2 "no screen 'nonsense'" "$BITRAIN" top demo --screen nonsense
expect 2 "no x axis 'miles'" "$BITRAIN" top demo --x miles
expect 2 "not a size" "$BITRAIN" top demo --once --size 80
expect 3 "no run 'nosuch'" "$BITRAIN" top demo --baseline nosuch --once
timeout 20 "$BITRAIN" top demo --plain --watch 0.1 2> /dev/null | head -45 | tail -1 > "$d/out" # two frames and a closed pipe
[ -s "$d/out" ] || fail "no second frame with --watch"

expect 0 "^demo · loss" "$BITRAIN" plot demo
expect 0 "first 5.0000 · last 2.4101 · min 2.4101 · max 5.0000" "$BITRAIN" plot demo loss --x tokens --size 60x12
expect 0 '"metric":"wait_ms","rank":2,"unit":"ms","x_axis":"step","exact":true' "$BITRAIN" plot demo wait_ms --rank 2 --json
grep -q '"mean":\[30,30,30' "$d/out" || fail "rank 2 does not wait 30 ms"
expect 0 '"step":\[9,10,11\],' "$BITRAIN" plot demo loss --steps 10..12 --json
expect 2 "did you mean 'loss'" "$BITRAIN" plot demo los
expect 2 "metric of ranks: name one" "$BITRAIN" plot demo wait_ms
expect 3 "no 'wait_ms' of rank 11" "$BITRAIN" plot demo wait_ms --rank 11
expect 2 "not a range of steps" "$BITRAIN" plot demo loss --steps 5
expect 2 "plot needs a run" "$BITRAIN" plot
LC_ALL=C "$BITRAIN" plot demo | LC_ALL=C grep -q '[^ -~]' && fail "a plot in the C locale is not ASCII"

# A database of a newer version, or locked by another process.
if command -v sqlite3 > /dev/null; then
    cp "$BITRAIN_STORE" "$d/newer.db"
    sqlite3 "$d/newer.db" "PRAGMA user_version=999" > /dev/null
    expect 6 "newer bitrain.*upgrade" "$BITRAIN" top --once --store "$d/newer.db"
    cp "$BITRAIN_STORE" "$d/held.db"
    mkfifo "$d/hold"
    sqlite3 "$d/held.db" > /dev/null < "$d/hold" &
    exec 3> "$d/hold"
    # A locked database blocks the commands below.
    printf '.timeout 10000\nPRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; CREATE TABLE held(x);\n' >&3
    for i in $(seq 100); do sqlite3 "$d/held.db" "SELECT count(*) FROM run" > /dev/null 2>&1 || break; sleep 0.05; done
    expect 4 "another program holds the database" "$BITRAIN" top --once --store "$d/held.db"
    exec 3>&-
    wait
fi

# A truncated database gives one line and no crash.
head -c 20000 "$BITRAIN_STORE" > "$d/short.db"
"$BITRAIN" top demo --once --store "$d/short.db" > "$d/out" 2> "$d/err"
got=$?
{ [ $got -eq 6 ] || [ $got -eq 1 ]; } && [ "$(grep -c . "$d/err")" -eq 1 ] || { fail "a truncated database: exit $got"; cat "$d/err"; }

[ $n_failed -eq 0 ] && echo "top and plot: ok"
exit $((n_failed > 0))
