#!/usr/bin/env bash
# ctest: ranks=2 timeout=120 labels=mpi,net soak
# A network between two hosts that transmits nothing for two seconds, with and without a codec: the run takes longer,
# continues in the same attempt, and has the losses of an undisturbed run. The test needs root.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
run=(train "${slow[@]}" --steps 60 --set ckpt.final=false --hosts hosts.txt)
hosts 1 1
for codec in none int8; do
    timeout 100 "${here[@]}" "$BITRAIN" "${run[@]}" --codec $codec --name calm-$codec >out 2>err || { fault "exit $? of a calm run"; tail -n 5 err; }
    "${here[@]}" "$BITRAIN" "${run[@]}" --codec $codec --name stall-$codec >out 2>err &
    job=$!
    started+=($job)
    wait_step stall-$codec 10 || fault "no step 10 of stall-$codec"
    ip -n ${ns}2 link set v2$$ down
    sleep "${STALL_S:-2}"
    ip -n ${ns}2 link set v2$$ up
    wait $job
    got=$?
    [ $got -eq 0 ] || { fault "exit $got of a run whose network stood still for two seconds"; tail -n 5 err; }
    [ "$(q "SELECT count(*) FROM attempts WHERE run='stall-$codec'")" = 1 ] || fault "$codec: the run was started again: $(q "SELECT title FROM events WHERE run='stall-$codec' AND kind='failure'")"
    [ "$(losses stall-$codec)" = "$(losses calm-$codec)" ] || fault "$codec: other losses than those of a calm run"
    echo "$codec: the longest step took $(q "SELECT round(max(step_ms)) FROM steps WHERE run='stall-$codec' AND step > 0") ms, the median one $(q "SELECT round(step_ms) FROM steps WHERE run='stall-$codec' ORDER BY step_ms LIMIT 1 OFFSET 30")"
done
no_segments
finish
