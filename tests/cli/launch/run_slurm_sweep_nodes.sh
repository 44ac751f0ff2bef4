#!/usr/bin/env bash
# The sweep of run_slurm_sweep.sh over three nodes: three slurmd of this machine, a name and a port each.
# soak: yes
# timeout: 600
export NODES=3
. "$BT_SRC/tests/cli/launch/run_slurm_sweep.sh"
