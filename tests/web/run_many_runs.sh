#!/bin/bash
# ctest: timeout=180 labels=web,browser
# The table of 500 runs, of which only the visible ones are in the document: rows are drawn while it scrolls, focus and
# selection by Shift survive, searching and printing find all of them, screen readers get the total. The test needs the
# programs that run_browser.sh needs.
. "$(dirname "$0")/browser_lib.sh"
"$BT_SYNTH" "$BITRAIN_STORE" run-001 ranks=1 steps=30 || exit 1
# Adds 499 runs of the same kind, each a second older, with another loss and without steps, because the table reads only
# summaries.
{
    echo "BEGIN; CREATE TEMP TABLE one AS SELECT * FROM run;"
    for i in $(seq 2 500); do
        printf "UPDATE one SET id = %d, name = 'run-%03d', created_us = created_us - 1000000, loss = 2 + %d / 100.; INSERT INTO run SELECT * FROM one;\n" "$i" "$i" $((i * 37 % 500))
        [ $((i % 100)) -ne 0 ] || printf "UPDATE run SET note = 'a much longer note than the other runs have' WHERE id = %d;\n" "$i"
    done
    echo "COMMIT;"
} | sqlite3 "$BITRAIN_STORE" || exit 1
timeout 170 node "$here/many_runs.mjs"
