# ctest: timeout=180 waits
# runs, show, compare, query and export on synthetic runs with known values; bad input gives one line and its exit code.
set -u
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
export BITRAIN_STORE=$d/m.db
n_failed=0
make=$BT_BIN/tests/t.store.synth_runs

fail() { echo "FAIL: $*"; n_failed=$((n_failed + 1)); }
# expect CODE PATTERN COMMAND...: checks the exit code, and that a line of output or error matches
expect() {
    local code=$1 pattern=$2 got
    shift 2
    "$@" > "$d/out" 2> "$d/err" < /dev/null
    got=$?
    [ $got -eq "$code" ] || { fail "exit $got, not $code: $*"; cat "$d/err"; }
    grep -qE -- "$pattern" "$d/out" "$d/err" || { fail "no '$pattern' from: $*"; head -5 "$d/out" "$d/err"; }
    if [ "$code" -ne 0 ] && [ "$(grep -c . "$d/err")" -ne 1 ]; then fail "not one line of error: $*"; cat "$d/err"; fi
}

# No database yet, a foreign one, an empty one, a truncated one, a folder.
expect 3 "no metrics database at" "$BITRAIN" runs
: > "$d/empty.db"
expect 3 "empty file" "$BITRAIN" runs --store "$d/empty.db"
head -c 5000 /dev/urandom > "$d/noise.db"
expect 6 "not an SQLite file" "$BITRAIN" runs --store "$d/noise.db"
expect 6 "not a file" "$BITRAIN" runs --store "$d"

"$make" "$BITRAIN_STORE" base-1 ranks=4 steps=300 || fail "base-1"
"$make" "$BITRAIN_STORE" abl-3 ranks=4 straggler=2 phase=data_ms excess=0.5 fail_at=120 resume_from=100 down_s=4 || fail "abl-3"
"$make" "$BITRAIN_STORE" slow ranks=2 slow=2 steps=100 || fail "slow"

expect 0 "^base-1 +done +4 +300 +1.23 M +2.1509 +2.2009 " "$BITRAIN" runs
expect 0 "1 of 3 runs" "$BITRAIN" runs --limit 1
expect 0 '"total":1,"runs":\[\{"run":"slow","state":"done","ranks":2,"steps":100' "$BITRAIN" runs 'ranks<3' --json
expect 0 "^abl-3 " "$BITRAIN" runs abl lr=0.002
expect 0 "no run matches" "$BITRAIN" runs 'lr>1'
# Text is not compared as a number: "base-1" is not 0, and "2-layers" not 2.
for f in run=0 run=1 tags=0 data.path=0 'run<0'; do expect 0 "no run matches" "$BITRAIN" runs "$f"; done
expect 0 "^base-1 " "$BITRAIN" runs run:1
expect 0 "^slow " "$BITRAIN" runs 'ranks=2.0'
expect 2 "^bitrain runs: filter 'losss<2': runs have no column, setting or fact 'losss' \(did you mean 'loss'\?\)" "$BITRAIN" runs 'losss<2'
expect 2 "did you mean 'weight_decay'" "$BITRAIN" runs 'weight_dcay=0'
expect 2 "did you mean 'optim.lr'" "$BITRAIN" runs 'optm.lr<1'
expect 2 "did you mean 'state'" "$BITRAIN" runs status:done
expect 2 "no column, setting or fact 'quuxquux' .*help options" "$BITRAIN" runs 'quuxquux=1'
expect 2 "^bitrain runs: filter 'loss<abc': < takes a number, not 'abc'" "$BITRAIN" runs 'loss<abc'
expect 2 "filter 'lr>=' lacks a number after >=" "$BITRAIN" runs 'lr>='
expect 0 "no run matches" "$BITRAIN" runs 'train.parts=63' # a setting that no other run has
expect 2 "no such column" "$BITRAIN" runs --sort nothing
expect 2 "unknown option" "$BITRAIN" runs --jsn

expect 0 "data +11.2 ms +9.5 % +15.0 ms +2" "$BITRAIN" show abl-3
expect 0 "goodput 78.5 %" "$BITRAIN" show abl-3
expect 0 "101 +2023-11-14T.* restart after rank 1 died .signal 9. +finished" "$BITRAIN" show abl-3
expect 0 '"data_ms":\{"mean_ms":11.25,' "$BITRAIN" show abl-3 --json
expect 0 "^base-1  done" "$BITRAIN" show last # the run with the newest record
expect 3 "did you mean 'abl-3'" "$BITRAIN" show abl-33
expect 2 "no run given" "$BITRAIN" show

# Facts are shown in their unit; measured facts are different only beyond their noise.
expect 0 "peak_flops +360 GFLOP/s" "$BITRAIN" show abl-3
expect 0 "link.dp.bytes_per_s +76.3 MiB/s" "$BITRAIN" show abl-3
expect 0 "200 +1 +12.0 MiB +40.0 ms" "$BITRAIN" show abl-3 # a checkpoint after 200 steps, by the second attempt
expect 0 "^  world_size +4 +2" "$BITRAIN" compare base-1 slow
"$BITRAIN" compare base-1 slow | grep -E "peak_flops|link" && fail "what was measured is no difference of the runs"
"$BITRAIN" compare base-1 slow --json | grep -E "peak_flops" && fail "what was measured is no difference of the runs"
expect 0 "the same losses to the last bit in all 200 common steps" "$BITRAIN" compare base-1 abl-3
expect 0 "abl-3 +200 .* -4.24 % +118 ms" "$BITRAIN" compare base-1 abl-3
expect 0 "mean of 20 records; " "$BITRAIN" compare base-1 abl-3
expect 0 "mean of 1 record; " "$BITRAIN" compare base-1 abl-3 --at step=1
expect 0 "newest 128 steps" "$BITRAIN" show base-1
expect 5 "1 check failed" "$BITRAIN" compare base-1 abl-3 --fail-if 'loss > +0.5% @ tokens=500k' 'tokens_per_s < -1%'
expect 0 "passes" "$BITRAIN" compare base-1 abl-3 --fail-if 'loss > +0.5% @ tokens=500k' 'tokens_per_s < -5%'
expect 2 "run 'base-1' has only 1.23 M tokens: it cannot be compared at 2.00 M" "$BITRAIN" compare base-1 abl-3 --fail-if 'loss > +0.5% @ tokens=2M'
expect 2 "has only 300 steps: it cannot be compared at 900" "$BITRAIN" compare base-1 abl-3 --at step=900
expect 2 "is not understood at" "$BITRAIN" compare base-1 abl-3 --fail-if 'loss ~ 2'
expect 2 "no metric 'lss'" "$BITRAIN" compare base-1 abl-3 --fail-if 'lss > 2'
expect 2 "two runs at least" "$BITRAIN" compare base-1
expect 3 "no run 'nobody'" "$BITRAIN" compare base-1 nobody

expect 0 '^\[\{"rank":0,"share":0.11016949152542373\},$' "$BITRAIN" query \
    "SELECT rank, avg(comm_exposed_ms+wait_ms)/avg(step_ms) AS share FROM rank_steps WHERE run='abl-3' GROUP BY rank" --json
expect 0 "^2,6.77966101694915" "$BITRAIN" query "SELECT rank, 100*avg(comm_exposed_ms+wait_ms)/avg(step_ms) FROM rank_steps WHERE run='abl-3' GROUP BY rank" --csv
expect 0 "only the first 10 rows are shown" "$BITRAIN" query "SELECT * FROM steps" --limit 10
# A terminal gets no control bytes of the data; a file gets the data.
sql="SELECT char(27) || '[31mred' AS a, 'b' || char(7) AS b"
"$BITRAIN" query "$sql" --csv > "$d/raw.csv" 2> /dev/null
grep -q $'\e\\[31mred,b\a' "$d/raw.csv" || fail "query --csv into a file changes the data"
if script -qec true "$d/try" > /dev/null 2>&1 < /dev/null; then
    for how in --csv --json ""; do
        script -qec "$(printf '%q ' "$BITRAIN" query "$sql" $how)" "$d/tty" > /dev/null 2>&1 < /dev/null || fail "query $how on a terminal"
        grep -q "31mred" "$d/tty" || fail "query $how on a terminal says nothing"
        if grep -q $'\e\\[31m\|\a' "$d/tty"; then fail "query $how writes control bytes of the data to a terminal"; fi
    done
fi
expect 0 '^\[\]$' "$BITRAIN" query "SELECT 1 WHERE 0" --json
for sql in "DELETE FROM run" BEGIN "BEGIN IMMEDIATE" COMMIT "SAVEPOINT a" "ATTACH 'x' AS y" "CREATE TEMP TABLE x(a)" "PRAGMA user_version=9" "VACUUM INTO '$d/copy'" "DROP VIEW runs" "INSERT INTO run(name) VALUES ('x')"; do
    expect 2 "may only read" "$BITRAIN" query "$sql"
done
expect 2 "second statement" "$BITRAIN" query "SELECT 1; SELECT 2"
expect 2 "syntax error" "$BITRAIN" query "SELEC 1"
expect 4 "took longer than 0.2 s" "$BITRAIN" query --timeout 0.2 "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT sum(x) FROM c"
[ -e "$d/copy" ] && fail "a query wrote a file"

"$BITRAIN" export abl-3 > "$d/a.csv" || fail "export csv"
[ "$(wc -l < "$d/a.csv")" -eq 201 ] || fail "csv has $(wc -l < "$d/a.csv") lines"
head -1 "$d/a.csv" | grep -q '^run,attempt,step,time_s,tokens,loss,' || fail "csv heading"
[ "$("$BITRAIN" export abl-3 --format jsonl --what rank_steps --from 5 --to 6 | wc -l)" -eq 8 ] || fail "jsonl rows"
[ "$("$BITRAIN" export abl-3 --format jsonl --what all_steps | wc -l)" -eq 220 ] || fail "all_steps rows"
# Output to a FIFO or device is written into it and does not replace it.
mkfifo "$d/pipe"
for words in "export abl-3 --out" "report abl-3 --out"; do
    cat "$d/pipe" > "$d/through" & reader=$!
    timeout 20 "$BITRAIN" $words "$d/pipe" 2> "$d/err" || fail "$words a pipe: $(cat "$d/err")"
    [ -p "$d/pipe" ] || { fail "$words put a file in the place of a pipe"; kill $reader 2>/dev/null; rm -f "$d/pipe"; mkfifo "$d/pipe"; }
    wait $reader
    [ -s "$d/through" ] || fail "$words wrote nothing into a pipe"
done
"$BITRAIN" export abl-3 --format trace --out "$d/t.json" || fail "export trace"
[ "$(grep -c '"ph":"X"' "$d/t.json")" -eq $((20 * (4 + 4 * 6 - 1))) ] || fail "trace has $(grep -c '"ph":"X"' "$d/t.json") spans"
[ "$("$BITRAIN" query "SELECT json_valid('$(tr -d "\n'" < "$d/t.json" | head -c 100000)')" --csv 2>/dev/null | tail -1)" = 1 ] || fail "trace is not JSON"
expect 0 "points in" "$BITRAIN" export abl-3 --format tensorboard --out "$d/tb"
# An exported run can be imported under another name, with the same values (event files have 32 bits for each).
expect 0 "" "$BITRAIN" runs import "$d/tb/abl-3" --name again
[ "$("$BITRAIN" query --csv "SELECT count(*) || ' ' || sum(abs(a.loss / b.loss - 1) < 1e-6 AND abs(a.lr - b.lr) <= 1e-6 * a.lr)
    FROM steps a JOIN steps b ON a.step = b.step AND b.run = 'again' WHERE a.run = 'abl-3'" 2>/dev/null | tail -1)" = "$("$BITRAIN" query --csv "SELECT count(*) || ' ' || count(*) FROM steps WHERE run = 'abl-3'" | tail -1)" ] ||
    fail "the imported run has other values"
printf 'step,loss,epoch\n1,3,0.1\n2,2,0.2\n' > "$d/plain.csv"
expect 0 "has no number of tokens" "$BITRAIN" runs import "$d/plain.csv"
expect 0 "" "$BITRAIN" runs rm plain --yes
expect 4 "--name gives it another name" "$BITRAIN" runs import "$d/tb/abl-3" --name again
"$BITRAIN" runs rm again --yes >/dev/null 2>&1
# Steps are counted from 1, as by plot and on the screens; the column step counts from 0.
"$BITRAIN" export abl-3 --from 100 --to 101 | tail -n +2 | cut -d, -f3 | tr '\n' ' ' > "$d/steps"
[ "$(cat "$d/steps")" = "99 100 " ] || fail "export of steps 100 and 101 has rows $(cat "$d/steps")"
[ "$("$BITRAIN" plot abl-3 loss --steps 100..101 --json | grep -o '"step":\[[0-9,]*\]')" = '"step":[99,100]' ] || fail "plot has other steps"
[ "$("$BITRAIN" export abl-3 --from 0 | wc -l)" -eq 201 ] || fail "--from 0 is not the beginning"
"$BITRAIN" export abl-3 --format trace --from 200 --to 200 | grep -q '"name":"step 200"' || fail "a trace names its steps otherwise"
expect 3 "has no step 900: its last is 200" "$BITRAIN" export abl-3 --format trace --from 900
expect 0 "^abl-3,0,20,0,1," "$BITRAIN" export abl-3 --what comm_pairs
expect 0 '"op":"all_reduce","axis":"dp".*"model_ms":' "$BITRAIN" export abl-3 --what comm_ops --format jsonl
expect 3 "has no steps 900 to 999" "$BITRAIN" export abl-3 --format trace --from 900 --to 999
expect 1 "cannot write" "$BITRAIN" export abl-3 --out "$d/no/such/file"
# The user's file is not overwritten, by either spelling of the option, unless that is requested.
echo mine > "$d/mine"
for words in "export abl-3 --out" "export abl-3 -o" "export abl-3 --format trace -o" "report abl-3 -o" "report abl-3 --out"; do
    expect 4 "exists already .--force replaces it" "$BITRAIN" $words "$d/mine"
    [ "$(cat "$d/mine")" = mine ] || fail "$words wrote over a file"
done
"$BITRAIN" export abl-3 -o "$d/mine" --force || fail "export --force"
[ "$(wc -l < "$d/mine")" -eq 201 ] || fail "--force did not replace the file"

# Names may have capitals and are compared without regard to case; tags and notes may be any text.
expect 0 "^slow is Slow-INT now" "$BITRAIN" runs rename slow Slow-INT
expect 4 "another run has the name" "$BITRAIN" runs rename abl-3 SLOW-int
expect 2 "is no name for a run" "$BITRAIN" runs rename abl-3 LAST
expect 0 "^Slow-INT " "$BITRAIN" show slow-int
expect 0 "Paper needs.*review 中" "$BITRAIN" runs tag slow-int Paper "needs review" 中
expect 0 "^Slow-INT " "$BITRAIN" runs "tags:needs review"
expect 0 "^Slow-INT " "$BITRAIN" runs "needs review" paper
expect 0 "Slow-INT: Paper " "$BITRAIN" runs tag Slow-INT "-needs review"
expect 0 "^Slow-INT: noted" "$BITRAIN" runs note Slow-INT "Two words"
expect 0 "^Two words$" "$BITRAIN" runs note slow-int
expect 0 "^Two words$" "$BITRAIN" runs note slow-int
expect 0 "^Slow-INT: no note" "$BITRAIN" runs note slow-int --clear
expect 0 "has no note" "$BITRAIN" runs note slow-int
expect 0 "^Slow-INT is slow now" "$BITRAIN" runs rename Slow-INT slow

# A misspelt word gets a suggestion.
expect 2 "'donne'|did you mean 'done'" "$BITRAIN" runs state:donne
expect 2 "no such state .starting, running" "$BITRAIN" runs state=Zebra
expect 2 "no verb 'delete' .did you mean 'bitrain runs rm'" "$BITRAIN" runs delete abl-3
expect 2 "no verb 'list' .did you mean 'bitrain runs'" "$BITRAIN" runs list
expect 2 "no verb 'renmae' .did you mean 'rename'" "$BITRAIN" runs renmae a b
expect 2 "is after" "$BITRAIN" export abl-3 --from 9 --to 3

# Every shipped lens (saved query) gives a result, and a user's lens has priority.
n=0
for lens in $("$BITRAIN" query --lenses --json | tr ',' '\n' | sed -n 's/.*"name":"\([^"]*\)".*/\1/p'); do
    "$BITRAIN" query --lens "$lens" abl-3 --csv > "$d/out" 2> "$d/err" || { fail "lens $lens"; cat "$d/err"; }
    [ "$(wc -l < "$d/out")" -ge 2 ] || fail "lens $lens is empty"
    n=$((n + 1))
done
[ $n -ge 8 ] || fail "only $n lenses"
expect 0 "^2,118.0,3.28,0.0,15.0," "$BITRAIN" query --lens slow-ranks abl-3 --csv
expect 0 "^1,20," "$BITRAIN" query --lens comm abl-3 --csv
expect 0 "^[0-9]+,200," "$BITRAIN" query --lens loss abl-3 --csv
mkdir "$d/lenses"
printf -- '-- how many steps\nSELECT count(*) AS steps FROM steps WHERE run = ?1\n' > "$d/lenses/goodput.sql"
BITRAIN_LENSES=$d/lenses expect 0 "^200$" "$BITRAIN" query --lens goodput abl-3 --csv
BITRAIN_LENSES=$d/lenses expect 0 "goodput +how many steps .own" "$BITRAIN" query --lenses
expect 3 "did you mean 'phases'" "$BITRAIN" query --lens fases abl-3

expect 0 "abl-3: paper v2" "$BITRAIN" runs tag abl-3 paper +v2
expect 0 "^abl-3 .*paper v2" "$BITRAIN" runs tags:paper
expect 2 "is not a tag" "$BITRAIN" runs tag abl-3 "$(printf 'a\tb')"
expect 0 "abl-3: paper v2$" "$BITRAIN" runs tag abl-3 draft -draft
expect 0 "abl-3: noted" "$BITRAIN" runs note abl-3 the one with slow data
expect 0 "note +the one with slow data" "$BITRAIN" show abl-3
expect 2 "is no name for a run" "$BITRAIN" runs rename abl-3 "No Good"
expect 4 "another run has the name 'slow'" "$BITRAIN" runs rename abl-3 slow
expect 0 "abl-3 is final now" "$BITRAIN" runs rename abl-3 final
expect 0 "^final .*paper v2" "$BITRAIN" runs tags:paper
expect 0 "final is abl-3 now" "$BITRAIN" runs rename final abl-3
expect 4 "needs --yes" "$BITRAIN" runs rm slow
expect 3 "no run 'nobody'" "$BITRAIN" runs rm slow nobody --yes
expect 0 "removed 1 run" "$BITRAIN" runs rm slow --yes
expect 3 "no run 'slow'" "$BITRAIN" show slow
expect 3 "neither a file nor a run 'model.gguf'" "$BITRAIN" eval model.gguf
expect 0 "rows of removed runs" "$BITRAIN" runs gc --rebuild
expect 0 '^\{"version":1,"orphan_rows":0,' "$BITRAIN" runs gc --json --keep-steps 100000
expect 0 "^abl-3 .*paper v2" "$BITRAIN" runs

# The cost of recording: the run is too small for exact numbers, so only the format is checked.
expect 0 '"rank_rows_per_s":[0-9].*"bytes_per_rank_row":[0-9].*"first_view_ms":[0-9]' "$BITRAIN" bench store --ranks 2 --steps 300 --runs 3 --dir "$d" --json
[ -z "$(ls -d "$d"/bitrain-bench-* 2>/dev/null)" ] || fail "bench store left its folder"

# A truncated file gives one line and no crash.
head -c 20000 "$BITRAIN_STORE" > "$d/short.db"
expect 6 "damaged.*bitrain runs repair" "$BITRAIN" query "SELECT count(*) FROM rank_steps" --store "$d/short.db"

# A damaged database: the file is kept, and its data and those of its backup are transferred to a new one.
expect 0 "nothing to repair" "$BITRAIN" runs repair
expect 0 '"sound":true' "$BITRAIN" runs repair --json
expect 2 "takes no word" "$BITRAIN" runs repair abl-3
expect 6 "had no database before" "$BITRAIN" runs repair --store "$d/short.db"
expect 3 "no backup of one" "$BITRAIN" runs repair --store "$d/none.db"
count() { sqlite3 "$1" "SELECT (SELECT count(*) FROM step) || ' ' || (SELECT count(*) FROM rank_step) || ' ' || (SELECT count(*) FROM run)"; }
whole=$(count "$BITRAIN_STORE")
sqlite3 "$BITRAIN_STORE" ".backup '$d/r.db'"
: > "$d/r.db.lock"
size=$(stat -c %s "$d/r.db")
dd if=/dev/urandom of="$d/r.db" bs=4096 seek=$((size / 8192)) count=$((size / 16384)) conv=notrunc status=none
cp "$d/r.db" "$d/s.db" && : > "$d/s.db.lock"
expect 0 "rows saved from the damaged file, 0 that only a backup had; some rows are lost" "$BITRAIN" runs repair --store "$d/r.db"
expect 0 "nothing to repair" "$BITRAIN" runs repair --store "$d/r.db"
damaged=$(ls "$d"/r.db.corrupt-* | grep -v -e -wal -e -shm)
[ -s "$damaged" ] || fail "the damaged file is not kept"
[ "$(count "$d/r.db" | cut -d' ' -f2)" -gt 0 ] || fail "no rank row was saved"
[ "$(count "$d/r.db")" != "$whole" ] || fail "nothing was damaged: the test shows nothing"
cp "$BITRAIN_STORE" "$d/s.db.backup"
expect 0 "[1-9][0-9]* that only a backup had" "$BITRAIN" runs repair --store "$d/s.db"
[ "$(count "$d/s.db")" = "$whole" ] || fail "file and backup together have $(count "$d/s.db"), not $whole"
expect 0 "^abl-3 .*paper v2" "$BITRAIN" runs --store "$d/s.db"
# A backup in which the same numbers belong to other runs restores nothing.
sqlite3 "$d/s.db.backup" "UPDATE run SET name = 'other-' || name"
cp "$damaged" "$d/u.db" && cp "$d/s.db.backup" "$d/u.db.backup"
expect 0 " 0 that only a backup had" "$BITRAIN" runs repair --store "$d/u.db"

[ $n_failed -eq 0 ] && echo ok
# Every command of store/QUERIES.md works as printed.
n_typed=0
while read -r line; do
    n_typed=$((n_typed + 1))
    (bitrain() { "$BITRAIN" "$@"; }; eval "$line") > "$d/out" 2> "$d/err" < /dev/null || { fail "of store/QUERIES.md: $line"; cat "$d/err"; }
done < <(sed -n '/^```sh/,/^```/p' "$BT_SRC/store/QUERIES.md" | grep '^bitrain')
[ "$n_typed" = 11 ] || fail "store/QUERIES.md has $n_typed commands, not eleven"
expect 2 "--follow is for --format tensorboard" "$BITRAIN" export base-1 --follow
exit $((n_failed > 0))
