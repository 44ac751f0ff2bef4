#!/usr/bin/env bash
# Makes mutants (small random changes) of source files and runs their tests (tests.txt) on each: a mutant that passes is
# a fault that no test detects.
#     tests/mutation/run.sh [-n MUTANTS] [-f FILES | -a MUTANTS] [-s SEED] [-j JOBS] [-t COLUMNS] [-b SECONDS] [-v] [FILE | FOLDER]...
#     tests/mutation/run.sh -r OUTPUT     only the survivors that an earlier run printed
# -n mutants of each file (8); in a folder -f files (3), long ones more likely, or with -a this number of mutants over
# all of its files, each equally likely, which gives the share of the folder; by default the files changed by the last
# commit. The tests in the file's row of tests.txt that execute the changed line (determined once with instrumented
# files) run in the order of the columns, quick ones first, for at most -b seconds (120). -t: only the first columns,
# for a quick check. -v also prints killed mutants with the test. A test kills a mutant by an output, never by
# assertions about internal calls alone.
# mutants.py creates the mutants with universalmutator (PyPI) and tests them; equivalent.txt lists those that behave
# like the program. Prints the survivors and the share that was killed, and exits with 1 if there is a survivor. Not in
# CI: a mutant takes the time of its tests. Needs a build in build/ (or the folder BT_BIN), python3-venv, and a network
# for the first run.
set -u
options=()
again=
while getopts a:n:f:s:j:t:b:r:v option; do
    case $option in
    v) options+=(-v) ;;
    r) again=1 options+=(-r "$(realpath "$OPTARG")") ;;
    [anfsjtb]) options+=("-$option" "$OPTARG") ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
here=$(cd "$(dirname "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
export PYTHONDONTWRITEBYTECODE=1 BT_BIN=${BT_BIN:-$root/build} BT_MUTATION=${BT_MUTATION:-$root/build/mutation}
cd "$root" || exit 1
mkdir -p "$BT_MUTATION"
files=("$@")
[ -n "$again" ] || [ ${#files[@]} -gt 0 ] || mapfile -t files < <(git diff --name-only --diff-filter=AM HEAD~1 -- '*.c' | grep -v '^tests/')
[ -n "$again" ] || [ ${#files[@]} -gt 0 ] || { echo "no source file was changed by the last commit: name some"; exit 2; }
[ -f "$BT_BIN/build.ninja" ] || { echo "'$BT_BIN' is no build of the preset 'release' (cmake --preset release)"; exit 2; }
if [ ! -x "$BT_MUTATION/venv/bin/mutate" ]; then
    python3 -m venv "$BT_MUTATION/venv" && "$BT_MUTATION/venv/bin/pip" -q install universalmutator==1.14.1 ||
        { echo "universalmutator cannot be installed"; exit 77; }
fi
exec "$BT_MUTATION/venv/bin/python" "$here/mutants.py" "${options[@]}" ${files[@]+"${files[@]}"}
