#!/usr/bin/env bash
# ctest: timeout=600 soak
# The sweep of run_slurm_sweep.sh over three nodes: three slurmd of this machine, a name and a port each.
export NODES=3
. "$BT_SRC/tests/cli/launch/run_slurm_sweep.sh"
