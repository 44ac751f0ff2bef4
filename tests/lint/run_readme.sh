#!/usr/bin/env bash
# The generated blocks of the reference equal `bitrain help --markdown`. tests/lint/run_readme.sh --write updates them.
set -u
src=${BT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
bitrain=${BITRAIN:-$src/build/bitrain}
blocks=$("$bitrain" help --markdown) || exit 1
block() { awk -v n="$2" '$0 == "<!-- generated: " n " -->" {on = 1} on {print} $0 == "<!-- end: " n " -->" {on = 0}' <<<"$1"; }
names=$(sed -nE 's/^<!-- generated: (.*) -->$/\1/p' <<<"$blocks")
[ "$(wc -w <<<"$names")" -ge 2 ] || { echo "'bitrain help --markdown' has no blocks"; exit 1; }
bad=0
for n in $names; do
    want=$(block "$blocks" "$n")
    have=$(block "$(cat "$src/cli/REFERENCE.md")" "$n")
    [ -n "$have" ] || { echo "REFERENCE.md has no block '$n'"; bad=1; continue; }
    [ "$want" = "$have" ] && continue
    if [ "${1-}" = --write ]; then
        WANT=$want awk -v n="$n" '$0 == "<!-- generated: " n " -->" {print ENVIRON["WANT"]; skip = 1} !skip {print} $0 == "<!-- end: " n " -->" {skip = 0}' \
            "$src/cli/REFERENCE.md" >"$src/cli/REFERENCE.md.new" && mv "$src/cli/REFERENCE.md.new" "$src/cli/REFERENCE.md"
        echo "block '$n' written"
    else
        diff <(echo "$have") <(echo "$want")
        echo "REFERENCE.md's block '$n' is not what 'bitrain help --markdown' prints (renew: tests/lint/run_readme.sh --write)"
        bad=1
    fi
done
exit $bad
