#!/bin/bash
# ctest: timeout=240 labels=web,browser,mpi
# Every button of the page on a real training: which buttons are offered while it runs, is paused, was stopped and is
# done; each message of the page equals the event that the run recorded, with one request and one outcome per action.
# The test needs the programs that run_browser.sh needs.
. "$(dirname "$0")/browser_lib.sh"
small=(--preset nano --set model.layers=1 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 64
    --batch-tokens 1024 --data builtin --tokenizer bytes --ranks 1 --threads 1 --set train.eval_tokens=1024 --eval-every 100000000
    --ckpt-every 100000000 --quiet)
"$BITRAIN" train "${small[@]}" --name short --steps 3 >"$dir/short.out" 2>&1 || { cat "$dir/short.out"; exit 1; }
# A loaded machine may stop the rank for longer than the limit of a hang; without restarts such a rank is not ended.
BITRAIN_TEST_SLOW=0:20 "$BITRAIN" train "${small[@]}" --name live --steps 1000000 --max-restarts 0 >"$dir/live.out" 2>&1 &
live=$!
timeout 220 node "$here/verbs.mjs"
rc=$?
[ $rc -eq 0 ] || tail -n 20 "$dir/live.out"
pid=$(sqlite3 "$BITRAIN_STORE" "SELECT pid FROM run WHERE name LIKE 'live%' AND state = 'running'" 2>/dev/null) # the page has started the run again
for p in $live $pid; do kill "$p" 2>/dev/null; done
wait $live 2>/dev/null
for _ in $(seq 200); do [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
exit $rc
