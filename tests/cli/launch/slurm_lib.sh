# slurm_lib.sh - starts a private Slurm before a test and stops it afterwards. Sourced, not run. Such tests need root,
# slurm-wlm and munge (not in CI's packages); otherwise they are skipped with a reason.
. "$BT_SRC/tests/cli/train_lib.sh"
slurm="$BT_SRC/tests/cli/launch/slurm_nodes.sh"

begin_slurm() { # CPUS NODES
    sh "$slurm" start "$tmp/slurm" "$@" >slurm.env 2>slurm.err
    case $? in
    0) ;;
    77) skip "$(tail -n 1 slurm.err)" ;;
    *) fault "Slurm does not start: $(tail -n 2 slurm.err)"; finish ;;
    esac
    . ./slurm.env
    trap 'sh "$slurm" stop "$tmp/slurm"; end' EXIT
}
field() { scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
gone() { # JOB: waits until the job has left the queue
    local i
    for i in $(seq 900); do [ -n "$(squeue -h -j "$1" 2>/dev/null)" ] || return 0; sleep 0.1; done
    fault "job $1 is still there after 90 s"
}
