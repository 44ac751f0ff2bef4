#!/bin/bash
# ctest: timeout=120 labels=web,browser waits
# Messages of the page if there are no data or no further ones: no database, a stopped server, an old token, a run that
# was removed or never existed, links whose runs or metrics no longer exist. Each message is one sentence, and earlier
# content remains dimmed. The test needs the programs that run_browser.sh needs.
. "$(dirname "$0")/browser_lib.sh"
timeout 110 node "$here/states.mjs"
