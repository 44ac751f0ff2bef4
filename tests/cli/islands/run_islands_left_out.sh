# ctest: timeout=240 labels=mpi waits
# run_islands_left_out.sh - a round of three islands continues with two of them while the third does not compute. The
# hub rejects late updates and a delta damaged by a flipped bit; the island reports them, both count them equally, and
# they do not affect later updates.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_TEST_DELAY=10 # the delay keeps a fast machine from ending before it is disturbed
export BITRAIN_STORE=hub.db

rank_of() { BITRAIN_STORE=$1.db q "SELECT pid FROM ranks WHERE run='isl-$1' ORDER BY attempt DESC LIMIT 1"; }
last_event() { BITRAIN_STORE=$1.db q "SELECT title FROM events WHERE run='isl-$1' AND title LIKE 'hub % has applied %' ORDER BY rowid DESC LIMIT 1"; }
hub_counts() { q "SELECT updates, left_out FROM islands WHERE run='hub' AND island='isl-$1' ORDER BY step DESC LIMIT 1"; }
# both_count NAME REASON: the island and its hub have the same numbers, and at least one update was left out for this
# reason
both_count() {
    local told of left
    told=$(last_event "$1")
    of=$(grep -o '[0-9]* updates' <<<"$told" | cut -d' ' -f1)
    left=$(grep -o '[0-9]* left out' <<<"$told" | cut -d' ' -f1)
    [ "$of,$left" = "$(hub_counts "$1")" ] || fault "island $1 prints '$told', the hub counts '$(hub_counts "$1")'"
    [[ -z $2 && $left = 0 ]] || { [ "${left:-0}" -ge 1 ] && [[ $told == *"$2"* ]]; } || fault "island $1 does not print '$2': '$told'"
}
run() { # AFTER STEPS WORDS...: runs three islands, of which the third is stopped after its step AFTER
    local after=$1 further=$2; shift 2 # until the first island has made this many more steps
    rm -rf out-* hub-out ./*.db* ./*.err
    start_hub --islands 3 --quorum 2 --quorum-wait 0.2 --late 1 --grace 60 --name hub
    for i in a b c; do
        start_island $i --set launch.hang_s=0 "$@"
        process[$i]=$island
    done
    until_step c "$after"
    kill -STOP "$(rank_of c)"
    n=$(steps a)
    until_says hub.err 'continues with 2 of 3 islands'
    until_step a $((n + further))
    kill -CONT "$(rank_of c)"
}
all_end() { # all_end REASON: the reason given to the third island
    for i in a b c; do wait_for "${process[$i]}" 0 $i; done
    wait_for $hub 0 hub
    both_count c "$1"
    BITRAIN_STORE=c.db q "SELECT level || ': ' || title FROM events WHERE run='isl-c'" | grep -q "^warning: hub '.*rejected this island's newest update" ||
        fault "no event of island c: $(BITRAIN_STORE=c.db q "SELECT title FROM events WHERE run='isl-c'" | tail -n 3)"
    [ "$(q "SELECT count(*) > 0 FROM events WHERE run='hub' AND kind='island_late'")" = 1 ] || fault "no event of the hub"
    # Each step of the island counts once, however often it was repeated.
    [ "$(BITRAIN_STORE=c.db q "SELECT count(*) = max(step) + 1 FROM steps WHERE run='isl-c'")" = 1 ] || fault "the steps of island c have gaps"
}
run 4 4 --mode sync --steps 30
all_end closed
run 5 20 --mode diloco --inner 5 --set islands.warmup=0 --codec int8 --steps 60
all_end late

# The first weight of the embedding becomes huge before the last step of a round: that step is bad, and the delta is
# rejected as poisoned.
pair() {                                        # STEP WORDS...
    local at=$1; shift
    rm -rf out-* hub-out ./*.db* ./*.err
    start_hub --islands 2 --name hub
    BITRAIN_TEST_FLIP=0:$at:embed:30 start_island a --mode diloco --inner 10 --set islands.warmup=0 --steps 100 "$@"
    process[a]=$island
    start_island b --mode diloco --inner 10 --set islands.warmup=0 --steps 100 "$@"
    process[b]=$island
    for i in a b; do wait_for "${process[$i]}" 0 $i; done
    wait_for $hub 0 hub
    both_count a '1 poisoned'
    both_count b ''
    grep -q "island 'isl-a' its update of step [45]0 is poisoned" hub.err || fault "$*: the hub does not report: $(cat hub.err)"
    [ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='refused'")" = 1 ] || fault "$*: more than one update is poisoned: $(cat hub.err)"
    loss=$(BITRAIN_STORE=a.db q "SELECT loss FROM steps WHERE run='isl-a' ORDER BY step DESC LIMIT 1")
    awk -v l="$loss" 'BEGIN { exit !(l != "" && l < 4.0) }' || fault "$*: island a ends at '$loss'"
}
pair 49 --codec int8
pair 44 --codec int8 --set islands.fragments=2 --set islands.overlap=2
exit $((faults > 0))
