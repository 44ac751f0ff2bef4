#!/bin/bash
# ctest: timeout=60 labels=web
# The page's modules that compute and do not draw, under Node.js: numbers as text, lines of charts, scales, the filter
# of runs, means of groups, the responses stored in a report. tests/mutation/page.sh changes these modules one by one
# and runs this test.
set -u
command -v node >/dev/null || { echo "SKIP: Node.js is missing"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -r "${BT_PAGE:-$BT_SRC/web/static}" "$dir/static" || exit 1
echo '{"type": "module"}' >"$dir/package.json" # otherwise Node.js would treat the page's files as scripts
export BT_PAGE="$dir/static" TZ=UTC
for one in "$BT_SRC"/tests/web/modules/*.mjs; do
    timeout 30 node "$one" || { echo "FAIL: $(basename "$one")"; exit 1; }
done
echo "all modules hold"
