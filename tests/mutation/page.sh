#!/usr/bin/env bash
# Makes mutants (small random changes) of the page's modules and runs tests/web/modules/run_page.sh on each: a mutant
# that passes is a fault that no test detects.
#     tests/mutation/page.sh [-n MUTANTS] [-s SEED] [-v] [FILE]...
# -n mutants of each file (12); by default of all modules that the test imports and that export computing functions
# (page.mjs lists them). page.mjs makes and tests the mutants; page_equivalent.txt lists those that behave like the
# page. Prints the survivors and the share that was killed, and exits with 1 if there is a survivor. Needs only Node.js.
# Not in CI.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export BT_SRC=${BT_SRC:-$(git -C "$here" rev-parse --show-toplevel)}
exec node "$here/page.mjs" "$@"
