#!/usr/bin/env bash
# clang-tidy (.clang-tidy) and cppcheck for every source of the program. Correct code that a check rejects has a note in
# its line (NOLINT with the check's name, cppcheck-suppress); whole kinds of warnings are listed below or in .clang-tidy
# with the reason.
set -u
cd "$BT_SRC" || exit 1
tidy=$(command -v clang-tidy || command -v clang-tidy-14) || { echo "clang-tidy is not installed (Debian: clang-tidy)"; exit 77; }
command -v cppcheck > /dev/null || { echo "cppcheck is not installed (Debian: cppcheck)"; exit 77; }
[ -f "$BT_BIN/compile_commands.json" ] || { echo "no compile_commands.json in $BT_BIN"; exit 1; }
bad=0
# Sources are checked with the flags of the program; tests compile some of them again with other flags.
mkdir -p "$BT_BIN/analyse"
awk '/^{/ { entry = "" } { entry = entry $0 "\n" } /^}/ && entry !~ / -o tests\// {
         sub(/},?\n$/, "}", entry); printf "%s%s", n++ ? ",\n" : "[\n", entry } END { print "\n]" }' \
    "$BT_BIN/compile_commands.json" > "$BT_BIN/analyse/compile_commands.json"
find engine cli monitor store web -name '*.c' 2>/dev/null | sort > "$BT_BIN/analyse.txt"
# Each source has its own process, because clang-tidy 14 considers every va_list after the first in a process
# uninitialised.
xargs -a "$BT_BIN/analyse.txt" -P "$(nproc)" -n 1 "$tidy" -p "$BT_BIN/analyse" --quiet --warnings-as-errors='*' 2> /dev/null ||
    { echo "clang-tidy has complaints"; bad=1; }
# unusedStructMember, unusedFunction: tables and headers are read one source at a time.
# constParameter..., variableScope: matters of taste; normalCheckLevel...: messages about the tool itself.
# unknownEvaluationOrder: the tool confuses the .n of lines[n++] = (struct){.n = 1} with n; internalAstError: errors of
# its own parser.
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
    --suppress=unknownEvaluationOrder --suppress=internalAstError --suppress=missingInclude \
    --suppress=unknownMacro --suppress=preprocessorErrorDirective -I. -I"$BT_BIN/generated" \
    --file-list="$BT_BIN/analyse.txt" || { echo "cppcheck has complaints"; bad=1; }
exit $bad
