#!/usr/bin/env bash
# ctest: timeout=600
# Every source of the program compiles under clang without a warning, with the flags of the build; with CLANG_ALL=1 the
# sources of the tests as well, which doubles the number.
set -u
cd "$BT_BIN" || exit 1
clang=$(command -v clang || command -v clang-14 || command -v clang-16) || { echo "clang is not installed"; exit 77; }
[ -f compile_commands.json ] || { echo "no compile_commands.json in the build"; exit 1; }
# A source that tests compile again, with the sanitizers or another table, is checked once, with the flags of the
# program.
commands=$(sed -nE 's/^ *"command": "(.*)",?$/\1/p' compile_commands.json | sed -E 's/\\(.)/\1/g' | awk '!seen[$NF]++')
[ -n "${CLANG_ALL:-}" ] || commands=$(grep -v "$BT_SRC/tests/[^ ]*$" <<<"$commands")
n=$(wc -l <<<"$commands")
# Each command with clang in place of its compiler, and without outputs.
out=$(sed -E "s/^([^ ]*ccache )?[^ ]+ //; s/ -MD//; s/ -M[TF] [^ ]+//g; s/ -o [^ ]+//; s/ -fno-sanitize-recover=[^ ]+//; s/ -fsanitize=[^ ]+//; s/ --coverage//
    s|^(.* )?([^ ]+)\$|$clang -fsyntax-only -Qunused-arguments -Wno-unknown-warning-option \\1\\2 \|\| echo FAULT \\2|" <<<"$commands" | tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} sh -c {} 2>&1)
[ "$n" -ge 40 ] || { echo "only $n compile commands found"; exit 1; }
echo "$out"
! grep -q FAULT <<<"$out" && echo "$n sources pass $($clang --version | head -1)"
