# ctest: timeout=240 labels=mpi
# run_islands_bytes.sh - the bytes that an island and its hub exchange for a step of training, with 50 own steps between
# two exchanges and int8 in both directions, are at most 1/190 of the bytes that a rank of data-parallel training with
# fp32 gradients sends and receives. The difference between a longer and a shorter run excludes the weights that an
# island receives once when it joins.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
big=(--precision fp32 --set model.vocab=8192 --set model.d_model=64 --batch-tokens 64 --micro-batch 1 --seq-len 32 --eval-every 1000000 --set train.eval_tokens=64)

bytes() { # STEPS WORDS...: prints the bytes of all messages of the run's islands
    local n=$1; shift
    rm -rf out-* hub-out ./[abh]*.db*
    start_hub --islands 2 --name hub
    for i in a b; do
        start_island $i "${big[@]}" --mode diloco --inner 50 --set islands.warmup=0 --steps "$n" "$@"
        process[$i]=$island
        until_says hub.err "island 'isl-$i' on" # only the first island sends the first weights
    done
    for i in a b; do wait_for "${process[$i]}" 0 $i; done
    wait_for $hub 0 hub
    told=$(q "SELECT value FROM facts WHERE run='hub' AND key='islands.bytes_both_ways'")
}
ok train "${part[@]}" "${big[@]}" --steps 4 --ranks 2 --batch-tokens 128 --codec none --name dp --store dp.db --out out-dp
# A rank receives as many bytes as it sends.
plain=$(BITRAIN_STORE=dp.db q "SELECT 2 * bytes_wire FROM rank_steps WHERE run='dp' AND rank=0 ORDER BY step DESC LIMIT 1")
against() {                                     # CODEC LEAST
    bytes 100 --codec "$1"; local short=$told
    bytes 300 --codec "$1"
    awk -v more="$((told - short))" -v plain="$plain" -v least="$2" -v codec="$1" 'BEGIN {
        each = more / 200 / 2
        printf "%s: %.0f bytes a step and island, fp32 data parallel %.0f: 1/%.0f\n", codec, each, plain, plain / each
        exit !(each > 0 && plain / each >= least) }' || fault "$1: more than 1/$2"
}
against int8 190
exit $((faults > 0))
