#!/bin/bash
# ctest: timeout=60
# The output of `plot` in a pipe, which has no colour, has one line without the band of minima and maxima, the usual
# values on the y axis, and marks for outliers at its edge.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/m.db" LC_ALL=C.UTF-8
bad() { echo "FAIL: $*"; exit 1; }
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" demo ranks=1 steps=4000 || exit 1
sqlite3 "$BITRAIN_STORE" "UPDATE step SET grad_norm = 1 + 8 * (step % 2); UPDATE step SET loss = loss + 500 WHERE step < 20"
out=$("$BITRAIN" plot demo grad_norm --size 80x18)
! grep -q '⣿' <<<"$out" || bad "a band of values from 1 to 9 fills the plot: $out"
out=$("$BITRAIN" plot demo loss --size 80x18)
grep -q '▲' <<<"$out" || bad "no mark for 20 losses above 500: $out"
! grep -q '^ *[0-9]00┤' <<<"$out" || bad "the first steps stretch the axis: $out"
grep -q 'max 50[0-9]' <<<"$out" || bad "the foot does not tell the outliers: $out"
out=$("$BITRAIN" plot demo loss --size 80x18 --all-y)
grep -q '^ *200┤' <<<"$out" || bad "--all-y does not show all: $out"
! grep -q '▲' <<<"$out" || bad "--all-y marks what it shows: $out"
# Curves of a file: the mean over seeds at common numbers of tokens, one line per recipe; bad lines are reported.
{
    printf '# made by hand\nrecipe\tcorpus\tseed\tminutes\ttokens\tbits_per_byte\n'
    for seed in 1 2; do for i in 1 2 3 4; do printf 'plain\tkjv\t%d\t%d\t%d\t%.3f\n' $seed $i $((i * 1000)) "$((8 - i)).$((seed * 50 - 25))"; done; done
    printf 'plain\tkjv\t1\t5\t5000\t3.5\nmuon\tkjv\t1\t2\t1000\t5.5\nmuon\tkjv\t1\t4\t4000\t3.25\n'
} >"$dir/c.tsv"
out=$("$BITRAIN" plot --curves "$dir/c.tsv" --json)
grep -q '"name":"plain","seeds":2,"points":\[{"minutes":1,"tokens":1000,"bits_per_byte":7.5}' <<<"$out" && ! grep -q 5000 <<<"$out" || bad "means of curves: $out"
out=$("$BITRAIN" plot --curves "$dir/c.tsv" --size 80x18)
grep -q 'ends: plain 4.5000 · muon 3.2500' <<<"$out" && grep -q '^ *6┤' <<<"$out" || bad "curves: $out"
# The same file imported as runs, which every view shows, with the last validations in nats; a second import is refused.
out=$("$BITRAIN" runs import "$dir/c.tsv" --store "$dir/c.db")
[ "$out" = $'c.plain\nc.muon' ] || bad "imported: $out"
out=$("$BITRAIN" runs group=c state:done --json --store "$dir/c.db")
grep -q '"run":"c.plain"' <<<"$out" && grep -q '"run":"c.muon"' <<<"$out" || bad "imported runs: $out"
out=$("$BITRAIN" query "SELECT run, max(tokens) AS t, round(min(val_loss), 4) AS v FROM steps GROUP BY run" --json --store "$dir/c.db")
grep -q 4000 <<<"$out" && grep -q 3.1192 <<<"$out" && grep -q 2.2527 <<<"$out" || bad "imported steps: $out"
out=$("$BITRAIN" runs import "$dir/c.tsv" --store "$dir/c.db" 2>&1)
[ $? = 4 ] && grep -q "c.plain" <<<"$out" && [ "$(wc -l <<<"$out")" = 1 ] || bad "imported twice: $out"
refused() { local out; out=$("$BITRAIN" plot "${@:3}" 2>&1); [ $? = "$1" ] && [ "$(wc -l <<<"$out")" = 1 ] && grep -q "$2" <<<"$out" || bad "${*:3}: $out"; }
refused 3 'cannot open' --curves "$dir/none.tsv"
refused 2 'not both' demo --curves "$dir/c.tsv"
printf 'plain\tkjv\tone\t1\t1\t1\n' >>"$dir/c.tsv"
refused 6 'line 14: not a recipe' --curves "$dir/c.tsv"
head -c 20 "$dir/m.db" >"$dir/junk"
refused 6 'line 1: not the columns' --curves "$dir/junk"
