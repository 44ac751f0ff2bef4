#!/usr/bin/env bash
# Seeded mutations of source files against their tests (tests.txt): which faults would nobody notice?
#     tests/mutation/run.sh [-n MUTANTS] [-s SEED] [FILE...]      without files: those that the last commit changed
# Mutants are made by universalmutator (PyPI), put one by one into a work tree of their own, built and tested there. Prints a line
# for each and the share that was killed; ends with 1 when one survived that equivalent.txt does not name. Not in CI: a mutant
# takes what a build and its tests take. Needs python3-venv and a network for the first run.
set -u
number=20 seed=1
while getopts n:s: option; do
    case $option in n) number=$OPTARG ;; s) seed=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
here=$(cd "$(dirname "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
work=${BT_MUTATION:-$root/build/mutation}
cd "$root" || exit 1
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git diff --name-only --diff-filter=AM HEAD~1 -- '*.c' | grep -v '^tests/')
[ ${#files[@]} -gt 0 ] || { echo "no source file was changed by the last commit: name some"; exit 2; }
mkdir -p "$work"
if [ ! -x "$work/venv/bin/mutate" ]; then
    python3 -m venv "$work/venv" && "$work/venv/bin/pip" -q install universalmutator || { echo "universalmutator cannot be installed"; exit 77; }
fi
tree=$work/tree
[ -d "$tree" ] || git worktree add -q --detach "$tree" HEAD || exit 1
git -C "$tree" checkout -q --detach "$(git rev-parse HEAD)" && git -C "$tree" checkout -q -- . || exit 1
if [ ! -f "$tree/build/build.ninja" ]; then
    launcher=$(command -v ccache) && launcher=-DCMAKE_C_COMPILER_LAUNCHER=$launcher
    cmake -S "$tree" -B "$tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Release $launcher > "$work/log" 2>&1 || { tail "$work/log"; exit 1; }
fi
all_targets=$(ninja -C "$tree/build" -t targets all | sed -nE "s/^(t\\.[^:]*|bitrain): .*/\\1/p")
squeeze() { tr -s ' \t' ' ' | sed 's/^ //; s/ $//'; }
judge() { # a row of tests.txt for the file: targets and regular expression
    awk -v f="$1" '!/^#/ && NF && index(f, $1) == 1 { print; exit }' "$here/tests.txt"
}
targets_of() { # patterns -> targets
    for pattern in "$@"; do grep -xE "${pattern//\*/.*}" <<< "$all_targets"; done | sort -u
}
killed=0 survived=0 equivalent=0
for file in "${files[@]}"; do
    row=$(judge "$file")
    [ -n "$row" ] || { echo "$file: no row in tests.txt"; continue; }
    tests=${row##* }
    read -r -a patterns <<< "${row% *}"
    mapfile -t targets < <(targets_of "${patterns[@]:1}")
    cmake --build "$tree/build" --target "${targets[@]}" > "$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }
    (cd "$tree/build" && timeout 900 ctest -j2 -R "$tests" > "$work/log" 2>&1) ||
        { echo "$file: its tests fail without a mutation"; grep -E 'Failed|Timeout' "$work/log"; exit 1; }
    rm -rf "$work/mutants" && mkdir "$work/mutants"
    "$work/venv/bin/mutate" "$file" c --noCheck --mutantDir "$work/mutants" > "$work/log" 2>&1
    mapfile -t mutants < <(find "$work/mutants" -name '*.c' | sort | shuf --random-source=<(yes "$seed"))
    tried=0
    for mutant in "${mutants[@]}"; do
        [ $tried -lt "$number" ] || break
        change=$(diff "$file" "$mutant" | sed -n 's/^> //p' | squeeze)
        where=$(diff "$file" "$mutant" | sed -n '1s/[acd,].*//p')
        cp "$mutant" "$tree/$file"
        # what does not compile is no mutant
        cmake --build "$tree/build" --target "${targets[@]}" > "$work/log" 2>&1 || continue
        tried=$((tried + 1))
        if ! (cd "$tree/build" && timeout 900 ctest -j2 --stop-on-failure --timeout 120 -R "$tests" > "$work/log" 2>&1); then
            killed=$((killed + 1))
        elif grep -qF "$file | $change | " "$here/equivalent.txt"; then
            equivalent=$((equivalent + 1))
        else
            survived=$((survived + 1))
            echo "SURVIVED $file:$where: $(sed -n "${where}p" "$file" | squeeze)  ->  $change"
        fi
    done
    git -C "$tree" checkout -q -- "$file"
    echo "$file: $tried mutants"
done
all=$((killed + survived))
[ $all -gt 0 ] && echo "killed $killed of $all ($((100 * killed / all)) %), besides $equivalent that are known to be equivalent"
[ $survived -eq 0 ]
