#!/usr/bin/env bash
# ctest: timeout=7200 soak
# Runs run_io_faults.sh with every call of every kind instead of a sample.
FULL=1 exec bash "$BT_SRC/tests/cli/faults/run_io_faults.sh"
