#!/bin/bash
# `plot` in a pipe, which has no colour: one line without its min-max band, the usual values on the y axis, outliers marked at its edge.
# timeout: 60
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
