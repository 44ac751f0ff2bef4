#!/usr/bin/env bash
# ctest: timeout=300
# Every header compiles alone: it includes everything its own declarations need. The build has compiled each header that
# some source includes first, so only the other headers are compiled here.
set -u
cd "$BT_SRC" || exit 1
cc=${CC:-cc}
flags="-std=gnu17 -D_GNU_SOURCE -I. -I$BT_BIN/generated -Wall -Wextra -Wpedantic -Werror -Wno-unused -fsyntax-only -x c"
mpi=$(mpicc --showme:compile 2>/dev/null)
check() { # the kernels' own headers are for files built with vector flags
    local isa= errors
    grep -qE '^#ifndef BT_[A-Z0-9_]+_H$' "$1" || echo "FAULT $1: no BT_..._H guard"
    [ "${2:-}" != guard ] || return
    case $1 in engine/kernels/isa/*) [ "$(uname -m)" = x86_64 ] && isa="-mavx2 -mfma -mf16c" ;; esac
    errors=$(printf '#include "%s"\n#include "%s"\n' "$1" "$1" | $cc $flags $mpi $isa - 2>&1) ||
        { echo "FAULT $1 does not compile alone:"; head -4 <<<"$errors"; }
}
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'extern size_t unknown;' >"$probe/wrong.h"
[ "$(check "$probe/wrong.h" | grep -c FAULT)" -eq 2 ] || { echo "the test itself is blind"; exit 1; }
export -f check
export cc flags mpi
headers=$(find engine store monitor web cli tests -name node_modules -prune -o -name '*.h' ! -name '*golden*' -type f -print)
first=$(sed -nE 's/^ *"file": "(.*)",?$/\1/p' "$BT_BIN/compile_commands.json" | sort -u | xargs awk '/^#include/ { print $2; nextfile }' | tr -d '"' | sort -u)
[ "$(wc -l <<<"$first")" -ge 40 ] || { echo "hardly a source that includes its header first: the test looks in the wrong place"; exit 1; }
out=$(for header in $headers; do
    if grep -qxF "$header" <<<"$first"; then echo "$header guard"; else echo "$header"; fi
done | xargs -P "$(nproc)" -L1 bash -c 'check "$@"' _ 2>&1)
[ -z "$out" ] || echo "$out"
! grep -q FAULT <<<"$out"
