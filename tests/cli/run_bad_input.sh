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
2 | data                                        | needs a verb: prepare, inspect
2 | data prepair x                              | did you mean 'prepare'?
2 | data inspect                                | no data named
3 | data inspect {tmp}/none.txt                 | none.txt
2 | data inspect {tmp}                          | holds no files
6 | data inspect {junk}                         | binary, not text
6 | data inspect {junk}.bts                     | wrong magic at byte 0
6 | data inspect {empty}.bts                    | truncated
2 | data inspect synth:chain                    | nothing to inspect
2 | data inspect {empty} --sample -1            | --sample
2 | data inspect {empty} --out x.bts            | has no option '--out'
2 | data prepare {empty}                        | no --out FILE
2 | data prepare {empty} --out {tmp}/x.txt      | does not end with .bts
1 | data prepare {empty} --out {tmp}/no/x.bts   | cannot create
4 | data prepare {empty} --out {empty}.bts      | exists already (--force replaces it)
2 | data prepare {junk}.bts --out {tmp}/x.bts   | holds tokens already
3 | data prepare {empty} --out {tmp}/x.bts --tokenizer {tmp}/t.json | there is no tokenizer
6 | data prepare {empty} --out {tmp}/x.bts --tokenizer {junk} | not valid JSON
2 | tokenizer                                   | needs a verb: train, inspect, encode, decode, import
2 | tokenizer trian                             | did you mean 'train'?
2 | tokenizer train {empty}                     | no --out FILE
2 | tokenizer train {empty} --out {tmp}/t.json  | no text to train a tokenizer on
2 | tokenizer train {conf} --vocab 9000 --out {tmp}/t.json | are wanted: ask for fewer or give more text
2 | tokenizer train {conf} --vocab 256 --out {tmp}/t.json | --vocab
4 | tokenizer train {conf} --out {conf}         | exists already
3 | tokenizer inspect {tmp}/t.json              | there is no tokenizer
6 | tokenizer inspect {empty}                   | not valid JSON
2 | tokenizer inspect bytes more                | unexpected word 'more'
2 | tokenizer decode bytes 256                  | outside 0..255
2 | tokenizer decode bytes 1x                   | is not a token id
6 | tokenizer import {conf} --out {tmp}/t.json  | not valid JSON
3 | tokenizer import {tmp}/t.json --out {tmp}/u.json | cannot open
END
)
bad=0
fault() { echo "$*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export BITRAIN_STORE=$tmp/none.db XDG_DATA_HOME=$tmp/data HOME=$tmp
head -c 100000 /dev/urandom >"$tmp/junk"
: >"$tmp/empty"
: >"$tmp/empty.bts"
cp "$tmp/junk" "$tmp/junk.bts"
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
