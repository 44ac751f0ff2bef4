#!/usr/bin/env bash
# ctest: timeout=900 soak
# Every form of cli/launch/README.md under a real Slurm of one node: srun with the supervisor and without, sbatch with a
# requeue, with --signal, an array, and an array of islands; scancel, a killed rank. After a notice the run saves and
# exits with its exit code although a step takes seconds, and a requeued job continues. The test needs root, slurm-wlm
# and munge (not in CI's packages); otherwise it is skipped with a reason.
. "$BT_SRC/tests/cli/launch/slurm_lib.sh"
begin_slurm 2 1
PATH=$(dirname "$BITRAIN"):$PATH

printf 'model: {preset: nano, layers: 2, d_model: 128, heads: 2, kv_heads: 2, d_ff: 256, seq_len: 64}\n' >conf.yaml
cat >>conf.yaml <<'Y'
data: {path: 'synth:chain'}
train: {batch_tokens: 1024, eval_tokens: 256, eval_every: 1000000, steps: 100000, reproducible: true, unit: 2}
launch: {threads: 1}
ckpt: {minutes: 0}
Y
words=(train conf.yaml)
long=BITRAIN_TEST_SLOW=0:100 # steps of some seconds
job() { squeue -h -n "$1" -o %i | head -n 1; }
saved() { # RUN STATE
    local last=$(q "SELECT max(step) FROM steps WHERE run='$1'")
    [ -f "runs/$1/step-$(printf %012d $((last + 1)))/manifest.json" ] || fault "$1: no checkpoint of step $last: $(ls runs/$1)"
    [ "$(q "SELECT state FROM runs WHERE run='$1'")" = "$2" ] || fault "$1 is $(q "SELECT state FROM runs WHERE run='$1'"), not $2"
}
took() { echo "$1: $(awk -v a="$2" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}') s${3:+, exit $3}"; }

# srun starts the supervisor, and scancel arrives within a step of seconds.
env $long srun -J sup --mpi=none -n 1 -c 2 "$BITRAIN" "${words[@]}" --ranks 2 --name sup >sup.out 2>&1 &
step=$!
started+=($step)
if wait_step sup 1; then
    t=$(date +%s.%N)
    scancel "$(job sup)"
    wait $step; got=$?
    took "scancel of srun --mpi=none" $t $got
    [ $got -eq 143 ] || fault "srun with the supervisor: exit $got after scancel: $(tail -n 3 sup.out)"
    saved sup stopped
fi

# The batch script becomes bitrain by exec. scancel would end a script that waits for bitrain at once, and Slurm would
# then kill its children.
printf '#!/bin/bash\nexec bitrain train conf.yaml --ranks 2 --name batch\n' >batch.sh
id=$(env $long sbatch --parsable -n 1 -c 2 -o batch.out batch.sh)
if wait_step batch 1; then
    t=$(date +%s.%N)
    scancel "$id"
    gone "$id"
    took "scancel of sbatch with exec" $t "$(field "$id" ExitCode)"
    [ "$(field "$id" ExitCode)" = 143:0 ] || fault "batch script: exit code $(field "$id" ExitCode)"
    saved batch stopped
fi

# The batch file given to users: when it is requeued, it continues under the same job id.
id=$(CONF=conf.yaml NAME=again sbatch --parsable -c 2 -o again.out "$BT_SRC/cli/launch/slurm.sbatch")
if wait_step again 5; then
    t=$(date +%s.%N)
    scontrol requeue "$id"
    for i in $(seq 300); do [ "$(field "$id" JobState)" = PENDING ] && break; sleep 0.1; done
    took "scontrol requeue until it is pending" $t
    saved again stopped
    last=$(q "SELECT max(step) FROM steps WHERE run='again'")
    scontrol update JobId="$id" StartTime=now
    wait_step again $((last + 5))
    [ "$(q "SELECT group_concat(from_step) FROM attempts WHERE run='again'")" = "0,$((last + 1))" ] || fault "requeued: begins at $(q "SELECT group_concat(from_step) FROM attempts WHERE run='again'"), not after step $last"
    [ "$(field "$id" Restarts)" = 1 ] || fault "$(field "$id" Restarts) restarts of the job"
    scancel "$id"
    gone "$id"
    saved again stopped
fi

# The notice before the time limit, which Slurm checks about once a minute: exit code 138, and the batch file queues
# itself again.
id=$(CONF=conf.yaml NAME=limit sbatch --parsable -c 2 --time=1 --signal=USR1@50 -o limit.out "$BT_SRC/cli/launch/slurm.sbatch")
if wait_step limit 5; then
    t=$(date +%s.%N)
    for i in $(seq 1200); do [ "$(field "$id" Restarts)" = 1 ] && [ "$(field "$id" JobState)" = PENDING ] && break; sleep 0.1; done
    took "--signal=USR1@50 of a minute, until it is queued again" $t
    [ "$(field "$id" Restarts)" = 1 ] || fault "the notice before the limit: $(field "$id" JobState), $(tail -n 3 limit.out)"
    saved limit stopped
    scancel "$id"
    gone "$id"
fi

# Each task of an array is a run.
id=$(CONF=conf.yaml BITRAIN_STEPS=20 sbatch --parsable -c 1 --array=1-2 -J seeds -o seeds-%a.out "$BT_SRC/cli/launch/slurm_array.sbatch")
gone "$id"
for n in 1 2; do [ "$(q "SELECT state, steps FROM runs WHERE run='seeds-$n'")" = done,20 ] || fault "task $n of the array: $(tail -n 3 seeds-$n.out)"; done

# The tasks of an array are islands of one training: a requeued island saves and exits, the other continues, and the
# first returns.
b hub --keys keys isl-1 isl-2 >/dev/null 2>err || fault "no keys: $(cat err)"
timeout 300 "$BITRAIN" hub --listen 127.0.0.1:0 --keys keys --islands 2 --store hub.db --out hub-out --name hub >address 2>hub.err &
started+=($!)
for i in $(seq 400); do [ -s address ] && break; sleep 0.05; done
island_step() { # N K: waits until island N has made K steps
    local i
    for i in $(seq 600); do
        [ "$(BITRAIN_STORE=isl-$1.db q "SELECT count(*) FROM steps WHERE step >= $2" 2>/dev/null)" -gt 0 ] 2>/dev/null && return 0
        sleep 0.1
    done
    fault "island $1 does not reach step $2: $(tail -n 2 isl-$1.out hub.err)"
}
hub_says() { # TEXT TIMES
    local i
    for i in $(seq 600); do [ "$(grep -c "$1" hub.err)" -ge "$2" ] && return 0; sleep 0.1; done
    fault "the hub does not print '$1' $2 times: $(tail -n 3 hub.err)"
}
id=$(CONF=conf.yaml HUB=$(cat address) sbatch --parsable -c 1 --array=1-2 -J isl -o isl-%a.out "$BT_SRC/cli/launch/slurm_islands.sbatch")
if island_step 1 5 && island_step 2 5; then
    t=$(date +%s.%N)
    scontrol requeue "${id}_2"
    hub_says "isl-2' left" 1
    took "scontrol requeue of an island until it has left the hub" $t
    n=$(BITRAIN_STORE=isl-1.db q "SELECT max(step) FROM steps")
    island_step 1 $((n + 20))
    for i in $(seq 300); do [ "$(field "${id}_2" JobState)" = PENDING ] && break; sleep 0.1; done
    scontrol update JobId="${id}_2" StartTime=now
    hub_says "isl-2' on .* joined" 2
    n=$(BITRAIN_STORE=isl-1.db q "SELECT max(step) FROM steps")
    island_step 2 $((n + 5))
fi
scancel "$id"
gone "$id"

# Every process of srun is a rank.
srun -J direct --mpi=pmix -n 2 "$BITRAIN" "${words[@]}" --name direct >direct.out 2>&1 &
step=$!
started+=($step)
if wait_step direct 5; then
    t=$(date +%s.%N)
    scancel "$(job direct)"
    wait $step; got=$?
    took "scancel of srun --mpi=pmix" $t $got
    [ $got -eq 143 ] || fault "direct: exit $got after scancel: $(tail -n 3 direct.out)"
    saved direct stopped
fi
for victim in 1 0; do
    srun -J dead$victim --mpi=pmix -n 2 "$BITRAIN" "${words[@]}" --name dead$victim >dead.out 2>&1 &
    step=$!
    started+=($step)
    wait_step dead$victim 5 || continue
    t=$(date +%s.%N)
    kill -9 "$(q "SELECT pid FROM ranks WHERE run='dead$victim' AND rank=$victim")"
    wait $step && fault "exit 0 of a step whose rank $victim was killed"
    took "rank $victim of srun --mpi=pmix killed" $t
    grep -q "rank $victim (pid [0-9]*) was ended" dead.out || fault "no message states that rank $victim died: $(tail -n 3 dead.out)"
done
finish
