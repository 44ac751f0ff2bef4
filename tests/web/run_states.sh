#!/bin/bash
# What the page says when there is nothing to show or no more: no database, a server that goes, a token of before, a run that was removed
# or never was, links whose runs or metrics are gone. One sentence for people each; what was shown stays, dimmed. Needs what
# run_browser.sh needs.
# timeout: 120
# waits: yes
# labels: web browser
. "$(dirname "$0")/browser_lib.sh"
timeout 110 node "$here/states.mjs"
