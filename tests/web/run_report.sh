#!/bin/bash
# ctest: timeout=60 labels=web
# `bitrain report` writes one file that requests nothing from a server, whose policy lists its own scripts with their
# right hashes, and in which no text of a run is markup. (tests/web/browser.mjs opens it in a browser.)
set -u
if "$BITRAIN" doctor --quick | grep -q "without the dashboard"; then echo "SKIP: built without the dashboard"; exit 77; fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db"
failed=0
bad() { echo "FAIL: $*"; failed=1; }
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" base ranks=4 steps=300 straggler=2 excess=4 fail_at=200 resume_from=180 || exit 1
evil='</script><script>window.hacked=1</script><!--<img src=x onerror=hacked=1>&"'
sqlite3 "$BITRAIN_STORE" "UPDATE event SET title = '$evil' WHERE seq = (SELECT max(seq) FROM event); UPDATE run SET note = '$evil', exit_kind = '$evil'; UPDATE run_doc SET argv = '$evil'; INSERT OR REPLACE INTO fact SELECT id, 'x', '$evil', 0 FROM run"

"$BITRAIN" report base -o "$dir/r.html" 2>"$dir/err" || { cat "$dir/err"; exit 1; }
"$BITRAIN" report last >"$dir/again.html" || bad "to standard output"
# Removes the time of the report and the age of the record, which differ.
same() { sed -E 's/"(made_s|age_s)":[0-9.]*//g' "$1"; }
cmp -s <(same "$dir/r.html") <(same "$dir/again.html") || bad "the same report twice differs"
[ "$(stat -c %s "$dir/r.html")" -lt 3000000 ] || bad "$(stat -c %s "$dir/r.html") bytes"
[ ! -e "$dir/r.html.part" ] || bad "a part is left behind"

f=$dir/r.html
grep -q 'hacked' "$f" || bad "the hostile texts are not in the report: this test looks at nothing"
[ "$(grep -o '<script' "$f" | wc -l)" -eq 3 ] || bad "$(grep -o '<script' "$f" | wc -l) script elements"
[ "$(grep -o '</script' "$f" | wc -l)" -eq 3 ] || bad "a text of the run ends a script"
if grep -qE '<(img|iframe|object|embed|base|form)[ >]|<!--|[^-]src=[^x]|href="http' "$f"; then bad "it asks for something from outside"; fi
# The policy permits exactly the existing elements.
text_of() { # prints the text of element $1: 1 style, 2 data, 3 chart library, 4 the page's script
    awk -v want="$1" 'BEGIN { RS = "<" } { tag = $0; if (inside) { if (tag ~ /^\/(script|style)>/) { inside = 0; if (n == want) exit } else if (n == want) printf "<%s", $0; next }
        if (tag ~ /^(script|style)[ >]/) { n++; inside = 1; if (n == want) { sub(/^[^>]*>/, ""); printf "%s", $0 } } }' "$f"
}
for part in 1 3 4; do
    want=$(printf "$(text_of $part | sha256sum | cut -c1-64 | sed 's/../\\x&/g')" | base64)
    grep -qF "'sha256-$want'" "$f" || bad "the policy does not name part $part ($want)"
done
# The data are JSON and agree with the store.
text_of 2 >"$dir/data.json"
sqlite3 :memory: "SELECT 1 FROM (SELECT readfile('$dir/data.json') AS d) WHERE json_valid(d) AND json_extract(d, '\$.run') = 'base' AND json_extract(d, '\$.answers.\"runs/base/head\".head.newest_step') = 299
    AND instr(json_extract(d, '\$.answers.\"runs/base/events\"'), 'hacked') > 0" | grep -q 1 || bad "the data is not JSON, or not of this run"
# Times of day keep their milliseconds although other fractions are shortened.
lasted=$(sqlite3 -readonly "$BITRAIN_STORE" "SELECT printf('%.2f', (ended_us - started_us) / 1e6) FROM attempt ORDER BY attempt LIMIT 1")
sqlite3 :memory: "SELECT printf('%.2f', json_extract(d, '\$.answers.\"runs/base\".attempts[0].ended_s') - json_extract(d, '\$.answers.\"runs/base\".attempts[0].started_s')) FROM (SELECT readfile('$dir/data.json') AS d)" |
    grep -qx "$lasted" || bad "the first attempt did not last $lasted s in the report"

"$BITRAIN" report nobody -o "$dir/n.html" 2>"$dir/err"; [ $? -eq 3 ] || bad "a run that is not there: status $?"
[ ! -e "$dir/n.html" ] || bad "a file for a run that is not there"
"$BITRAIN" report base -o "$dir/no/where.html" 2>/dev/null; [ $? -eq 1 ] || bad "a folder that is not there"
[ $failed -eq 0 ] && echo "one file, its own scripts only"
exit $failed
