#!/usr/bin/env bash
# ctest: timeout=180 waits
# `mpirun bitrain train`: every process is a rank, rank 0 writes the database; the same losses as under the supervisor;
# either way resumes the other's run; SIGUSR1 and SIGTERM save and stop; errors are printed once.
. "$BT_SRC/tests/cli/train_lib.sh"
n=$((${#tiny[@]} - 2))
direct=("${tiny[@]:0:n}") # the words before "--ranks 2"
mpi=(mpirun -np 2 --bind-to none --mca pml ob1 --mca btl self,vader --mca orte_tmpdir_base "$TMPDIR" --mca prte_tmpdir_base "$TMPDIR" --timeout 60)
d() { "${mpi[@]}" "$BITRAIN" "$@"; }

ok train "${tiny[@]}" --steps 12 --name below
losses below >below.txt

d train "${direct[@]}" --steps 12 --name plain >out 2>err || fault "exit $? of mpirun bitrain train: $(tail -n 3 err)"
says "run plain done after step 12"
[ "$(grep -c "run plain done" out)" = 1 ] || fault "more than one rank prints the summary"
losses plain | cmp -s - below.txt || fault "direct and supervised runs differ"
[ "$(q "SELECT state, ranks FROM runs WHERE run='plain'")" = done,2 ] || fault "the record of a direct run"
[ "$(q "SELECT count(*) FROM ranks WHERE run='plain'")" = 2 ] || fault "ranks of a direct run"
[ "$(q "SELECT count(*) FROM checkpoints WHERE run='plain'")" = 1 ] || fault "checkpoints of a direct run"

# One half of the steps runs directly and the other supervised, with an automatic name.
d train "${direct[@]}" --steps 12 --stop-after 5 --json >out 2>err || fault "exit $? of the first half"
name=$(sed 's/.*"run":"\([^"]*\)".*/\1/' out)
ok train --resume "$name" --threads 1 --ranks 2
losses "$name" | cmp -s - below.txt || fault "direct, then supervised: other losses"
ok train "${tiny[@]}" --steps 12 --stop-after 5 --name turned
d train --resume turned --threads 1 >out 2>err || fault "exit $? of the direct half: $(tail -n 3 err)"
losses turned | cmp -s - below.txt || fault "supervised, then direct: other losses"

d train --continue --name turned "${direct[@]}" --steps 12 >out 2>err || fault "exit $? of --continue of a run that is done: $(tail -n 3 err)"
[ "$(cat out)" = "run turned has done its 12 steps already" ] || fault "--continue of a run that is done prints: $(cat out)"

# Settings and plans are printed once.
d train "${direct[@]}" --dry-run >out 2>err || fault "exit $? of --dry-run"
[ "$(grep -c '^model ' out)" = 1 ] || fault "the plan is printed by more than one rank"

# An error is printed once, with the right exit code.
d train --preset nano --data /nonexistent.txt --steps 3 >out 2>err
[ $? -eq 3 ] || fault "missing data: exit is not 3"
[ "$(grep -c "bitrain train: .*cannot open" err)" = 1 ] || fault "missing data is reported $(grep -c "cannot open" err) times"
d train "${direct[@]}" --steps 12 --name plain >out 2>err
[ $? -eq 4 ] || fault "a used name: exit is not 4"

# A command for one process runs only once.
"${mpi[@]}" "$BITRAIN" runs >out 2>err || fault "exit $? of mpirun bitrain runs: $(tail -n 3 err)"
[ "$(grep -c '^RUN ' out)" = 1 ] || fault "mpirun -np 2 bitrain runs prints $(grep -c '^RUN ' out) lists"
says "runs needs one process: rank 0 of this MPI job does the work, 1 of 2 ranks end"

# USR1 through mpirun saves and stops.
"${mpi[@]}" "$BITRAIN" train "${direct[@]}" --steps 1000000 --name asked >a.out 2>a.err &
job=$!
started+=($job)
wait_step asked 50
kill -USR1 $job
wait $job
grep -q "run asked stopped after step" a.out || fault "SIGUSR1 does not stop a direct run: $(tail -n 3 a.err)"
ls runs/asked/step-*/manifest.json >/dev/null 2>&1 || fault "SIGUSR1 saves nothing"
[ "$(q "SELECT state FROM runs WHERE run='asked'")" = stopped ] || fault "the record after SIGUSR1"
# A rank is killed: the other ranks do not wait in MPI until their launcher ends them (mpirun waits 3 s here), one of
# them reports the dead rank, rank 0 records it, and the run continues from its newest checkpoint.
for victim in 1 0; do
    "${mpi[@]}" --mca odls_base_sigkill_timeout 3 "$BITRAIN" train "${direct[@]}" --steps 1000000 --name lost$victim >l.out 2>l.err &
    job=$!
    started+=($job)
    wait_step lost$victim 50
    kill -9 "$(q "SELECT pid FROM ranks WHERE run='lost$victim' AND rank=$victim")"
    wait $job && fault "exit 0 of a job whose rank $victim was killed"
    [ "$(grep -c "bitrain train: rank $victim (pid [0-9]*) was ended.*--resume lost$victim)" l.err)" = 1 ] || fault "the dead rank is not reported once: $(tail -n 5 l.err)"
done
[ "$(q "SELECT state FROM runs WHERE run='lost1'")" = failed ] || fault "the record of a run that lost rank 1: $(q "SELECT state FROM runs WHERE run='lost1'")"
q "SELECT rank, title FROM events WHERE run='lost1' AND kind='failure'" | grep -q "^1,rank 1 (pid" || fault "no event names rank 1"
# The run continues, and saves when mpirun itself is killed.
newest() { ls -d runs/lost1/step-* 2>/dev/null | tail -n 1; }
saved=$(newest)
at=$(q "SELECT max(step) FROM steps WHERE run='lost1'")
"${mpi[@]}" --mca btl_vader_backing_directory "$TMPDIR" "$BITRAIN" train --resume lost1 --threads 1 --ckpt-every 1000000 >out 2>err &
job=$!
started+=($job)
wait_step lost1 $((at + 50))
kill -9 $job
wait $job 2>/dev/null
for i in $(seq 100); do [ "$(newest)" != "$saved" ] && [ -e "$(newest)/manifest.json" ] && break; sleep 0.05; done
[ "$(newest)" != "$saved" ] || fault "ranks whose mpirun was killed save nothing: $(tail -n 3 err)"
wait_gone || fault "ranks outlive their mpirun"
rm -f "$TMPDIR"/{vader,sm}_segment.*
rm -rf "$TMPDIR"/ompi.* "$TMPDIR"/prterun.* # folders of mpirun
finish
