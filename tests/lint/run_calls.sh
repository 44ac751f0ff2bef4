#!/usr/bin/env bash
# The rules for calls and data between object files. Include lines alone do not show these dependencies: a header may be allowed
# while the file that defines its function is not.
# 1. A file uses functions and data of another folder only where the row of its own folder in layers.txt allows it.
# 2. No files depend on each other in a cycle, inside a folder or across folders; there is no list of exceptions. Move the function
#    to the file whose responsibility it is, or below both files; or return a value instead of calling back.
set -u
cd "$BT_SRC" || exit 1

# stdin: lines "FILE U|D SYMBOL" (needed or defined); prints each use of another folder's symbol that no row of
# layers.txt permits
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

# stdin: as above; prints the files of each cycle in one line, sorted, then one indented line for each pair of its files
find_cycles() {
    awk '
        $2 == "D" { home[$3] = $1; next }
        { need[++n] = $1; symbol[n] = $3 }
        function sorted(list,   w, m, i, j, t) {
            m = split(list, w, " ")
            for (i = 2; i <= m; i++) for (j = i; j > 1 && w[j] < w[j - 1]; j--) { t = w[j]; w[j] = w[j - 1]; w[j - 1] = t }
            list = w[1]
            for (i = 2; i <= m; i++) list = list " " w[i]
            return list
        }
        function visit(f,   w, m, i, g) { # Tarjan: strongly connected components
            order[f] = low[f] = ++visited; stack[++depth] = f; open[f] = 1
            m = split(calls[f], w, " ")
            for (i = 1; i <= m; i++) {
                g = w[i]
                if (!(g in order)) visit(g)
                if (open[g] && low[g] < low[f]) low[f] = low[g]
            }
            if (low[f] != order[f]) return
            m = ""; i = 0
            do { g = stack[depth--]; open[g] = 0; m = m " " g; i++ } while (g != f)
            if (i > 1) report(sorted(m))
        }
        function report(cycle,   w, m, i, j) {
            print cycle
            m = split(cycle, w, " ")
            for (i = 1; i <= m; i++) for (j = 1; j <= m; j++)
                if ((w[i], w[j]) in uses) print "    " w[i] " uses" uses[w[i], w[j]] " of " w[j]
        }
        END {
            for (i = 1; i <= n; i++) {
                if (!(symbol[i] in home) || home[symbol[i]] == need[i]) continue
                f = need[i]; g = home[symbol[i]]
                if (!((f, g) in uses)) calls[f] = calls[f] " " g
                uses[f, g] = uses[f, g] " " symbol[i]
            }
            for (f in calls) if (!(f in order)) visit(f)
        }'
}

symbols() { # prints the symbols of every object of the product
    find "$BT_BIN"/engine "$BT_BIN"/store "$BT_BIN"/monitor "$BT_BIN"/web "$BT_BIN"/cli -name '*.c.o' -print0 | xargs -0 nm -A |
        sed -nE "s,^$BT_BIN/(.*)/CMakeFiles/[^/]*\\.dir/([^:]*)\\.o:[0-9a-f ]*([A-Za-z]) ([^ ]+)$,\\1/\\2 \\3 \\4,p" |
        awk '!($1 in there) { there[$1] = (getline line < $1) >= 0; close($1) } # neither generated, nor of a removed source
             there[$1] && $2 == "U" { print $1, "U", $3 }
             there[$1] && $2 ~ /^[TDBRCVW]$/ { print $1, "D", $3 }'
}

probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
printf 'engine/base/a.c U bt_open\nstore/sql/b.c D bt_open\n' | judge tests/lint/layers.txt | grep -q 'engine/base/a.c: calls bt_open' ||
    { echo "the test itself is blind"; exit 1; }

# Two cycles, a -> b -> c -> a over two folders and d <-> e; f is in none, although it calls and is called.
cat >"$probe" <<'END'
x/c.c D c
x/a.c D a
x/a.c U b
y/b.c D b
y/b.c U c
x/c.c U a
x/d.c D d
x/d.c U e
x/e.c D e
x/e.c U d
x/e.c U f
x/f.c D f
x/f.c U a
END
found=$(find_cycles <"$probe" | grep '^[^ ]' | sort | tr '\n' ';')
[ "$found" = "x/a.c x/c.c y/b.c;x/d.c x/e.c;" ] || { echo "the search for cycles found '$found'"; exit 1; }
find_cycles <"$probe" | grep -qF '    x/a.c uses b of y/b.c' || { echo "the search for cycles does not name the calls"; exit 1; }

symbols >"$probe"
n=$(cut -d' ' -f1 "$probe" | sort -u | wc -l)
[ "$n" -ge 40 ] || { echo "only $n objects found: the test looks in the wrong place"; exit 1; }
faults=$(judge tests/lint/layers.txt <"$probe" | sort -u)
cycles=$(find_cycles <"$probe" | sed 's/^[^ ]/a cycle of calls: &/')
[ -z "$faults$cycles" ] || { printf '%s\n' "$faults" "$cycles" | grep .; exit 1; }
echo "$n object files obey the layer law, and no cycle of calls is between them"
