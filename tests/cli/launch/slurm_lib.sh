# slurm_lib.sh - shared by the tests under a real Slurm: starts a private one before the test and stops it afterwards. Sourced, not run.
# They need root, slurm-wlm and munge (not in CI's packages), and skip with a reason where they are not.
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
gone() { # JOB: until it has left the queue
    local i
    for i in $(seq 900); do [ -n "$(squeue -h -j "$1" 2>/dev/null)" ] || return 0; sleep 0.1; done
    fault "job $1 is still there after 90 s"
}
