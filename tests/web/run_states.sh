#!/bin/bash
# ctest: timeout=120 labels=web,browser waits
# Messages of the page when there are no data or no further ones: no database, a stopped server, an old token, a run
# that was removed or never existed, links whose runs or metrics are gone. One sentence each; earlier content remains
# dimmed. Needs what run_browser.sh needs.
. "$(dirname "$0")/browser_lib.sh"
timeout 110 node "$here/states.mjs"
