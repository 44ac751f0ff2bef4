#!/usr/bin/env bash
# run_io_faults.sh with every call of every kind, not a sample.
# timeout: 7200
# soak: yes
FULL=1 exec bash "$BT_SRC/tests/cli/faults/run_io_faults.sh"
