# ctest: timeout=240 labels=mpi waits
# run_islands_guard.sh - a hub whose process dies by a signal (abort() of a library, the kernel, a user) continues in a
# new process at the same address, with no acknowledged update lost or applied twice; each restart is reported, and
# restarts end if they do not help; the serving process ends with its guard.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
ulimit -c 0 # no core files
export BITRAIN_TEST_DELAY=10

start_hub --islands 2 --name hub --grace 1
start_island a --steps 1000000; process[a]=$island
start_island b --steps 1000000; process[b]=$island
until_step a 10
for sig in ABRT SEGV KILL ABRT; do
    old=$(serving) n=$(steps a)
    kill -$sig "$old" || fault "nothing serves: $(cat hub.err)"
    until_step a $((n + 10))
    until_step b $((n + 10))
    [ "$(serving)" != "$old" ] || fault "the process that was ended by SIG$sig still serves"
done
kill -0 "${process[a]}" "${process[b]}" $hub || fault "somebody has ended: $(tail -n 2 a.err b.err hub.err)"
for sig in 6 11 9; do grep -q "ended by signal $sig (.*); it is started again" hub.err || fault "no message reports signal $sig: $(cat hub.err)"; done
[ "$(q "SELECT count(*) FROM events WHERE run='hub' AND kind='restarted'")" = 4 ] || fault "not four restarts: $(q "SELECT title FROM events WHERE run='hub'")"
[ "$(wc -l <address)" = 1 ] || fault "the address is printed again: $(cat address)"
[ "$(q "SELECT count(*) - max(step) - 1 FROM steps WHERE run='hub'")" -le 0 ] || fault "the hub has steps twice"
end_and_count a b
[ -z "$(serving)" ] || fault "a process serves after the hub's end"

# The guard itself is killed with -9, and the serving process ends too.
rm -rf hub-out out-* ./*.db*
start_hub --islands 1 --name hub
old=$(serving)
kill_hub
for i in $(seq 100); do kill -0 "$old" 2>/dev/null || break; sleep 0.05; done
! kill -0 "$old" 2>/dev/null || fault "process $old of a hub that was killed is left"

# The hub is killed repeatedly without an update in between.
n=$(grep -c 'a new hub waits' hub.err) # the killed process may not have printed it
hub_again --islands 1 --name hub --restarts 1
for k in 1 2; do
    for i in $(seq 200); do old=$(serving) && [ "$(grep -c 'a new hub waits' hub.err)" -ge $((n + k)) ] && break; sleep 0.05; done
    kill -ABRT "$old"
done
wait_for $hub 134 hub
grep -q '2 times without progress: it is not started again (--restarts)' hub.err || fault "no message states why it ends: $(tail -n 2 hub.err)"

# A hub without a guard serves in its own process.
rm -rf hub-out hub.db*
start_hub --islands 1 --restarts 0
[ -z "$(serving)" ] || fault "--restarts 0 has a guard"
kill $hub
wait_for $hub 0 hub
exit $((faults > 0))
