#!/usr/bin/env bash
# ctest: timeout=3600 soak
# The hub of three islands is killed with -9 KILLS times (20), at moments drawn by SEED, while all updates are
# gradients, and then while they are deltas of own steps: no update is applied twice, no acknowledged update is lost,
# and replaying the log gives the hub's state.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
kills=${KILLS:-20} RANDOM=${SEED:-1} limit=3600

run() { # WORDS...: options of the islands
    local i k n
    rm -rf out-* hub-out ./*.db* ./*.err
    start_hub --islands 3 --name hub --grace 2
    for i in a b c; do
        start_island $i --steps 100000000 "$@"
        process[$i]=$island
    done
    until_step a 5
    for k in $(seq "$kills"); do
        n=$(steps a)
        sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"
        kill_hub
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
        hub_again --islands 3 --name hub --grace 2
        until_step a $((n + 1))
    done
    kill -0 "${process[@]}" $hub || fault "somebody has ended: $(tail -n 2 a.err b.err c.err hub.err)"
    [ "$(q "SELECT count(*) - max(step) - 1 FROM steps WHERE run='hub'")" -le 0 ] || fault "the hub has steps twice"
    end_and_count a b c
    echo "$kills kills: $*: $(q "SELECT max(step) + 1 FROM steps WHERE run='hub'") updates"
}
run --mode sync
run --mode diloco --inner 20 --codec int8 --set islands.warmup=10
exit $((faults > 0))
