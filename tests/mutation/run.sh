#!/usr/bin/env bash
# Seeded mutations of source files, tested by their tests (tests.txt): which faults would no test detect?
#     tests/mutation/run.sh [-n MUTANTS] [-f FILES | -a MUTANTS] [-s SEED] [-j JOBS] [-t COLUMNS] [-b SECONDS] [-v] [FILE | FOLDER]...
#     tests/mutation/run.sh -r OUTPUT       only the survivors that an earlier run printed
# -n mutants of each file (8); in a folder -f files (3), long ones more likely, or with -a this number of mutants over all of its
# files, each equally likely, whose share is that of the folder; by default the files changed by the last commit. A mutant is
# given to the tests in its file's row of tests.txt that run its line (counted once with instrumented files), in the order of the
# columns, quick ones first, for at most -b seconds (120). -t: only the first columns, for a quick check. -v prints killed mutants
# as well, with the test. A test kills a mutant by an output, never by assertions about internal calls alone.
# mutants.py creates them with universalmutator (PyPI) and tests them; equivalent.txt lists those that behave like the program.
# Prints the survivors and the share that was killed, exits with 1 if there is a survivor. Not in CI: a mutant takes the time of
# its tests. Needs a build in build/ (BT_BIN names another one), python3-venv, and a network for the first run.
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
