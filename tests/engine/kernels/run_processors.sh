#!/usr/bin/env bash
# ctest: timeout=600 labels=kernels
# Runs the tests of the kernels and of their selection for older kinds of processors: BITRAIN_TEST_CPU hides the
# features that a kind lacks (engine/kernels/table/cpu.c). A feature that this processor lacks is not tested.
# BT_TEST_SET limits the slow tests to the set that the kind selects, because all other sets are tested without a kind.
# The test engine.model.step covers whole steps of blas, avx2-plain and avx512-plain, which the kinds westmere, haswell
# and skylake select; only this script covers icelake's set (VNNI without bf16).
set -u
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BT_TEST_ORACLE=$work/oracle # The results of the generic set are the same for every kind.
# kind, then the kernel set that it selects on a processor with all features, and on one without AVX-512
kinds=("westmere blas blas" "haswell avx2 avx2" "skylake avx512 avx2" "icelake avx512 avx2" "zen4 avx512 avx2")
programs=("$BT_BIN"/tests/t.engine.kernels.* "$BT_BIN"/tests/t.engine.{config.rounding,model.gradients}
    "$BT_BIN"/tests/t.engine.update.*)
grep -q avx2 /proc/cpuinfo || { echo "SKIP: this processor has no AVX2: there is nothing to leave out"; exit 77; }

bad() {
    echo "FAIL: $*"
    failed=1
}

for row in "${kinds[@]}"; do
    read -r kind all less <<<"$row"
    export BITRAIN_TEST_CPU=$kind
    want=$all
    grep -q avx512vl /proc/cpuinfo || want=$less
    got=$("$BITRAIN" doctor 2>/dev/null | sed -n 's/.*fastest set in use: //p')
    export BT_TEST_SET=$want
    [ "$got" = "$want" ] || bad "a processor like $kind uses '$got', not $want"
    steps=
    [ "$kind" != icelake ] || steps=$BT_BIN/tests/t.engine.model.step
    for program in "${programs[@]}" $steps; do
        [ -x "$program" ] || continue
        (cd "$work" && "$program" >out 2>&1)
        status=$?
        [ $status -eq 0 ] || [ $status -eq 77 ] || { bad "$(basename "$program") on one like $kind: $status"; tail -20 "$work/out"; }
    done
done
exit $failed
