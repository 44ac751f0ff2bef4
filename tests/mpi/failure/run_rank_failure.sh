#!/usr/bin/env bash
# ctest: ranks=2 timeout=60 labels=mpi
# If a unit test fails on one of several ranks, the job ends and shows the reason, although the other ranks wait in an
# exchange.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
run() { mpirun -np 2 --bind-to none --mca pml ob1 --mca btl self,vader --mca odls_base_sigkill_timeout 0 --timeout 40 "$BT_BIN/tests/one_rank_fails" "$@" >"$tmp/out" 2>&1; }
fault() { echo "FAULT: $*"; cat "$tmp/out"; exit 1; }
run calm || fault "exit $? of a test that passes"
run
got=$?
[ $got -eq 1 ] || fault "exit $got, not 1"
grep -q "FAILED  . one_does_not_come" "$tmp/out" || fault "the test that failed is not named"
grep -q "one_rank_fails.c:[0-9]*: error" "$tmp/out" || fault "the line is not named"
if grep -q "time limit" "$tmp/out"; then fault "it waited until the time was over"; fi
exit 0
