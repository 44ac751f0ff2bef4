# ctest: timeout=240 labels=mpi
# run_islands_sync.sh - two islands that step together are one job: the losses equal those of one run, to the last bit
# in reproducible training and to 1e-4 otherwise, also if one island uses AVX2 and the other AVX-512.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"

a_words=() b_words=()
both() { # WORDS...: runs the two islands and the whole job for 20 steps
    rm -rf out-* hub-out ./*.db*
    start_hub --islands 2
    start_island a --steps 20 "$@" "${a_words[@]}"; local a=$island
    start_island b --steps 20 "$@" "${b_words[@]}"; local b=$island
    timeout 100 "$BITRAIN" train "${part[@]}" --steps 20 "$@" --batch-tokens 1024 --ranks 2 --name whole --store w.db --out out-w \
        >w.out 2>w.err || fault "the whole job: $(cat w.err)"
    wait_for $a 0 a
    wait_for $b 0 b
    wait_for $hub 0 hub # the job is done
}
means() { BITRAIN_STORE=$1 q "SELECT step, printf('%.17g', loss), printf('%.17g', grad_norm) FROM steps WHERE run='$2' ORDER BY step"; }
# Prints the largest difference between the mean of a and b, and w: of losses, and of gradient norms.
difference() {
    paste -d, <(means a.db isl-a) <(means b.db isl-b) <(means w.db whole) |
        awk -F, -v most="$1" 'function abs(x) { return x < 0 ? -x : x }
            { d = abs(($2 + $5) / 2 - $8); e = abs($3 - $9); if (d > worst) worst = d; if (e > norm) norm = e; n++ }
            END { printf "%d steps, losses differ by %g, norms by %g\n", n, worst, norm; exit !(n == 20 && worst <= most && norm <= 100 * most) }'
}

# One island divides its weights over two ranks, and one its layers; an update has several chunks.
ranks=2 a_words=(--zero 3 --dp-shard 2) b_words=(--tp 2)
both --precision fp32 --set train.reproducible=true --set train.unit=4 --set model.vocab=2048
difference 1e-14 || fault "reproducible islands of two ranks are not one job"
ranks=1 a_words=() b_words=()
both --precision fp32 --lr 1e-3 --warmup 10
difference 1e-4 || fault "islands are not one job"

# On different processors float kernels round differently, so the losses are only near each other. Islands need not
# agree on a kernel set.
can() { grep -qwm1 "$1" /proc/cpuinfo; }
if can avx2 && can avx512f && can avx512bw && can avx512vl && can avx512dq; then
    a_words=(--isa avx2) b_words=(--isa avx512)
    both --precision fp32 --lr 1e-3 --warmup 10
    difference 1e-2 || fault "islands with AVX2 and with AVX-512 are not one job"
    isas="$(for i in a b; do BITRAIN_STORE=$i.db q "SELECT DISTINCT isa FROM ranks WHERE run='isl-$i'"; done | tr '\n' ' ')"
    [ "$isas" = "avx2 avx512 " ] || fault "the islands train with '$isas'"
else
    echo "this processor has not both AVX2 and AVX-512: their islands are not tested together"
fi
exit $((faults > 0))
