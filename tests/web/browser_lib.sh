# browser_lib.sh - sourced by the tests that drive a browser. It skips the test with a message if a program is missing;
# otherwise it creates a temporary folder, a store and a token, and sets the paths that the scripts of Node.js read.
set -u
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "SKIP: $*"; exit 77; }
command -v node >/dev/null || skip "Node.js is missing (Debian: npm)"
command -v chromium >/dev/null || skip "Chromium is missing (Debian: chromium)"
modules=$BT_BIN/tests/web/node_modules
[ -d "$modules/playwright-core" ] && [ -d "$modules/axe-core" ] ||
    skip "playwright-core and axe-core are missing (cmake --build build --target browser-modules)"
! "$BITRAIN" doctor --quick | grep -q "without the dashboard" || skip "built without the dashboard"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" BITRAIN_DASH_TOKEN=0123456789abcdef0123456789abcdef HOME="$dir"
export BT_SYNTH=$BT_BIN/tests/t.store.synth_runs BT_MODULES=$modules BT_DIR=$dir
