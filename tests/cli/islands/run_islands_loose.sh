# ctest: timeout=120 labels=mpi
# run_islands_loose.sh - islands that do not step together: bounded staleness, asynchronous updates, local steps with
# int8 in both directions; and the hub's record of them.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db

pair() { # WORDS...: runs two islands to their end
    rm -rf out-* hub-out ./*.db*
    start_hub --islands 2 --name hub
    start_island a "$@"; local a=$island
    start_island b "$@"; local b=$island
    wait_for $a 0 a
    wait_for $b 0 b
    wait_for $hub 0 hub
}
final() { BITRAIN_STORE=$1.db q "SELECT loss FROM steps WHERE run='isl-$1' ORDER BY step DESC LIMIT 1"; }
learned() { # both islands are below their initial loss of 4.16 nats
    local i l
    for i in a b; do
        l=$(final $i)
        awk -v l="$l" 'BEGIN { exit !(l != "" && l < 4.0) }' || fault "$1: island $i ends at '$l'"
    done
}

pair --mode ps --staleness 2 --steps 40
learned ssp
[ "$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")" = 80 ] || fault "the hub's run has not 80 updates"
# The two islands are at most two steps apart, so no update is older than five updates of the other island.
[ "$(q "SELECT max(staleness) <= 5 AND sum(updates) = 80 FROM staleness WHERE run='hub' AND step=79")" = 1 ] ||
    fault "staleness: $(q "SELECT * FROM staleness WHERE run='hub' AND step=79")"
[ "$(q "SELECT count(*) FROM islands WHERE run='hub' AND step=79 AND steps=40")" -ge 1 ] || fault "the islands are not in the database"
[ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_joined'")" = 2 ] || fault "no island joined"

pair --mode ps --staleness -1 --steps 40 --set optim.weights=bf16
learned async

pair --mode diloco --inner 10 --set islands.warmup=10 --codec int8 --steps 50
learned diloco
# The islands make ten steps together, then four rounds of ten.
[ "$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")" = 14 ] || fault "the hub's run has not 14 updates"

# Deltas are sent in two fragments of 8 bits, each every ten steps, while two further steps are made.
pair --mode diloco --inner 10 --set islands.warmup=10 --set islands.fragments=2 --set islands.overlap=2 --codec int8 --steps 50
learned fragments
[ "$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")" = 18 ] || fault "the hub's run has not 18 updates"

# Further steps are made while an update is sent.
pair --mode diloco --inner 10 --set islands.warmup=10 --set islands.overlap=-1 --codec int8 --steps 50 --set optim.weights=bf16 --set optim.states=log8
learned overlap
[ "$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")" = 14 ] || fault "the hub's run has not 14 updates with an open overlap"
for i in a b; do
    [ "$(BITRAIN_STORE=$i.db q "SELECT count(*) || ' ' || max(step) FROM steps WHERE run='isl-$i'")" = "50 49" ] || fault "island $i has not done its 50 steps once"
done
exit $((faults > 0))
