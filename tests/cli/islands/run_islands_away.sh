# ctest: timeout=120 labels=mpi waits
# run_islands_away.sh - an island continues with its own steps, up to a limit, while the hub is unreachable, and its
# next delta includes them; if the hub never returns, the island saves a checkpoint and ends with one line.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
own=(--mode diloco --inner 200 --batch-tokens 128 --set islands.warmup=0 --set islands.outer_momentum=0 --codec int8 --steps 1000000 --warmup 0)

start_hub --islands 2 --name hub
start_island a "${own[@]}" --set islands.away=150; process[a]=$island
start_island b "${own[@]}" --set islands.away=150 --set islands.patience=8; process[b]=$island
until_step a 210
kill_hub
until_says a.err 'training continues without it for at most 150 steps'
until_says b.err 'training continues without it for at most 150 steps'
n=$(($(steps a) / 200 * 200)) # at most 150 steps since the update that waits for the hub
until_step a $((n + 20))
hub_again --islands 2 --name hub
for i in a b; do
    until_event $i "%has this island''s update; %done meanwhile are part of the next one%"
done
[ "$(grep -c "island 'isl-a' on .* joined" hub.err)" = 2 ] || fault "island a joined $(grep -c "island 'isl-a' on .* joined" hub.err) times"

# If the hub never returns, the island ends after 150 steps and 8 s.
kill_hub
wait_for "${process[b]}" 3 b
until_says b.err "the hub has not responded for"
grep -q 'islands.patience' b.err || fault "no setting is named: $(tail -n 3 b.err)"
[ -e out-b/latest ] || ls out-b/step-* >/dev/null 2>&1 || fault "island b left no checkpoint: $(ls out-b)"
hub_again --islands 1 --name hub
until_step a $((n + 450))
end_and_count a
exit $((faults > 0))
