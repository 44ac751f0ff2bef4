# train_lib.sh - shared by the tests of `bitrain train`. Sourced, not run.
# It provides a private database and temporary folder, a model whose step takes a millisecond, and a check that no files
# or processes remain.
set -u
# The folder's name identifies the processes of this test; an empty name would match every process of the machine.
tmp=$(mktemp -d) || exit 1
export BITRAIN_STORE="$tmp/m.db" TMPDIR="$tmp/t" XDG_DATA_HOME="$tmp/xdg"
mkdir -p "$TMPDIR"
cd "$tmp"
faults=0
started=() # process ids of this test

fault() { echo "FAULT: $*"; faults=$((faults + 1)); }
skip() { echo "skipped: $*"; exit 77; }
# A process of this test is its child or has its folder in the environment; the number may meanwhile belong to another
# process.
mine() { grep -qx "PPid:[[:space:]]*$$" "/proc/$1/status" 2>/dev/null || grep -qF -- "$tmp" "/proc/$1/environ" 2>/dev/null; }
# A child of the shell that a signal reaches between its fork and its exec runs the trap as well: `X & kill $!`.
end() {
    [ "$BASHPID" = $$ ] || return
    local p
    for p in "${started[@]:-}"; do [ -n "$p" ] && mine "$p" && kill -9 "$p" 2>/dev/null; done
    # The ranks of this test have its folder in their command line.
    for p in $(pgrep -f -- "$tmp" 2>/dev/null); do [ "$p" != $$ ] && kill -9 "$p" 2>/dev/null; done
    cd /
    rm -rf "$tmp"
}
trap end EXIT

# tiny: one layer of width 32, a step takes less than a millisecond. light: two layers, for every layout; with
# BITRAIN_TEST_DELAY its steps take time without processor time. slow: about 20 ms of work per step.
tiny=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
      --set model.seq_len=32 --batch-tokens 256 --data synth:chain --set train.eval_tokens=256 --eval-every 1000000 --threads 1 --ranks 2)
light=("${tiny[@]}" --set model.layers=2)
slow=(--preset nano --set model.layers=2 --set model.d_model=128 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=256
      --set model.seq_len=64 --batch-tokens 1024 --data synth:chain --set train.eval_tokens=256 --eval-every 1000000 --threads 1 --ranks 2)

b() { timeout 100 "$BITRAIN" "$@"; }
q() { b query --csv "$1" 2>>"$tmp/query.err" | tail -n +2 | tr -d '"'; } # prints the cells of the result without its header
losses() { q "SELECT step, printf('%.17g', loss) FROM steps WHERE run='$1' ORDER BY step"; }

# ok WORDS...: the command exits with 0; code N WORDS...: with N. Its output is in out and err.
ok() { code 0 "$@"; }
code() {
    local want=$1; shift
    b "$@" >out 2>err
    local got=$?
    [ "$got" -eq "$want" ] || { fault "exit $got, not $want, of: bitrain $*"; tail -n 5 err; }
}
says() { grep -qF -- "$1" out err || { fault "no message contains \"$1\""; tail -n 3 out err; }; }

# wait_step RUN N: waits until step N is in the database (20 s)
wait_step() {
    local i
    for i in $(seq 200); do
        [ "$(q "SELECT count(*) FROM steps WHERE run='$1' AND step >= $2" 2>/dev/null)" -gt 0 ] 2>/dev/null && return 0
        sleep 0.1
    done
    fault "run $1 does not reach step $2"
    return 1
}
wait_gone() { # waits until no process has our folder in its command line (10 s)
    local i
    for i in $(seq 200); do
        [ -z "$(ours)" ] && return 0
        sleep 0.05
    done
    return 1
}
ours() { pgrep -f -- "bitrain rank .*$tmp|(mpirun|prterun) .*$tmp" 2>/dev/null; }
# killed NAME WORDS...: a run that is killed in its step 3 with all its processes, and continues from a checkpoint
killed() {
    local name=$1 job i
    shift
    BITRAIN_TEST_HANG="0:3:asleep:$tmp/$name.hangs" "$BITRAIN" train "$@" --name "$name" --ckpt-every "${KILLED_EVERY:-2}" --set ckpt.async=false >k.out 2>k.err &
    job=$!
    started+=($job)
    for i in $(seq 600); do [ -e "$tmp/$name.hangs" ] && break; sleep 0.05; done
    [ -e "$tmp/$name.hangs" ] || { fault "run $name does not reach step 3"; tail -n 3 k.err; }
    kill -9 $job $(ours) 2>/dev/null
    wait $job 2>/dev/null
    wait_gone || fault "ranks of $name are left"
    ok train --resume "$name"
}
no_leftovers() {
    wait_gone || fault "processes are left: $(ps -o pid,args -p "$(ours | paste -sd,)" | cut -c1-150)"
    [ -z "$(ls -A "$TMPDIR")" ] || fault "left in TMPDIR: $(ls "$TMPDIR")"
    local d
    for d in /dev/shm/bitrain-"$(id -u)"-*; do # the lock contains the folder of its job; locks of other jobs are ignored
        grep -qsF "$TMPDIR/" "$d/lock" && fault "left in /dev/shm: $d"
    done
}
# Exposed time is part of the time in flight and at most the step, in each recorded step of each rank (to the
# microsecond).
exchanges_add_up() {
    [ -e "$BITRAIN_STORE" ] || return 0
    local wrong
    wrong=$(q "SELECT count(*) FROM rank_steps WHERE comm_exposed_ms > comm_busy_ms + 0.002 OR comm_busy_ms > step_ms + 0.002")
    [ "${wrong:-0}" = 0 ] || fault "$wrong rank rows have exposed > in flight or in flight > step: $(q "SELECT run, step, rank, comm_exposed_ms, comm_busy_ms, step_ms FROM rank_steps WHERE comm_exposed_ms > comm_busy_ms + 0.002 OR comm_busy_ms > step_ms + 0.002 LIMIT 3")"
}

finish() { exchanges_add_up; no_leftovers; [ $faults -eq 0 ] || { echo "$faults faults"; exit 1; }; exit 0; }
