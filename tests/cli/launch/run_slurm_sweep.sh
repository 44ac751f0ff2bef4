#!/usr/bin/env bash
# ctest: timeout=600 soak
# `bitrain sweep` under a real Slurm of one node (NODES=N: several nodes with one processor each): in a batch script its
# runs are concurrent steps on all nodes; after scancel the runs are saved, and the same command continues in another
# job, on fewer nodes if there were several; halving ends with the same runs as without Slurm.
. "$BT_SRC/tests/cli/launch/slurm_lib.sh"
nodes=${NODES:-1}
cpus=$((nodes > 1 ? 1 : 2))
begin_slurm $cpus "$nodes"
cat > hv.yaml <<'Y'
name: hv
method: halving
runs: 4
halving: {keep: 2, first_steps: 6}
settings:
  model: {preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}
  train: {steps: 24, batch_tokens: 64, eval_tokens: 64, eval_every: 1000000}
  data.path: synth:chain
  launch: {ranks: 1, threads: 1}
space: {optim.lr: log 1e-4 .. 1e-2}
Y
sed 's/^name: hv/name: slow/; s/^method: halving/runs: 2/; /^runs: 4/d; /^halving:/d; s/steps: 24/steps: 100000/; s/log 1e-4 .. 1e-2/[1e-3, 2e-3]/' hv.yaml >slow.yaml
submit() { # FILE NODES: prints the number of the job
    printf '#!/bin/bash\nexec "%s" sweep %s\n' "$BITRAIN" "$1" >batch.sh
    sbatch --parsable -N "$2" -n "$2" -c $cpus --mem=400 -o "$1.out" batch.sh
}
places=$((nodes * cpus))

id=$(submit hv.yaml "$nodes")
gone "$id"
grep -q "each a step of Slurm job $id: $nodes node[s]*, 1 processor a run" hv.yaml.out || fault "the sweep did not take the job: $(tail -n 5 hv.yaml.out)"
grep -q "$places runs at a time" hv.yaml.out || fault "not $places at a time: $(head -n 3 hv.yaml.out)"
ended=$(q "SELECT group_concat(run || ':' || steps) FROM (SELECT * FROM runs WHERE run LIKE 'hv-%' ORDER BY run)")
sed 's/^name: hv/name: lv/' hv.yaml >lv.yaml
ok sweep lv.yaml
[ "$(q "SELECT group_concat('hv' || substr(run, 3) || ':' || steps) FROM (SELECT * FROM runs WHERE run LIKE 'lv-%' ORDER BY run)")" = "$ended" ] ||
    fault "with Slurm $ended, without $(b runs lv)"

id=$(submit slow.yaml "$nodes")
if wait_step slow-001 5 && wait_step slow-002 5; then
    steps=$(squeue -h -s -j "$id" -o '%j@%N' | sort | tr '\n' ' ')
    case $steps in *slow-001*slow-002*) ;; *) fault "not two steps beside each other: $steps" ;; esac
    [ "$(squeue -h -s -j "$id" -o '%j %N' | grep slow | cut -d' ' -f2 | sort -u | wc -l)" = $((nodes > 1 ? 2 : 1)) ] || fault "on which nodes: $steps"
    scancel "$id"
    gone "$id"
    for n in 1 2; do
        last=$(q "SELECT max(step) FROM steps WHERE run='slow-00$n'")
        [ $n = 1 ] && first=$last
        [ -f "sweeps/slow/slow-00$n/step-$(printf %012d $((last + 1)))/manifest.json" ] || fault "slow-00$n did not save after step $last: $(ls sweeps/slow/slow-00$n)"
    done
    id=$(submit slow.yaml $((nodes > 1 ? nodes - 1 : 1)))
    wait_step slow-001 $((first + 50))
    [ "$(q "SELECT attempts FROM runs WHERE run='slow-001'")" = 2 ] || fault "slow-001 was not continued"
    scancel "$id"
    gone "$id"
fi
finish
