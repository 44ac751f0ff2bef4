#!/usr/bin/env bash
# Seeded mutations of source files against their tests (tests.txt): which faults would nobody notice?
#     tests/mutation/run.sh [-n MUTANTS] [-f FILES | -a MUTANTS] [-s SEED] [-j JOBS] [-t COLUMNS] [-b SECONDS] [-v] [FILE | FOLDER]...
#     tests/mutation/run.sh -r OUTPUT       only the survivors that an earlier run printed
# -n mutants of each file (8); of a folder -f files (3), the long ones more likely, or with -a so many mutants of all of its files,
# each as likely as any other, whose share is the folder's; without any, the files that the last commit changed. A mutant is
# asked of the tests of its file's row in tests.txt that run its line (counted once, with the files instrumented), in the order
# of the columns, the quick ones first, up to so many seconds (120). -t: only of the first columns, for a first look.
# -v prints those that were killed too, and by which test.
# mutants.py makes them with universalmutator (PyPI) and judges them; equivalent.txt names those that do the same as the
# program. Prints the survivors and the share that was killed, ends with 1 when there is a survivor. Not in CI: a mutant takes
# what its tests take. Needs a build in build/ (BT_BIN names another one), python3-venv, and a network for the first run.
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
