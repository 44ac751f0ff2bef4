#!/usr/bin/env bash
# ctest: timeout=120 labels=mpi waits
# Ranks with different processors train together with the fastest kernels that all of them support, and report that
# once; a setting that differs is refused by name; weights that differ between replicas end a run and leave a usable
# checkpoint.
. "$BT_SRC/tests/cli/train_lib.sh"
n=$((${#tiny[@]} - 2))
direct=("${tiny[@]:0:n}" --steps 12) # the words before "--ranks 2"
mpi=(mpirun --bind-to none --mca pml ob1 --mca btl self,vader --mca orte_tmpdir_base "$TMPDIR" --mca prte_tmpdir_base "$TMPDIR" --timeout 60)
# two WORDS... -- WORDS...: runs `bitrain train` on two ranks with different words. A script chooses between them,
# because "mpirun A : B" of Debian 13 (PRRTE 3.0.8) ends with a segmentation fault, even for two `hostname`.
two() {
    local first=() n=0
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    printf '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec %s\n' "$(printf '%q ' "$BITRAIN" train "${direct[@]}" "${first[@]}")" >two.sh
    printf 'exec %s\n' "$(printf '%q ' "$BITRAIN" train "${direct[@]}" "$@")" >>two.sh
    "${mpi[@]}" -n 2 bash two.sh >out 2>err
}
isas() { q "SELECT group_concat(isa, ' ') FROM (SELECT isa FROM ranks WHERE run='$1'
    AND attempt = (SELECT max(attempt) FROM ranks WHERE run='$1') ORDER BY rank)"; }
note() { q "SELECT title FROM events WHERE run='$1' AND kind='kernels'"; }
fact() { q "SELECT value FROM facts WHERE run='$1' AND key='$2'"; }
host=$(uname -n)

# kernel sets of this machine
can() { grep -qw "$1" /proc/cpuinfo; }
if can avx2 && can fma && can f16c; then
    ok train "${direct[@]}" --ranks 2 --isa avx2 --name avx2
    losses avx2 >avx2.txt
    if can avx512f && can avx512bw && can avx512vl && can avx512dq; then
        two --isa avx2 --name mixed -- --isa avx512 || fault "avx2 beside avx512: exit $?: $(tail -n 3 err)"
        says "run mixed done after step 12"
        [ "$(isas mixed)" = "avx2 avx2" ] || fault "avx2 beside avx512 train with '$(isas mixed)'"
        losses mixed | cmp -s - avx2.txt || fault "avx2 beside avx512 are not two ranks of avx2"
        note mixed | grep -q "all ranks compute with avx2 kernels: rank 0 on host '$host' was given --isa avx2 (rank 1 could use" ||
            fault "the event of unlike ranks: $(note mixed)"
        [ "$(note mixed | wc -l)" = 1 ] || fault "reported more than once"
        [ "$(fact mixed isa)" = avx2 ] || fault "the fact 'isa' is '$(fact mixed isa)'"
        fact mixed isa.processors | grep -Eq '^(avx512|avx512-vnni|amx) on ranks 0-1$' || fault "what processors have: $(fact mixed isa.processors)"
        # The ranks are exchanged; the other rank uses the int8 gradients that rank 0 alone would choose.
        two --isa avx512 --name turned -- --isa avx2 || fault "avx512 beside avx2: exit $?: $(tail -n 3 err)"
        losses turned | cmp -s - avx2.txt || fault "avx512 beside avx2 are not two ranks of avx2"
    else
        echo "this processor has no AVX-512: avx2 beside avx512 is left out"
    fi
    # Attention defaults to int8 only if every rank has VNNI.
    ok train "${direct[@]}" --ranks 2 --isa avx2-plain --name plain
    losses plain >plain.txt
    two --isa avx2 --name some -- --isa avx2-plain || fault "VNNI beside none: exit $?: $(tail -n 3 err)"
    losses some | cmp -s - plain.txt || fault "attention differs from that of ranks without VNNI"
    if can avx_vnni; then
        cmp -s avx2.txt plain.txt && fault "attention of floats where all have VNNI"
        ok train "${direct[@]}" --ranks 2 --isa avx2-plain --set train.attention=int8 --name chosen
        says "train.attention=int8 is slower than float on this processor with --isa avx2-plain (train.attention=auto"
        losses chosen | cmp -s - avx2.txt || fault "int8 attention has other bits without VNNI"
    fi
    # A weaker processor, under the supervisor and without it; a resumed run ignores the processors of earlier ranks.
    BITRAIN_TEST_PROCESSOR=1:generic ok train "${direct[@]}" --ranks 2 --name lesser
    [ "$(isas lesser)" = "generic generic" ] || fault "beside a lesser processor: '$(isas lesser)'"
    note lesser | grep -q "the processor of rank 1 on host '$host' has no better" || fault "the event of a lesser processor: $(note lesser)"
    fact lesser isa.processors | grep -Eq ' on rank 0,? generic on rank 1$' || fault "what processors have: $(fact lesser isa.processors)"
    BITRAIN_TEST_PROCESSOR=1:generic "${mpi[@]}" -n 2 "$BITRAIN" train "${direct[@]}" --stop-after 5 --name again >out 2>err ||
        fault "beside a lesser processor: exit $?"
    [ "$(isas again)" = "generic generic" ] || fault "beside a lesser processor: '$(isas again)'"
    ok train --resume again --threads 1 --ranks 2
    [ "$(isas again | grep -c generic)" = 0 ] || fault "a resumed run keeps the kernels of processors that are gone: $(isas again)"
    # The missing features of a processor are reported once, with rank and host.
    BITRAIN_TEST_PROCESSOR=1:generic two --name never -- --isa avx2
    [ $? -eq 1 ] || fault "--isa that a processor lacks: exit is not 1"
    [ "$(grep -c "kernel set 'avx2' does not run on this processor (.*): choose another with --isa (rank 1 on host '$host')" err)" = 1 ] || fault "who lacks it: $(cat err)"
    BITRAIN_TEST_PROCESSOR=1:generic code 1 train "${direct[@]}" --ranks 2 --isa avx2 --name never
    [ "$(grep -c "(rank 1 on host '$host')" err)" = 1 ] || fault "under the supervisor, who lacks it: $(cat err)"
else
    echo "this processor has no AVX2: ranks with unlike kernels are left out"
fi

# A setting that differs is refused by its name; settings that do not matter may differ.
two --lr 1e-3 --name same -- --lr 2e-3
[ $? -eq 2 ] || fault "another learning rate: exit is not 2"
[ "$(grep -c "differ in optim.lr: it is '0.002' on rank 1 (host '$host') and '0.001' on rank 0 (host '$host')" err)" = 1 ] || fault "another learning rate: $(cat err)"
[ "$(q "SELECT count(*) FROM runs WHERE run='same'")" = 0 ] || fault "a refused job leaves a run"
two --dry-run -- --steps 12
[ $? -eq 2 ] || fault "one rank of two prints a plan: exit is not 2"
two --name free --note one -- --quiet --store "$tmp/other.db" --set launch.memory_check=false --threads 2 ||
    fault "what does not matter is refused: $(tail -n 3 err)"
says "run free done after step 12"

# A bit flips in one rank's weights: the run ends before it saves them, after it has saved weights that were compared.
BITRAIN_TEST_FLIP=1:7:layers.0.ffn_up code 5 train "${direct[@]}" --ranks 2 --ckpt-every 5 --check-weights 5 --name flipped
says "the replicas' weights differ after step 10: 'layers.0.ffn_up' is not the same on rank 0 (host '$host') and rank 1"
[ "$(q "SELECT group_concat(step) FROM checkpoints WHERE run='flipped'")" = 5 ] || fault "checkpoints of unequal weights"
# If the fault does not recur, a second attempt shows which rank was at fault; here it recurs.
[ "$(q "SELECT group_concat(from_step) FROM attempts WHERE run='flipped'")" = 0,5 ] || fault "attempts after unequal weights: $(q "SELECT attempt, from_step FROM attempts WHERE run='flipped'")"
ok train "${direct[@]}" --ranks 2 --name whole
ok train --resume flipped --threads 1 --ranks 2
losses whole >whole.txt
losses flipped | cmp -s - whole.txt || fault "resumed after unequal weights: other losses"
BITRAIN_TEST_FLIP=0:3:embed two --check-weights 2 --name bent -- --check-weights 2
[ $? -eq 5 ] || fault "unequal weights in a direct run: exit is not 5"
[ "$(grep -c "bitrain train: rank .*weights differ after step 4: 'embed'" err)" = 1 ] || fault "unequal weights are reported: $(cat err)"
BITRAIN_TEST_FLIP=1:7:embed ok train "${direct[@]}" --ranks 2 --check-weights 0 --name blind
rm -rf "$TMPDIR"/ompi.* # folders of mpirun
finish
