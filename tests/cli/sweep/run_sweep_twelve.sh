#!/usr/bin/env bash
# ctest: timeout=180
# Sweeps of twelve runs, as a grid and by successive halving: killed with -9 in the middle, each continues, trains
# nothing twice, and is one group for `compare`; `top` lists them all.
command -v sqlite3 >/dev/null || { echo "skipped: sqlite3 is missing"; exit 77; }
. "$BT_SRC/tests/cli/train_lib.sh"

cat > grid.yaml <<'EOF'
name: grid
parallel: 2
settings:
  model: {preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}
  train: {steps: 8, batch_tokens: 64, eval_tokens: 64, eval_every: 1000000}
  data.path: synth:chain
  launch: {ranks: 1, threads: 1}
space:
  optim.lr: log 1e-3 .. 8e-3 in 4
  optim.weight_decay: [0, 0.05, 0.1]
EOF
sed 's/^name: .*/name: hv\nmethod: halving\nruns: 12\nhalving: {keep: 3, first_steps: 4}/; s/ in 4//; s/steps: 8/steps: 36/' grid.yaml >hv.yaml

# Two runs are active at a time, often at the same step: a kill must happen while one is active and neither is at its
# end, where the last rows of its steps may not be in the database although its last checkpoint is written. under_way
# NAME FIRST LAST: the SQL condition for this.
under_way() {
    echo "(SELECT count(*) FROM runs WHERE run LIKE '$1-%' AND state='running' AND steps BETWEEN $2 AND $3) > 0 AND" \
        "(SELECT count(*) FROM runs WHERE run LIKE '$1-%' AND state='running' AND steps > $3) = 0"
}
# killed_when FILE QUERY: kills the sweep and its active runs as soon as the query returns 1
killed_when() {
    local pid i
    BITRAIN_TEST_DELAY=60 "$BITRAIN" sweep "$1" >killed.out 2>&1 &
    pid=$!
    started+=($pid)
    for i in $(seq 1200); do
        [ "$(q "$2" 2>/dev/null)" -gt 0 ] 2>/dev/null && break
        sleep 0.05
    done
    kill -9 $pid 2>/dev/null || fault "$1 ended before it was killed: $(tail -n 2 killed.out)"
    kill -9 $(pgrep -f -- "bitrain .*$tmp|(mpirun|prterun) .*$tmp") 2>/dev/null
    wait $pid 2>/dev/null
    wait_gone || fault "runs of $1 are left"
    rm -rf "$TMPDIR"/bitrain-* # a later start ignores for some time a folder whose process was killed before it wrote its owner
}
group() { q "SELECT count(*) FROM configs WHERE key='run.group' AND value='$1'"; }

killed_when grid.yaml "SELECT count(*) >= 5 AND $(under_way grid 1 5) FROM runs WHERE run LIKE 'grid-%' AND state='done'"
done_before=$(q "SELECT group_concat(run) FROM (SELECT run FROM runs WHERE run LIKE 'grid-%' AND state='done' ORDER BY run)")
[ "$(q "SELECT count(*) FROM runs WHERE run LIKE 'grid-%' AND state='done'")" -lt 12 ] || fault "the grid was over before it was killed"
# One of them was killed after its last checkpoint, before it was marked as finished.
sqlite3 "$BITRAIN_STORE" "UPDATE run SET state = 'lost', ended_us = NULL WHERE name = '${done_before%%,*}'"
ok sweep grid.yaml --json
grep -q '"ended":true' out || fault "it does not print that it has ended: $(cut -c1-200 out)"
[ "$(q "SELECT count(*) FROM runs WHERE run LIKE 'grid-%' AND steps=8")" = 12 ] || fault "not twelve runs of 8 steps: $(b runs grid)"
[ "$(q "SELECT count(*) FROM runs WHERE instr(',$done_before,', ',' || run || ',') AND attempts > 1")" = 0 ] || fault "a run that was done was trained again"
[ "$(q "SELECT count(*) FROM (SELECT run, count(*) AS n FROM steps WHERE run LIKE 'grid-%' GROUP BY run HAVING n <> 8)")" = 0 ] || fault "steps are missing or twice"
[ "$(group grid)" = 12 ] || fault "the grid is no group of twelve: $(group grid)"

# The sweep is killed in the first rung, which has twelve runs, then in the second one, which has four.
killed_when hv.yaml "SELECT count(*) >= 3 AND $(under_way hv 1 2) FROM runs WHERE run LIKE 'hv-%' AND steps >= 4"
killed_when hv.yaml "SELECT $(under_way hv 5 10)"
# A run that was killed between its checkpoint and its end has no step left in this rung.
sqlite3 "$BITRAIN_STORE" "UPDATE run SET state = 'lost', ended_us = NULL WHERE name = (SELECT run FROM runs WHERE run LIKE 'hv-%' AND steps = 4 AND state = 'stopped' LIMIT 1)"
ok sweep hv.yaml
steps=$(q "SELECT group_concat(steps) FROM (SELECT steps FROM runs WHERE run LIKE 'hv-%' ORDER BY steps)")
[ "$steps" = 4,4,4,4,4,4,4,4,12,12,12,36 ] || fault "halving of twelve: $steps"
[ "$(grep -c 'left behind' out)" = 11 ] || fault "not eleven left behind: $(cat out)"
# Each continued run was better after four steps than every discarded one.
worst=$(q "SELECT max(l) FROM (SELECT avg(s.loss) AS l FROM steps s JOIN runs r USING (run) WHERE run LIKE 'hv-%' AND s.step < 4 AND r.steps > 4 GROUP BY run)")
best=$(q "SELECT min(l) FROM (SELECT avg(s.loss) AS l FROM steps s JOIN runs r USING (run) WHERE run LIKE 'hv-%' AND s.step < 4 AND r.steps = 4 GROUP BY run)")
awk -v a="$worst" -v b="$best" 'BEGIN {exit !(a <= b)}' || fault "a run with $worst continued, one with $best did not"

ok compare group=grid --group-by optim.lr --json
[ "$(grep -o '"runs":3,' out | wc -l)" = 4 ] || fault "four rates of three runs each: $(cut -c1-300 out)"
ok top --once --screen runs --size 120x40
shown=$(grep -cE '^ ( |▸)(grid|hv)-0' out)
[ "$shown" = 24 ] || fault "top shows $shown of 24 runs: $(cat out)"
finish
