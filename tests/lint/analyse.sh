#!/usr/bin/env bash
# clang-tidy (.clang-tidy) and cppcheck over every source of the program. What is right as it is says so in its own line
# (NOLINT with the check's name, cppcheck-suppress) or, where it is a whole kind, below or in .clang-tidy with the reason.
set -u
cd "$BT_SRC" || exit 1
tidy=$(command -v clang-tidy || command -v clang-tidy-14) || { echo "clang-tidy is not installed (Debian: clang-tidy)"; exit 77; }
command -v cppcheck > /dev/null || { echo "cppcheck is not installed (Debian: cppcheck)"; exit 77; }
[ -f "$BT_BIN/compile_commands.json" ] || { echo "no compile_commands.json in $BT_BIN"; exit 1; }
bad=0
# kernels of one instruction set are compiled with flags that clang-tidy's driver reads from the same file
find base engine cli monitor store web -name '*.c' 2>/dev/null | sort > "$BT_BIN/analyse.txt"
xargs -a "$BT_BIN/analyse.txt" -P "$(nproc)" -n 8 "$tidy" -p "$BT_BIN" --quiet --warnings-as-errors='*' 2> /dev/null ||
    { echo "clang-tidy has complaints"; bad=1; }
# unusedStructMember, unusedFunction: tables and headers are read one source at a time
# constParameter..., variableScope: taste; normalCheckLevel...: news of the tool itself
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
    --suppress=missingInclude --suppress=unknownMacro --suppress=preprocessorErrorDirective -I. -I"$BT_BIN/generated" \
    --file-list="$BT_BIN/analyse.txt" || { echo "cppcheck has complaints"; bad=1; }
exit $bad
