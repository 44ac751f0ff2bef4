#!/usr/bin/env bash
# ctest: timeout=180
# The files of cli/launch are used as their services use them, without those services: the batch files with scripts in
# place of srun and scontrol (a notice in the step requeues the job, which then continues), the command lines of the
# unit and of the manifests, the unit checked by systemd itself, and the packages of the image, which must contain every
# library of the program.
. "$BT_SRC/tests/cli/train_lib.sh"
files=$BT_SRC/cli/launch
cat >conf.yaml <<'Y'
model: {preset: nano, layers: 2, d_model: 128, heads: 2, kv_heads: 2, d_ff: 256, seq_len: 64}
data: {path: 'synth:chain'}
train: {batch_tokens: 1024, eval_tokens: 256, eval_every: 1000000, steps: 60}
launch: {threads: 1}
Y
mkdir -p bin data
cat >bin/srun <<'S'
#!/bin/bash
echo "$*" >>srun.words
while [ "$1" != bitrain ]; do shift; done
shift
exec "$BITRAIN" "$@"
S
printf '#!/bin/bash\necho "$*" >>scontrol.words\n' >bin/scontrol
chmod +x bin/srun bin/scontrol
below() { local p; for p in $(pgrep -P "$1"); do below "$p"; done; echo "$1"; }
batch() { PATH=$tmp/bin:$PATH CONF=conf.yaml SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=2 bash "$@"; }

BITRAIN_TEST_DELAY=50 batch "$files/slurm.sbatch" >s.out 2>s.err & # some steps are left when the notice arrives
job=$!
started+=($job)
if wait_step slurm-7 5; then
    kill -USR1 $(below "$(pgrep -f -- "^$BITRAIN train conf.yaml --continue --name slurm-7")") # the processes of the step including mpirun, not the script
    wait $job
    got=$?
    [ $got -eq 138 ] || { fault "exit $got of the batch file after a notice"; tail -n 3 s.err; }
    [ "$(cat scontrol.words 2>&1)" = "requeue 7" ] || fault "not queued again: $(cat scontrol.words 2>&1)"
    batch "$files/slurm.sbatch" >s.out 2>s.err || fault "exit $? of the job that was queued again: $(tail -n 3 s.err)"
    [ "$(q "SELECT state, steps FROM runs WHERE run='slurm-7'")" = done,60 ] || fault "the requeued run: $(q "SELECT state, steps FROM runs WHERE run='slurm-7'")"
    [ "$(q "SELECT max(from_step) > 4 FROM attempts WHERE run='slurm-7'")" = 1 ] || fault "the requeued job began anew"
    [ "$(wc -l <scontrol.words)" = 1 ] || fault "a job that is done is queued again"
fi
grep -q -- "--mpi=none" srun.words || fault "srun does not leave the ranks to the supervisor: $(cat srun.words)"

SLURM_JOB_NAME=seeds SLURM_ARRAY_TASK_ID=3 BITRAIN_STEPS=3 batch "$files/slurm_array.sbatch" >a.out 2>a.err || fault "exit $? of a task of the array: $(tail -n 3 a.err)"
[ "$(q "SELECT state, steps FROM runs WHERE run='seeds-3'")" = done,3 ] || fault "the array's task: $(cat a.err | tail -n 3)"
b show seeds-3 --json 2>/dev/null | grep -q '"seed": *3' || q "SELECT config FROM runs WHERE run='seeds-3'" | grep -q 'run.seed[^0-9]*3' || fault "the array's task has another seed"

# Two tasks of an array are the islands of one training.
b hub --keys keys isl-1 isl-2 >/dev/null 2>err || fault "no keys: $(cat err)"
timeout 60 "$BITRAIN" hub --listen 127.0.0.1:0 --keys keys --store hub.db --out hub-out --islands 2 >address 2>hub.err &
started+=($!)
for i in $(seq 400); do [ -s address ] && break; sleep 0.05; done
tasks=()
for n in 1 2; do
    HUB=$(cat address) SLURM_JOB_NAME=isl SLURM_ARRAY_TASK_ID=$n SLURM_CPUS_PER_TASK=1 BITRAIN_STEPS=4 PATH=$tmp/bin:$PATH CONF=conf.yaml \
        SLURM_JOB_ID=$n timeout 60 bash "$files/slurm_islands.sbatch" >"isl-$n.out" 2>"isl-$n.err" &
    tasks+=($!)
    started+=($!)
done
for n in 1 2; do wait ${tasks[n - 1]} || fault "exit $? of island $n: $(tail -n 3 "isl-$n.err" hub.err)"; done
for n in 1 2; do [ "$(BITRAIN_STORE=isl-$n.db q "SELECT state, steps FROM runs")" = done,4 ] || fault "island $n: $(BITRAIN_STORE=isl-$n.db q "SELECT state, steps FROM runs")"; done

# Command lines: the folders of the examples exist here.
printf 'localhost slots=8\n' >hostfile
here() {
    sed -e "s,/etc/bitrain/%i.yaml,$tmp/conf.yaml,; s,%d/\(hub\|island\).key,$tmp/keys/\1.key,; s,/etc/bitrain/allowed,$tmp/keys/allowed,; s,%i,unit," \
        -e "s,%S/bitrain[a-z-]*/,$tmp/data/,; s,/etc/mpi/,$tmp/,; s,/conf/,$tmp/,; s,/data/,$tmp/data/,; s,\$(INDEX),1,; s,0.0.0.0:8160,127.0.0.1:0," \
        -e "s,=/keys/,=$tmp/keys/,; s,=/allowed,=$tmp/keys/allowed,"
}
# args FILE [K]: prints the command line of the K-th container (default: the first)
args() {
    awk -v k="${2:-1}" '/^ *args:$/ {inside = ++seen == k; next} inside && /^ *- / {sub(/^ *- */, ""); print; next} {inside = 0}' "$1" | here
}
unit_words() { sed -n 's,^ExecStart=bitrain ,,p' "$files/$1" | tr ' ' '\n' | here; }
b hub --keys keys island island-1 >/dev/null 2>err || fault "no keys: $(cat err)"
mapfile -t unit < <(unit_words bitrain@.service)
mapfile -t island_unit < <(unit_words bitrain-island@.service)
mapfile -t indexed < <(args "$files/indexed_job.yaml")
mapfile -t mpijob < <(args "$files/mpijob.yaml")
mapfile -t island_pod < <(args "$files/islands.yaml" 2)
island_unit+=(--hub 127.0.0.1:8160) # the address is set in its configuration
for form in unit indexed mpijob island_unit island_pod; do
    declare -n w=$form
    [ "${w[0]:-}" = train ] && [[ " ${w[*]} " == *" --continue "* ]] || fault "$form: the command line is '${w[*]:-}'"
    ok "${w[@]}" --dry-run
done

# A hub begins to serve, and SIGTERM ends it with exit code 0.
mapfile -t hub_unit < <(unit_words bitrain-hub.service)
mapfile -t hub_pod < <(args "$files/islands.yaml" 1)
for form in hub_unit hub_pod; do
    declare -n w=$form
    : >address
    rm -rf data
    mkdir data
    timeout 60 "$BITRAIN" "${w[@]}" >address 2>hub.err &
    hub=$!
    started+=($hub)
    for i in $(seq 400); do [ -s address ] && break; sleep 0.05; done
    [ -s address ] || fault "$form: the hub does not start: $(cat hub.err)"
    kill $hub
    wait $hub
    got=$?
    [ $got -eq 143 ] || [ $got -eq 0 ] || fault "$form: exit $got of the hub after SIGTERM: $(cat hub.err)"
done

if command -v systemd-analyze >/dev/null; then
    for name in bitrain@ bitrain-island@ bitrain-hub; do
        to=${name/%@/@x}.service
        sed "s,^ExecStart=bitrain,ExecStart=$BITRAIN,; /^Documentation=/d" "$files/$name.service" >"$to"
        systemd-analyze verify --man=no "$tmp/$to" >v.out 2>&1 || fault "systemd refuses the unit $name: $(tail -n 3 v.out)"
        ! grep "${to%.service}" v.out || fault "systemd complains of the unit $name"
    done
fi

# A user without an entry in passwd and without HOME, as in a service or container (PMIx of Debian 12 crashes there).
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    mkdir -m 777 nobody
    chmod 711 "$tmp"
    cp "$BITRAIN" nobody/bitrain
    env -u HOME BITRAIN_STORE="$tmp/nobody/m.db" TMPDIR="$tmp/nobody" timeout 100 setpriv --reuid 54321 --regid 54321 --clear-groups \
        nobody/bitrain train conf.yaml --name homeless --stop-after 2 --quiet >h.out 2>h.err || fault "exit $? for a user without a home: $(tail -n 2 h.err)"
fi
finish
