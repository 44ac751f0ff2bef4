# ctest: timeout=120 labels=mpi
# run_islands_shown.sh - three islands with bounded staleness, one of which is killed and one four times slower, and a
# fourth that joins later: no island exceeds the bound, and SQL, `bitrain top` and JSON show members and events.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
bound=4
job=(--mode ps --staleness $bound --steps 1000000 --set launch.hang_s=0)

start_hub --islands 3 --name hub --grace 1
for i in a b; do start_island $i "${job[@]}"; process[$i]=$island; done
BITRAIN_TEST_SLOW=0:4 start_island c "${job[@]}"; process[c]=$island
for i in a b c; do until_step $i 10; done

# One island is killed: the others continue, and its supervisor restarts it.
kill -9 "$(BITRAIN_STORE=b.db q "SELECT pid FROM ranks WHERE run='isl-b' ORDER BY attempt DESC LIMIT 1")"
until_says hub.err "island 'isl-b' is declared dead"
n=$(steps a)
until_step a $((n + 10))
until_step b $((n + 10))

# A key is added while the hub runs; its island begins at the step of the slowest island.
b hub --keys keys d >/dev/null 2>err || fault "no key: $(cat err)"
n=$(steps c)
start_island d "${job[@]}"; process[d]=$island
until_says hub.err "island 'isl-d' on"
began=$(BITRAIN_STORE=d.db q "SELECT title FROM events WHERE run='isl-d' AND title LIKE 'joined hub %' LIMIT 1" | grep -o 'at step [0-9]*' | cut -d' ' -f3)
[ "${began:-0}" -ge "$n" ] || fault "island d began at step '$began', the slowest was at $n"
until_step d $((n + 20))
until_step a $((n + 20))

# At any moment the steps of two islands differ by at most the bound and one more step.
shown() { q "SELECT max(apart) FROM (SELECT max(steps) - min(steps) AS apart FROM islands WHERE run='hub' AND trains > 0 GROUP BY step)"; }
apart=$(shown)
awk -v x="${apart:-x}" -v most=$((bound + 1)) 'BEGIN { exit !(x != "x" && x + 0 <= most && x + 0 > 0) }' || fault "islands are '$apart' steps apart, the bound is $bound"
[ "$(q "SELECT sum(trains) FROM islands WHERE run='hub' AND step = (SELECT max(step) FROM islands WHERE run='hub')")" = 4 ] || fault "the newest rows have not four islands"
[ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_joined'")" = 5 ] || fault "not five joins: $(q "SELECT title FROM events WHERE run='hub'")"
[ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_lost' AND title LIKE '%isl-b%'")" = 1 ] || fault "island b was not lost once"

COLUMNS=130 LINES=36 ok top hub --screen islands
for text in '4 of 4 train' 'isl-a' 'isl-d' '5 joined' '1 lost' 'staleness of updates' 'declared dead'; do says "$text"; done
ok top hub --once --json
for text in '"islands":{' '"training":4' '"island":"isl-c"' '"staleness":[{'; do says "$text"; done
end_and_count a c
left=$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='island_left'")
[ "$left" = 4 ] || fault "$left islands reported that they left, not 4"
exit $((faults > 0))
