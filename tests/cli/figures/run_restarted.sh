#!/usr/bin/env bash
# ctest: timeout=240 waits
# The figures of a run, computed independently in SQL from its raw rows: the division of the wall time of a run that is
# paused, validated, saved, killed and restarted, and its speed and communication; `runs`, `show`, `top` and the lens (a
# saved query) agree.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/figures/figures_lib.sh"

# simulates a package that draws about 20 W
export BITRAIN_TEST_POWERCAP=$PWD/powercap
mkdir -p powercap/intel-rapl:0
echo package-0 >powercap/intel-rapl:0/name
echo 262143328850 >powercap/intel-rapl:0/max_energy_range_uj
echo 0 >powercap/intel-rapl:0/energy_uj
joules=0
while sleep 0.1; do echo $((joules += 2))000000 >powercap/intel-rapl:0/energy_uj; done &
started+=($!)

export BITRAIN_TEST_SLOW=0:6
b train "${slow[@]}" --steps 120 --ckpt-every 25 --eval-every 15 --set train.eval_tokens=4096 --name a >a.out 2>a.err &
job=$!
started+=($job)
wait_step a 12
# Each rank computes on its own cores.
cores_of() { sed -n 's/^Cpus_allowed_list:\s*//p' "/proc/$(q "SELECT pid FROM ranks WHERE run='a' AND rank=$1")/status"; }
[ "$(nproc)" -lt 2 ] || [ "$(cores_of 0)" != "$(cores_of 1)" ] || fault "both ranks compute on $(cores_of 0)"
ok ctl a pause
for i in $(seq 400); do [ "$(q "SELECT count(*) FROM events WHERE run='a' AND kind='paused'")" = 1 ] && break; sleep 0.05; done
sleep 0.5
b show a --json >paused.json # no record arrives while the pause continues
early=$(grep -o '"goodput":[^,}]*' paused.json | cut -d: -f2)
sleep 0.5
b show a --json >paused.json
late=$(grep -o '"goodput":[^,}]*' paused.json | cut -d: -f2)
awk "BEGIN { exit !($late < $early) }" || fault "the goodput of a paused run remains at $early, $late"
# All viewers use one clock: they count the pause up to the present, and the parts add up to the total.
b runs a --json >runs.json
b top a --once --json >top.json
parts_add_up runs.json duration_s
parts_add_up paused.json duration_s
parts_add_up top.json elapsed_s
awk "BEGIN { exit !(0.4 < $(number_of paused.json paused_s) && $(number_of paused.json paused_s) < $(number_of runs.json paused_s) &&
    $(number_of runs.json paused_s) < $(head_of paused_s)) }" ||
    fault "paused for $(number_of paused.json paused_s), $(number_of runs.json paused_s), $(head_of paused_s) s"
b query --lens goodput a --csv >lens.csv
awk -F, 'NR == 2 { for (i = 2; i <= 9; i++) sum += $i; exit !($6 > 0.4 && sum - $1 < 0.05 && $1 - sum < 0.05) }' lens.csv || fault "lens: $(cat lens.csv)"
# A paused run is shown as paused in every list.
[ "$(q "SELECT state FROM runs WHERE run='a'")" = paused ] || fault "a paused run's state is $(q "SELECT state FROM runs WHERE run='a'")"
for list in "runs" "show a" "runs state:paused"; do b $list | grep -qE '^a +paused' || fault "$list: $(b $list | grep '^a ')"; done
ok ctl a eval
sleep 0.7
ok ctl a resume
wait_step a 40
[ "$(q "SELECT state FROM runs WHERE run='a'")" = running ] || fault "a run that continues is $(q "SELECT state FROM runs WHERE run='a'")"
b top a --once --json >top.json
parts_add_up top.json elapsed_s
kill -9 "$(q "SELECT pid FROM ranks WHERE run='a' AND rank=1 ORDER BY attempt DESC LIMIT 1")"
wait $job || fault "the run ends with $?: $(tail -n 3 a.err)"
[ "$(q "SELECT count(*) FROM attempts WHERE run='a'")" = 2 ] || fault "no restart"
[ "$(q "SELECT count(*) FROM events WHERE run='a' AND kind='evaluation'")" -ge 9 ] || fault "too few evaluations"

# Intervals by kind, from events and checkpoints. Time is divided where an interval or a step begins or ends, and each
# piece has the kind of the uppermost interval: a checkpoint's duration is recorded at its end, so it may overlap an
# evaluation.
cat >again.sql <<'E2'
WITH run AS (SELECT * FROM runs WHERE run = 'a'),
 tries AS (SELECT t.attempt, t.started_s - r.started_s AS begins, t.ended_s - r.started_s AS ends,
   (SELECT min(e.time_s) FROM events e WHERE e.run = 'a' AND e.attempt = t.attempt AND e.kind IN ('started', 'resumed')) AS trains,
   (SELECT max(s.step) FROM all_steps s WHERE s.run = 'a' AND s.attempt < t.attempt) AS reach
   FROM attempts t, run r WHERE t.run = 'a'),
 told AS (SELECT 1 AS level, 'validation' AS what, attempt, time_s - json_extract(body, '$.took_ms') / 1e3 AS lo, time_s AS hi FROM events
     WHERE run = 'a' AND kind IN ('evaluation', 'sample')
   UNION ALL SELECT 2, 'checkpoint', attempt, time_s - took_ms / 1e3, time_s FROM checkpoints WHERE run = 'a'
   UNION ALL SELECT 3, 'paused', attempt, time_s, (SELECT min(c.time_s) FROM events c WHERE c.run = 'a' AND c.kind = 'continued' AND c.seq > e.seq)
     FROM events e WHERE run = 'a' AND kind = 'paused'
   UNION ALL SELECT 4, CASE WHEN s.step <= coalesce(t.reach, -1) THEN 'redone' ELSE 'productive' END, s.attempt,
     coalesce(lag(s.time_s) OVER (PARTITION BY s.attempt ORDER BY s.step), t.trains), s.time_s
     FROM all_steps s JOIN tries t USING (attempt) WHERE s.run = 'a'),
 parts AS (SELECT level, what, max(lo, t.begins) AS lo, min(hi, t.ends) AS hi FROM told JOIN tries t USING (attempt)),
 cuts AS (SELECT lo AS at FROM parts UNION SELECT hi FROM parts),
 pieces AS (SELECT at AS lo, lead(at) OVER (ORDER BY at) AS hi FROM cuts),
 named AS (SELECT hi - lo AS s, (SELECT what FROM parts p WHERE p.lo <= x.lo AND p.hi >= x.hi ORDER BY level LIMIT 1) AS what FROM pieces x WHERE hi > lo)
SELECT (SELECT coalesce(sum(s), 0) FROM named WHERE what = 'productive'), (SELECT coalesce(sum(s), 0) FROM named WHERE what = 'redone'),
 (SELECT coalesce(sum(s), 0) FROM named WHERE what = 'validation'), (SELECT coalesce(sum(s), 0) FROM named WHERE what = 'checkpoint'),
 (SELECT coalesce(sum(s), 0) FROM named WHERE what = 'paused'), (SELECT ended_s - started_s FROM run)
E2
b query --csv "$(cat again.sql)" >again.csv 2>again.err || fault "the second computation: $(cat again.err)"
IFS=, read -r productive redone validation checkpoint paused elapsed < <(tail -n 1 again.csv)
near "productive time" "$(row productive_s)" "$productive" $exact
near "time of steps done again" "$(row redone_s)" "$redone" $exact
near "validation time" "$(row validation_s)" "$validation" $exact
near "checkpoint time" "$(row checkpoint_s)" "$checkpoint" $exact
near "time in pauses" "$(row paused_s)" "$paused" $exact
near "the sum of the parts" "$(row 'productive_s + redone_s + validation_s + checkpoint_s + paused_s + finished_s + startup_s + lost_s')" "$elapsed" 0.00001
near goodput "$(row goodput)" "$(awk "BEGIN { print $productive / $elapsed }")" 0.002
awk "BEGIN { exit !($paused > 1 && $validation > 0) }" || fault "nothing to compare: $(cat again.csv)"
awk "BEGIN { exit !($(row lost_s) > 0 && $(row startup_s) > 0) }" || fault "a killed rank cost $(row lost_s) s, two starts $(row startup_s) s"

# The share of the run's processes in the energy that the package counted during the run.
near "energy in J" "$(row energy_j)" "$(q "SELECT sum(energy_j) FROM all_steps WHERE run='a'")" 0.000001
# The file may be empty for a moment while it is written.
until counted=$(cat powercap/intel-rapl:0/energy_uj) && [ -n "$counted" ]; do sleep 0.01; done
counted=$((counted / 1000000))
awk "BEGIN { exit !($(row energy_j) > 0.1 && $(row energy_j) <= $counted) }" || fault "energy is $(row energy_j) J of $counted"
near "energy of the ranks" "$(q "SELECT sum(energy_j) FROM rank_steps WHERE run='a'")" "$(q "SELECT sum(energy_j) FROM steps WHERE run='a'")" 0.000001
near "energy of a token" "$(row 'token_j * 1e3')" "$(awk "BEGIN { print 1e3 * $(row energy_j) / $(row tokens) }")" 0.001

# All viewers agree.
goodput=$(percent "$(row goodput)")
ok show a
says "goodput $goodput"
grep -qE ", energy [0-9.]+ k?J, energy/token [0-9.]+ [mu]J" out || fault "show: $(cat out)"
b top a --once --json >top.json
near "goodput of top" "$(head_of goodput)" "$(row goodput)" 1e-6
ok query --lens goodput a --csv
says "$(awk "BEGIN { printf \"%.2f\", $(row paused_s) }" | sed 's/0*$//')"

# All viewers compute speed and communication from the newest 128 steps, also across a restart.
[ "$(q "SELECT count(*), count(DISTINCT attempt) FROM ($(recent))")" = 120,2 ] || fault "not 120 steps of two attempts"
figures_agree
# MFU and overlap of a step follow from the facts and the ranks' own times; those of the run are their medians.
fact() { q "SELECT value FROM facts WHERE run='a' AND key='$1'"; }
if [ -n "$(fact peak_flops)" ]; then # facts of the newest attempt
    near "MFU of the steps" "$(q "SELECT max(abs(mfu - tokens_per_s * $(fact flop_token) / $(fact peak_flops)) / mfu) FROM steps
      WHERE run='a' AND attempt = (SELECT max(attempt) FROM attempts WHERE run='a')")" 0 1e-6
    near MFU "$(row mfu)" "$(median_of mfu)" 1e-9
    near "MFU of top" "$(head_of mfu)" "$(row mfu)" 1e-6
fi
# The rounded times of a transfer of some microseconds give no share.
near "overlap of the steps" "$(q "SELECT max(abs(s.overlap - r.hidden)) FROM steps s JOIN (SELECT attempt, step, min(comm_busy_ms) AS least,
  avg(max(0, 1 - comm_exposed_ms / comm_busy_ms)) AS hidden FROM rank_steps WHERE run='a' GROUP BY attempt, step) r USING (attempt, step)
  WHERE s.run='a' AND r.least > 0.1")" 0 0.02
near "overlap of top" "$(head_of overlap)" "$(median_of overlap)" 1e-6
near "the newest loss" "$(row loss)" "$(q "SELECT loss FROM steps WHERE run='a' ORDER BY step DESC LIMIT 1")" 1e-9
near "the best validation loss" "$(row best_val)" "$(q "SELECT min(val_loss) FROM steps WHERE run='a'")" 1e-9
near "what was sent" "$(row bytes_wire)" "$(q "SELECT sum(bytes_wire) FROM all_steps WHERE run='a'")" 1
near "peak memory" "$(row rss_mib)" "$(q "SELECT max(rss_mib) FROM all_steps WHERE run='a'")" 0.001
ok show a
says "(all 120 steps)"
says "(mean of all 120 steps and of 2 ranks)"
says "step 120, "

# A checkpoint has the time of its event, even after the records that rank 0 kept were read again at the end.
far=$(q "SELECT count(*) FROM checkpoints c JOIN events e ON e.run = c.run AND e.attempt = c.attempt AND e.kind = 'checkpoint' AND e.step = c.step - 1 WHERE c.run='a' AND abs(c.time_s - e.time_s) > 0.5")
[ "$far" = 0 ] || fault "$far checkpoints have another time than their event"
[ "$(q "SELECT count(DISTINCT round(time_s, 2)) = count(*) FROM checkpoints WHERE run='a'")" = 1 ] || fault "checkpoints share a time"
finish
