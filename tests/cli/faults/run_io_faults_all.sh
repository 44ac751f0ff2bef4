#!/usr/bin/env bash
# ctest: timeout=7200 soak
# run_io_faults.sh with every call of every kind, not a sample.
FULL=1 exec bash "$BT_SRC/tests/cli/faults/run_io_faults.sh"
