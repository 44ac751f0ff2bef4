#!/usr/bin/env bash
# ctest: timeout=600 labels=kernels
# The ARM kernels compile on x86, and their slots for rows, flat arrays and ternary codes equal the generic ones under
# emulation. Matrix products and a training take minutes, so tests/cross.sh arm64 tests them.
set -u
[ "$(uname -m)" = x86_64 ] || { echo "SKIP: the cross build is from x86"; exit 77; }
[ -e "${CROSS:-$HOME/.cache/bitrain-cross}/arm64/.complete" ] ||
    { echo "SKIP: no libraries of arm64 on this machine: 'tests/cross.sh arm64 sysroot' fetches them, 0.6 GB"; exit 77; }
exec bash "$BT_SRC/tests/cross.sh" arm64 rows
