# ctest: timeout=120 labels=mpi waits
# run_islands_killed.sh - an island killed with -9 delays no other island and returns; a hub killed with -9 continues
# from its log, without losing or repeating an acknowledged update.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db

start_hub --islands 2 --name hub --grace 1
start_island a --steps 1000000; process[a]=$island
start_island b --steps 1000000; process[b]=$island
until_step a 10
kill -9 "$(BITRAIN_STORE=b.db q "SELECT pid FROM ranks WHERE run='isl-b' ORDER BY attempt DESC LIMIT 1")"
n=$(steps a)
until_step a $((n + 20))
until_step b $((n + 20)) # its supervisor has started it again
grep -q "island 'isl-b' is declared dead" hub.err || fault "no message reports the loss of island b"
[ "$(grep -c "island 'isl-b' on .* joined" hub.err)" -ge 2 ] || fault "island b did not join again"

# The hub is killed three times.
for k in 1 2 3; do
    kill_hub
    hub_again --islands 2 --name hub --grace 1
    for i in $(seq 400); do [ "$(grep -c 'continues after update' hub.err)" -ge $k ] && break; sleep 0.1; done
    # Counts steps of the present hub, because the database may lack the newest steps of the previous one.
    n=$(grep -o 'continues after update [0-9]*' hub.err | tail -n 1 | grep -o '[0-9]*$')
    until_step a $((n + 10))
    until_step b $((n + 10))
done
kill -0 "${process[a]}" "${process[b]}" $hub || fault "somebody has ended: $(tail -n 2 a.err b.err hub.err)"
# The hub's steps have no gap, and it never fell behind an acknowledgement, so no update is repeated or missing.
gaps=$(q "SELECT count(*) - max(step) - 1 FROM steps WHERE run='hub'")
[ "${gaps:-x}" -le 0 ] || fault "the hub has steps twice: $gaps"
end_and_count a
last=$(q "SELECT max(step) + 1 FROM steps WHERE run='hub'")
for i in a b; do
    [ "$(steps $i)" -le "$last" ] || fault "island $i has acknowledgements of $(steps $i) updates, the hub has $last"
done
exit $((faults > 0))
