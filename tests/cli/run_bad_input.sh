#!/usr/bin/env bash
# Bad input, table-driven: one clear line on standard error, the right exit code, no crash; nothing on standard output
# unless it is a report that found something (5).
#
# Rows: exit code | words after 'bitrain' | what the line must contain. {tmp} is an empty folder, {store} a database that does
# not exist, {junk} a file of random bytes, {empty} an empty file, {conf} a configuration file with a misspelt key.
# Every command of 'bitrain help' needs a row.
set -u
rows=$(cat <<'END'
2 | hlep                                        | unknown command 'hlep' (did you mean 'help'?)
2 | zebra                                       | 'bitrain help' lists the commands
2 | help zebra                                  | no help about 'zebra'
2 | help --markdwon                             | did you mean '--markdown'?
2 | help --completion zsh                       | only bash
2 | help train topics                           | unexpected word 'topics'
2 | doctor --jsno                               | did you mean '--json'?
2 | doctor now                                  | unexpected word 'now'
5 | doctor --quick --isa avx513                 | 1 check failed
5 | doctor --quick --store {junk}               | 1 check failed
3 | runs                                        | none.db
2 | query                                       | no query given
3 | query "SELECT 1"                            | none.db
END
)
bad=0
fault() { echo "$*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export BITRAIN_STORE=$tmp/none.db XDG_DATA_HOME=$tmp/data HOME=$tmp
head -c 100000 /dev/urandom >"$tmp/junk"
: >"$tmp/empty"
mkdir "$tmp/folder"
printf 'train:\n  steps: 5\noptim:\n  lrr: 1\n' >"$tmp/conf.yaml"

seen=
while IFS='|' read -r code words part; do
    code=${code// /}
    [ -n "$code" ] || continue
    part=${part# }
    part=${part%"${part##*[! ]}"}
    words=${words//'{tmp}'/$tmp/folder}
    words=${words//'{store}'/$tmp/none.db}
    words=${words//'{junk}'/$tmp/junk}
    words=${words//'{empty}'/$tmp/empty}
    words=${words//'{conf}'/$tmp/conf.yaml}
    eval "set -- $words"
    seen="$seen $1"
    timeout -k 5 60 "$BITRAIN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ "$got" -eq "$code" ] || fault "bitrain $*: exit $got, not $code: $(head -3 "$tmp/err")"
    grep -qF -- "$part" "$tmp/err" || fault "bitrain $*: does not say \"$part\" but: $(head -3 "$tmp/err")"
    [ "$(wc -l <"$tmp/err")" -le 1 ] || fault "bitrain $*: more than one line: $(cat "$tmp/err")"
    [ "$code" -eq 5 ] || [ ! -s "$tmp/out" ] || fault "bitrain $*: wrote to standard output: $(head -3 "$tmp/out")"
done <<<"$rows"

for c in $("$BITRAIN" help | awk '/^  [a-z]/ {print $1}'); do
    grep -qw -- "$c" <<<"$seen" || fault "no bad input is tried for 'bitrain $c': add a row"
done
exit $bad
