#!/usr/bin/env bash
# ctest: timeout=300
# The formatters decide the layout: clang-format for C (.clang-format), prettier for the page (.prettierrc.json). `cmake
# --build build --target format` applies both. This script checks limits that no formatter enforces: 120 columns in C
# and in the page's files, 160 in tables (.def), and 600 lines in the page's files. With --write it formats.
set -u
cd "$BT_SRC" || exit 1
bad=0
files() { if [ -e .git ]; then git ls-files -co --exclude-standard "$@"; else find engine store monitor web cli tests -name node_modules -prune -o -type f -print; fi; }
c_files() { files | grep -E '^(engine|store|monitor|web|cli|tests)/.*\.[ch]$' | grep -v '_golden\.h$' | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
page_files() { files | grep -E '^(web/static|tests/web)/.*\.(js|mjs|css|html)$' | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
drawing_files() { files | grep -E '^web/static/.*\.svg$'; }
wider() { xargs awk -v most="$1" -v hint="${2:-}" 'length($0) > most {print FILENAME ":" FNR ": " length($0) " columns, at most " most hint}'; }
longer() { xargs wc -l | awk -v most="$1" '$2 != "total" && $1 > most {print $2 ": " $1 " lines, at most " most}'; }
prettier=$BT_BIN/tests/web/node_modules/.bin/prettier

if [ "${1:-}" = --write ]; then
    c_files | xargs clang-format -i || exit 1
    [ -x "$prettier" ] || { echo "prettier is missing: cmake --build build --target browser-modules"; exit 1; }
    page_files | xargs "$prettier" --log-level warn --write
    exit
fi

hits=$(c_files | wider 120
    files | grep '\.def$' | wider 160 ' in a table'
    { page_files; drawing_files; } | wider 120
    page_files | longer 600)
[ -z "$hits" ] || { head -20 <<<"$hits"; bad=1; }

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
{ printf '%0121d\n%0120d\n' 0 0; seq 599; } >"$probe/wrong.js"
[ "$(echo "$probe/wrong.js" | wider 120)" = "$probe/wrong.js:1: 121 columns, at most 120" ] &&
    [ "$(echo "$probe/wrong.js" | longer 600)" = "$probe/wrong.js: 601 lines, at most 600" ] || { echo "the test itself is blind"; exit 1; }
skipped=
if [ "$(clang-format --version 2>/dev/null | grep -o 'version [0-9]*')" = "version 14" ]; then
    cp .clang-format "$probe"
    printf 'int  f( void ){return 1;}\n' >"$probe/wrong.c"
    clang-format --dry-run -Werror "$probe/wrong.c" 2>/dev/null && { echo "the test itself is blind"; exit 1; }
    hits=$(c_files | xargs -P "$(nproc)" -n 40 clang-format --dry-run -Werror 2>&1 | grep 'error:' | cut -d: -f1 | sort -u)
    [ -z "$hits" ] || { echo "not as clang-format would have it:" $hits; bad=1; }
else
    skipped="clang-format 14 (Debian: clang-format)"
fi
if [ -x "$prettier" ]; then
    hits=$(page_files | xargs "$prettier" --list-different)
    [ -z "$hits" ] || { echo "not as prettier would have it:" $hits; bad=1; }
else
    skipped="${skipped:+$skipped and }prettier (cmake --build build --target browser-modules)"
fi
[ $bad -eq 0 ] || { echo "cmake --build build --target format mends the layout"; exit 1; }
[ -z "$skipped" ] || { echo "not checked, missing: $skipped"; exit 77; }
echo "$(c_files | wc -l) C files and $(page_files | wc -l) page files are formatted"
