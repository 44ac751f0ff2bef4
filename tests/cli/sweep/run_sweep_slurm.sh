#!/usr/bin/env bash
# ctest: timeout=120
# `bitrain sweep` in the shell of a Slurm job, with a script in place of srun: each run is a step with its processors
# and its share of a node's memory, and as many run at a time as the nodes hold; a sweep that is stopped lets its steps
# save, and continues later; a run that fits on no node is refused; srun is not called without a job, in a step or with
# `on: local`. tests/cli/launch/run_slurm_sweep.sh uses a real Slurm.
. "$BT_SRC/tests/cli/train_lib.sh"
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_JOB_CPUS_PER_NODE
mkdir bin
# The first two runs wait for each other, so runs that are trained one after the other would never end.
cat >bin/srun <<'S'
#!/bin/bash
echo "$*" >>"$SRUN_WORDS"
for _ in $(seq 400); do [ "$(wc -l <"$SRUN_WORDS")" -ge 2 ] && break; sleep 0.05; done
[ "$(wc -l <"$SRUN_WORDS")" -ge 2 ] || exit 9
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
S
chmod +x bin/srun
export PATH=$tmp/bin:$PATH SRUN_WORDS=$tmp/srun.words
cat > grid.yaml <<'EOF'
name: lr
settings:
  model: {preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}
  train: {steps: 12, batch_tokens: 64, eval_tokens: 64, eval_every: 1000000}
  data.path: synth:chain
  launch: {ranks: 1, threads: 1}
space:
  optim.lr: [1e-3, 2e-3, 4e-3]
EOF
line() { sed -e "$1" grid.yaml >changed.yaml; }
refused() { # TEXT SED
    line "$2"
    code 2 sweep changed.yaml
    says "$1"
    [ "$(grep -c . err)" -eq 1 ] || fault "not one line: $(cat err)"
}
refused "no Slurm job here" 's/^name: lr/on: slurm/'
refused "on must be one of auto|local|slurm" 's/^name: lr/on: cloud/'
export SLURM_JOB_ID=7 SLURM_JOB_CPUS_PER_NODE='1(x2)' SLURM_MEM_PER_NODE=1000
refused "a run of 2 processors (launch.ranks x launch.threads) fits on no node of job 7" 's/threads: 1/threads: 2/'
SLURM_JOB_CPUS_PER_NODE='many' refused "SLURM_JOB_CPUS_PER_NODE is 'many'" 's/^name/name/'
for off in SLURM_STEP_ID=0 SLURM_JOB_ID=; do
    env "$off" "$BITRAIN" sweep grid.yaml --dry-run >out 2>err || fault "exit $? with $off"
    grep -q Slurm out && fault "a job's nodes are taken with $off"
done
line 's/^name: lr/on: local/'
ok sweep changed.yaml --dry-run
grep -q Slurm out && fault "on: local takes a job's nodes"
# Nodes have unequal processors, and the size of the runs is not in the file.
plan() { # CPUS SED WORDS
    line "$2"
    SLURM_JOB_CPUS_PER_NODE=$1 ok sweep changed.yaml --dry-run
    says "$3"
}
plan '8(x2),4' 's/threads: 1/threads: 4/' "5 runs at a time"
plan '8(x3)' '/launch:/d' "3 runs at a time"
says "3 nodes, 8 processors a run"
plan '8(x2),4' '/launch:/d' "5 runs at a time"
says "3 nodes, 4 processors a run"
plan '8(x2)' '/launch:/d; s/^name: lr/parallel: 4/' "2 nodes, 4 processors a run"
[ ! -e srun.words ] || fault "srun was called: $(cat srun.words)"

ok sweep grid.yaml
says "3 runs, grid over optim.lr; 36 steps in all, 2 runs at a time"
says "each a step of Slurm job 7: 2 nodes, 1 processor a run"
[ "$(q "SELECT count(*) FROM runs WHERE state='done' AND steps=12")" = 3 ] || fault "not three runs of 12 steps: $(b runs) $(cat sweeps/lr/*.log)"
[ "$(wc -l <srun.words)" = 3 ] || fault "$(wc -l <srun.words) steps of srun, not 3"
for word in --mpi=none --nodes=1 --ntasks=1 --exact --cpus-per-task=1 --mem=1000 --job-name=lr-00; do
    [ "$(grep -c -- "$word" srun.words)" = 3 ] || fault "not three times $word: $(cat srun.words)"
done

# When the sweep is stopped its steps save; the same command continues.
line 's/^name: lr/name: long/; s/steps: 12/steps: 100000/'
rm srun.words
SLURM_MEM_PER_CPU=500 "$BITRAIN" sweep changed.yaml >long.out 2>long.err &
sweep=$!
started+=($sweep)
wait_step long-001 5 && wait_step long-002 5
kill -TERM $sweep
wait $sweep; got=$?
[ $got -eq 143 ] || fault "exit $got of a sweep that had to stop: $(tail -n 3 long.err)"
[ "$(q "SELECT count(*) FROM runs WHERE run LIKE 'long-%' AND state = 'stopped'")" = 2 ] || fault "not two stopped runs: $(b runs)"
grep -q -- --mem-per-cpu=500 srun.words || fault "memory by the processor is not requested"
finish
