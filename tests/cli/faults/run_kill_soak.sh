#!/usr/bin/env bash
# ctest: timeout=7200 soak
# Every EVERY seconds (30) for LASTS seconds (600) one process of a run is killed: a rank or mpirun, drawn by SEED; with
# ANYTHING=1 also the supervisor, or all processes, after which the script resumes the run. No recorded step is lost,
# every loss has the bits of an undisturbed run, and no files or processes remain. The script prints the goodput.
. "$BT_SRC/tests/cli/train_lib.sh"
lasts=${LASTS:-600} every=${EVERY:-30} RANDOM=${SEED:-1}
model=(train --preset nano --set model.layers=6 --set model.d_model=128 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=256
       --set model.seq_len=64 --batch-tokens 1024 --data synth:chain --set train.eval_tokens=1024 --threads 1 --ranks 2 --steps 1000000)
"$BITRAIN" "${model[@]}" --name killed --max-restarts 1000 >run.out 2>run.err &
job=$!
started+=("$job")
wait_step killed 5
kills=0 seen=0 by_hand=0 ANYTHING=${ANYTHING:-0}
end_at=$((SECONDS + lasts))
while [ $SECONDS -lt $end_at ]; do
    sleep "$every"
    kill -0 $job 2>/dev/null || { fault "the run ended: $(tail -n 3 run.err)"; break; }
    # Repeated steps keep a row for each attempt.
    now=$(sqlite3 "$BITRAIN_STORE" "SELECT count(*) FROM step")
    [ "${now:-0}" -ge "$seen" ] || fault "$seen steps were recorded, now there are $now"
    seen=$now
    case $((RANDOM % (ANYTHING ? 5 : 3))) in
    3 | 4)
        victim=$job
        [ $((RANDOM % 2)) -eq 0 ] || victim="$job $(pgrep -f -- "(mpirun|prterun|bitrain rank) .*$tmp" | tr '\n' ' ')"
        # shellcheck disable=SC2086  # several process ids
        kill -9 $victim && kills=$((kills + 1)) && by_hand=$((by_hand + 1))
        wait $job 2>/dev/null
        while pgrep -f -- "(mpirun|prterun|bitrain rank) .*$tmp" >/dev/null; do sleep 0.05; done # its ranks save and exit
        "$BITRAIN" train --resume killed --max-restarts 1000 >>run.out 2>>run.err &
        job=$!
        started+=("$job")
        wait_step killed "$(q "SELECT max(step) + 1 FROM steps WHERE run='killed'")" # a signal that arrives before a handler exists would end the run
        continue
        ;;
    0) victim=$(pgrep -f -- "(mpirun|prterun) .*$tmp" | head -n 1) ;;
    *) victim=$(pgrep -f -- "bitrain rank .*$tmp" | shuf -n 1 --random-source=<(yes $RANDOM)) ;;
    esac
    [ -n "$victim" ] && kill -9 "$victim" && kills=$((kills + 1))
done
kill -INT $job
wait $job
last=$(q "SELECT max(step) FROM steps WHERE run='killed'")
[ "$(q "SELECT count(*) FROM steps WHERE run='killed'")" = $((last + 1)) ] || fault "steps are missing"
echo "$kills kills in $lasts s, $by_hand of them resumed by hand, $((last + 1)) steps, $(q "SELECT max(attempt) + 1 FROM attempts WHERE run='killed'") attempts, goodput $(q "SELECT printf('%.2f %%', 100 * goodput) FROM runs WHERE run='killed'")"
# The undisturbed run has no time limit.
"$BITRAIN" "${model[@]}" --name calm --stop-after $((last + 1)) >out 2>err || { fault "exit $? of the calm run"; tail -n 5 err; }
cmp -s <(losses killed) <(losses calm) || fault "losses differ from the calm run: $(diff <(losses killed) <(losses calm) | head -n 2)"
[ $kills -gt 0 ] || fault "nothing was killed"
finish
