#!/usr/bin/env bash
# islands_slow.sh - how much an island that is SLOW times slower (4) delays another island, and how soon a killed island
# is back. Two asynchronous islands (--staleness -1) of one rank on this machine, SECONDS_EACH (8) per phase: both at
# full speed, then one of them SLOW times slower (it sleeps). The result is the other island's steps per second in the
# second phase relative to the first; the phases are measured in turn ROUNDS (3) times, so that other load affects both
# equally. Then island b is killed with -9 KILLS (5) times: the script prints the seconds from the start of its next
# attempt until the hub has its first update again, and the steps of island a that were lost meanwhile.
#
#     BITRAIN=build/bitrain tests/bench/islands_slow.sh     takes about two minutes
BT_SRC=${BT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BITRAIN=$(realpath "${BITRAIN:-$BT_SRC/build/bitrain}")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 BITRAIN
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
slow=${SLOW:-4} each=${SECONDS_EACH:-8} rounds=${ROUNDS:-3} kills=${KILLS:-5} limit=300
job=(--mode ps --staleness -1 --steps 100000000 --lr 1e-4 --lr-schedule constant --batch-tokens 4096 --eval-every 1000000
     --set train.eval_tokens=64)

pair() { # FACTOR: that of island b
    rm -rf out-* hub-out ./*.db* ./*.err
    start_hub --islands 2 --name hub --grace 1
    start_island a "${job[@]}"; process[a]=$island
    export BITRAIN_TEST_SLOW=0:$1 # slows the rank of island b, also in later attempts
    start_island b "${job[@]}"; process[b]=$island
    unset BITRAIN_TEST_SLOW
    until_step a 20
    until_step b 5
}
stop_all() {
    kill "${process[@]}" $hub 2>/dev/null
    wait "${process[@]}" $hub 2>/dev/null
}
rates() {                                       # $a, $b: steps a second of the islands within SECONDS_EACH
    local n m t now
    n=$(steps a) m=$(steps b) t=$(date +%s.%N)
    sleep "$each"
    a=$(($(steps a) - n)) b=$(($(steps b) - m)) now=$(date +%s.%N)
    a=$(awk "BEGIN { printf \"%.2f\", $a / ($now - $t) }") b=$(awk "BEGIN { printf \"%.2f\", $b / ($now - $t) }")
}
echo "load $(cut -d' ' -f1 /proc/loadavg)"
for r in $(seq "$rounds"); do
    for factor in 1 "$slow"; do
        pair "$factor"
        rates
        echo "$r $factor $a $b" >>rates
        echo "round $r: island b $factor times slower: a $a steps/s, b $b steps/s"
        stop_all
    done
done
awk '$2 == 1 { calm[$1] = $3 } $2 != 1 { x[++n] = 100 * $3 / calm[$1] }
    END { for (i = 1; i <= n; i++) for (k = i + 1; k <= n; k++) if (x[k] < x[i]) { t = x[i]; x[i] = x[k]; x[k] = t }
        printf "the other island keeps %.1f %% of its speed (median; %.1f to %.1f; asked 95)\n", x[int((n + 1) / 2)], x[1], x[n] }' rates

pair 1
for k in $(seq "$kills"); do
    before=$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_joined' AND title LIKE '%isl-b%'")
    old=$(BITRAIN_STORE=b.db q "SELECT pid FROM ranks WHERE run='isl-b' ORDER BY attempt DESC LIMIT 1")
    kill -9 "$old"
    for i in $(seq 400); do
        [ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_joined' AND title LIKE '%isl-b%'")" -gt "$before" ] && break
        sleep 0.05
    done
    until_step b $(($(steps b) + 5))
done
# The supervisor's record of the time at which it started the ranks again, and the first step of that attempt.
BITRAIN_STORE=b.db q "SELECT printf('%.2f', min(s.time_s) - (a.started_s - r.started_s)) FROM attempts a JOIN runs r USING (run) JOIN steps s USING (run, attempt)
    WHERE a.attempt > 0 GROUP BY a.attempt" 2>/dev/null >back
echo "back after its start, s: $(sort -n back | tr '\n' ' ')(asked 2)"
last=$(steps a) # the run continues meanwhile, so only steps completed so far count
done_once=$(BITRAIN_STORE=a.db q "SELECT count(*) FROM steps WHERE run='isl-a' AND step < $last")
again=$(BITRAIN_STORE=a.db q "SELECT count(*) FROM events WHERE run='isl-a' AND (title LIKE '%left out%' OR title LIKE 'joined hub % again %')")
echo "island a lost $((last - done_once)) of $last steps, and did $again again"
stop_all
finish
