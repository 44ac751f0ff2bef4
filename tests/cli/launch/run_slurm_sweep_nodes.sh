#!/usr/bin/env bash
# ctest: timeout=600 soak
# The sweep of run_slurm_sweep.sh over three nodes, which are three slurmd of this machine with different names and
# ports.
export NODES=3
. "$BT_SRC/tests/cli/launch/run_slurm_sweep.sh"
