#!/bin/bash
# ctest: timeout=240 labels=web,browser
# Every page of the dashboard in a real browser, on synthetic runs with known values: the page agrees with the store.
# The test needs Chromium, Node.js 18 and the modules in tests/web/package-lock.json; `./bootstrap test` installs them
# where possible (by hand: cmake --build build --target browser-modules). Otherwise it is skipped with a message about
# the missing program.
. "$(dirname "$0")/browser_lib.sh"
"$BT_SYNTH" "$BITRAIN_STORE" base planned=1 ranks=4 steps=300 straggler=2 excess=4 fail_at=200 resume_from=180 down_s=4 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" other ranks=4 steps=200 slow=0.9 || exit 1
"$BITRAIN" runs tag other warm cold >/dev/null 2>&1
evil='</script><img src=x onerror=hacked=1><b id=hacked>&"'
sqlite3 "$BITRAIN_STORE" "UPDATE event SET title = '$evil' WHERE seq = (SELECT max(seq) FROM event WHERE run = 1); UPDATE run SET note = '$evil' WHERE id = 1; UPDATE run_doc SET argv = '$evil' WHERE run = 1; INSERT OR REPLACE INTO fact VALUES (1, 'x', '$evil', 0)"
timeout 220 node "$here/browser.mjs"
