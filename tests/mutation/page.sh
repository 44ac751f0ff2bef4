#!/usr/bin/env bash
# Seeded mutations of the page's modules against tests/web/modules/run_page.sh: which faults would nobody notice?
#     tests/mutation/page.sh [-n MUTANTS] [-s SEED] [-v] [FILE]...
# -n mutants of each file (12); without files, all modules that the test imports and that export functions which
# compute (page.mjs names them). page.mjs makes and judges them; page_equivalent.txt names those that do the same as the page.
# Prints the survivors and the share that was killed, ends with 1 when there is a survivor. Needs Node.js alone. Not in CI.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export BT_SRC=${BT_SRC:-$(git -C "$here" rev-parse --show-toplevel)}
exec node "$here/page.mjs" "$@"
