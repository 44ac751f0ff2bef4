#!/bin/bash
# Every page of the dashboard in a real browser, on a synthetic run with known truth: what the page says is what the API says.
# Needs: Node.js, Chromium, and playwright-core (npm --prefix tests/web install). Skips, saying what is missing.
# timeout: 120
# labels: web browser
set -u
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "SKIP: $*"; exit 77; }
command -v node >/dev/null || skip "Node.js is missing (Debian: nodejs)"
[ -x /usr/bin/chromium ] || skip "Chromium is missing (Debian: chromium)"
modules=${BITRAIN_TEST_MODULES:-$here/node_modules}
[ -d "$modules/playwright-core" ] || skip "playwright-core is missing (npm --prefix tests/web install)"
! "$BITRAIN" doctor --quick | grep -q "without the dashboard" || skip "built without the dashboard"
dir=$(mktemp -d)
pid=""
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; fi; rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" BITRAIN_DASH_TOKEN=0123456789abcdef0123456789abcdef
make=$BT_BIN/tests/t.store.synth
"$make" "$BITRAIN_STORE" base ranks=4 steps=300 straggler=2 excess=4 || exit 1
"$make" "$BITRAIN_STORE" other ranks=4 steps=200 || exit 1
"$BITRAIN" dash --port 0 --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do [ -s "$dir/out" ] && break; sleep 0.05; done
port=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$dir/out")
[ -n "$port" ] || { echo "dash did not start:"; cat "$dir/err"; exit 1; }
BT_URL=http://127.0.0.1:$port BT_MODULES=$modules BT_PROFILE=$dir BT_SYNTH=$make timeout 110 node "$here/browser.mjs"
