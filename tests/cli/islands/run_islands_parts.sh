# run_islands_parts.sh - a hub of three processes, each with tensors of its own, is one hub: the same bits as of one process, in
# fragments too; a process killed with -9 costs no update, its checkpoint is of the whole; addresses that are missing or in another order
# are refused in one line.
# timeout: 240
# labels: mpi
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db

three=(mpirun -n 3 --bind-to none)
both() {                                        # both NAME WORDS...: runs two islands to the end, with the hub ${hub_by[@]}
    local name=$1; shift
    rm -rf out-* hub-out ./[abh]*.db*
    start_hub --islands 2
    start_island a --precision fp32 --steps 12 "$@"; local a=$island
    start_island b --precision fp32 --steps 12 "$@"; local b=$island
    wait_for $a 0 a
    wait_for $b 0 b
    wait_for $hub 0 hub
    for i in a b; do
        BITRAIN_STORE=$i.db q "SELECT step, printf('%.17g', loss), printf('%.17g', grad_norm) FROM steps WHERE run='isl-$i' ORDER BY step"
    done | sort >"$name"                        # The island that joins first has the first data.
    [ "$(wc -l <"$name")" = 24 ] || fault "$name has $(wc -l <"$name") steps, not 24"
}
same() {                                        # NAME WORDS...
    local name=$1; shift
    hub_by=()
    both one "$@"
    hub_by=("${three[@]}")
    both three "$@"
    [ "$(tr -cd , <address | wc -c)" = 2 ] || fault "the hub has not three addresses: $(cat address)"
    [ "$(ls hub-out/step-*/data-* | wc -l)" -ge 3 ] || fault "no file of each process: $(ls hub-out/step-*)"
    cmp -s one three || fault "$name: three processes are not one: $(diff one three | head -n 4)"
}
same ps --mode ps --set model.vocab=2048
same diloco --mode diloco --inner 5 --set islands.warmup=5 --codec int8
# A fragment contains tensors of some processes, and none of the remaining ones.
same fragments --mode diloco --inner 4 --set islands.warmup=2 --set islands.fragments=4 --set islands.overlap=1 --codec int8

# A mismatch is reported.
rm -rf hub-out out-* o ./*.db*
start_hub --islands 1 --name hub
code 4 train "${part[@]}" --ranks 1 --steps 5 --hub "${address%%,*}" --keys keys/a.key --store o.db --out o
says 'this hub is 3 processes'
IFS=, read -r first second third <<<"$address"
code 4 train "${part[@]}" --ranks 1 --steps 5 --hub "$second,$first,$third" --keys keys/a.key --store o.db --out o
says 'in the order in which the hub prints them'
code 4 train "${part[@]}" --ranks 1 --steps 5 --hub "$first,$third,$second" --keys keys/a.key --store o.db --out o
says 'in the order in which the hub prints them'
kill_hub

# one of three processes dies, and so the hub; it is started again, also as one process
rm -rf hub-out out-* o ./*.db*
start_hub --islands 2 --name hub --grace 1
start_island a --steps 1000000; process[a]=$island
start_island b --steps 1000000; process[b]=$island
until_step a 10
kill -9 "$(pgrep -P $hub | tail -n 1)"
wait $hub 2>/dev/null
n=$(steps a)
hub_again --islands 2 --name hub --grace 1
until_says hub.err 'of them from its log'
until_step a $((n + 10))
until_step b $((n + 10))
kill "${process[@]}"
wait "${process[@]}"
kill "$(pgrep -P $hub | head -n 1)"             # the first process decides
wait $hub
last=$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")
"$BITRAIN" hub --listen 127.0.0.1:0 --keys keys --store copy.db --out hub-out >copy.address 2>copy.err &
copy=$!
started+=($copy)
until_says copy.err "the hub continues after update $last, 0 of them from its log"
kill $copy
wait $copy
exit $((faults > 0))
