#!/usr/bin/env bash
# ctest: timeout=240
# The figures of two runs, computed independently in SQL from their raw rows: one was killed with all its processes, so
# that its last steps are read from the records that rank 0 left; the other was resumed with fewer ranks.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/figures/figures_lib.sh"

run=lost
BITRAIN_TEST_SLOW=0:100 b train "${tiny[@]}" --steps 3000 --name lost --ckpt-every 20 >lost.out 2>lost.err &
started+=($!)
wait_step lost 60
kill -9 "$(q "SELECT pid FROM runs WHERE run='lost'")"
wait_gone || fault "ranks of a killed supervisor are left"
b runs >/dev/null
[ "$(q "SELECT count(*) >= 60 FROM ($(recent))")" = 1 ] || fault "too few steps to distinguish the newest from all"
figures_agree

run=fewer
BITRAIN_TEST_SLOW=0:100 b train "${tiny[@]}" --steps 300 --name fewer >fewer.out 2>fewer.err &
started+=($!)
wait_step fewer 60
ok ctl fewer stop
wait $!
ok train --resume fewer --ranks 1 --steps $(($(row steps) + 30))
[ "$(q "SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM rank_steps WHERE run='fewer' GROUP BY step)")" = 2 ] || fault "no steps of 1 and of 2 ranks"
cp out closing
figures_agree
says "of 1 to 2 ranks)"
# A setting given at the first start still applies to the later ones.
ok show fewer
[ "$(sed -n '/^settings (those given/,/^$/p' out | wc -l)" -lt 40 ] || fault "more settings are shown as given than were given"
grep -qE '^ +model.layers .*--set' out || fault "a setting of the first start has lost its origin: $(grep model.layers out)"
# The last line of `train` and `show` state the same speed.
grep -oE '[0-9.]+ k? ?tokens/s' closing | head -n 1 | grep -qF "$(grep -oE 'tokens/s [0-9.]+ k?' out | sed 's,tokens/s ,,')" ||
    fault "the closing line states $(grep tokens/s closing), show $(grep tokens/s out)"

# A finished run that is extended had ended in between; a stopped run that is resumed was paused.
waited=$(row paused_s)
sleep 1
ok train --resume fewer --ranks 1 --steps $(($(row steps) + 10))
near "time in which it was stopped" "$(row paused_s)" "$waited" 0.001
awk "BEGIN { exit !($(row finished_s) > 1 && $waited > 0) }" || fault "ended for $(row finished_s) s, stopped for $waited s"
b runs fewer --json >runs.json
parts_add_up runs.json duration_s

finish
