#!/usr/bin/env bash
# The layer law on calls and data: what an object file needs of another folder, that folder's row must allow. Include lines alone
# do not show this: a header may be allowed while the function behind it lives in a room that is not.
set -u
cd "$BT_SRC" || exit 1

# stdin: lines "FILE U|D SYMBOL" (needed or defined); prints each need across rooms that no row of layers.txt allows
judge() {
    awk -v rules="$1" '
        BEGIN {
            while ((getline row < rules) > 0) if (row !~ /^#/ && split(row, w, " ")) may[w[1]] = row
        }
        $2 == "D" { home[$3] = $1; next }
        { need[++n] = $1; symbol[n] = $3 }
        function folder(f) { sub(/\/[^\/]*$/, "", f); return f }
        function rule(f,   best, k) {
            best = ""
            for (k in may) if (index(f, k "/") == 1 && length(k) > length(best)) best = k
            return best
        }
        END {
            for (i = 1; i <= n; i++) {
                if (!(symbol[i] in home)) continue
                from = need[i]; to = home[symbol[i]]
                if (folder(from) == folder(to)) continue
                m = split(may[rule(from)], w, " "); ok = 0
                for (k = 1; k <= m; k++) if (index(to, w[k] "/") == 1) ok = 1
                header = to; sub(/\.c$/, ".h", header)
                for (k = 2; k <= m; k++) if (w[k] == header) ok = 1
                if (!ok) print from ": calls " symbol[i] " of " to
            }
        }'
}

symbols() {                             # of every object of the product
    find "$BT_BIN"/engine "$BT_BIN"/store "$BT_BIN"/monitor "$BT_BIN"/web "$BT_BIN"/cli -name '*.c.o' -print0 | xargs -0 nm -A |
        sed -nE "s,^$BT_BIN/(.*)/CMakeFiles/[^/]*\\.dir/([^:]*)\\.o:[0-9a-f ]*([A-Za-z]) ([^ ]+)$,\\1/\\2 \\3 \\4,p" |
        awk '!($1 in there) { there[$1] = (getline line < $1) >= 0; close($1) } # not generated, nor of a source that is gone
             there[$1] && $2 == "U" { print $1, "U", $3 }
             there[$1] && $2 ~ /^[TDBRCVW]$/ { print $1, "D", $3 }'
}

probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
printf 'engine/base/a.c U bt_open\nstore/sql/b.c D bt_open\n' | judge tests/lint/layers.txt | grep -q 'engine/base/a.c: calls bt_open' ||
    { echo "the test itself is blind"; exit 1; }
symbols >"$probe"
n=$(cut -d' ' -f1 "$probe" | sort -u | wc -l)
[ "$n" -ge 40 ] || { echo "only $n objects found: the test looks in the wrong place"; exit 1; }
faults=$(judge tests/lint/layers.txt <"$probe" | sort -u)
[ -z "$faults" ] || { echo "$faults"; exit 1; }
echo "$n object files obey the layer law"
