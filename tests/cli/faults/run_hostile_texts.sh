#!/usr/bin/env bash
# ctest: timeout=240
# Every text of a database is printed without escape sequences that act on a terminal: every command that reads a
# database shows a copy with a hostile text in every column, as text and as JSON, which remains valid. (--csv and export
# keep the bytes, because their output is data.)
. "$BT_SRC/tests/cli/train_lib.sh"
command -v python3 >/dev/null || skip "python3 is not installed"

ok train "${tiny[@]}" --steps 4 --name calm --ckpt-every 2
ok train "${tiny[@]}" --steps 4 --name second
cat >hostile.py <<'P'
import sqlite3, sys
TEXT = '''"><img src=x>'\x1b]0;TITLE\x07\x1b[2J\u009b31m\u202e${7*7}\r\nInjected: 1\x7f\u2066'''
c = sqlite3.connect(sys.argv[1])
tables = [r[0] for r in c.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")]
for table in tables:
    for _, column, kind, _, _, key in list(c.execute('PRAGMA table_info("%s")' % table)):
        if kind != 'TEXT' or key or (table == 'run' and column in ('name', 'state')): continue
        try: c.execute('UPDATE OR IGNORE "%s" SET "%s" = ? WHERE "%s" IS NOT NULL' % (table, column, column), (TEXT,))
        except sqlite3.Error: pass # the database checks this column
c.execute("UPDATE run_doc SET config = json_object('run.name', json_object('value', ?, 'origin', ?, 'where', ?), ?, json_object('value', ?))", (TEXT,) * 5)
if len(sys.argv) > 2: c.execute("UPDATE run SET name = ? WHERE name = 'second'", ('n' + TEXT,))
c.commit()
P
# judge.py FILE...: checks files whose first line is a command and whose other lines are its output
cat >judge.py <<'P'
import json, sys
faults = 0
for file in sys.argv[1:]:
    command, _, data = open(file, 'rb').read().partition(b'\n')
    command, text, wrong = command.decode(), data.decode('utf-8', 'replace'), []
    try: data.decode('utf-8')
    except ValueError as e: wrong.append(str(e))
    bad = {hex(ord(x)) for x in text if (ord(x) < 32 and x not in '\n\t') or 0x7f <= ord(x) < 0xa0 or 0x202a <= ord(x) <= 0x202e or 0x2066 <= ord(x) <= 0x2069}
    if bad: wrong.append('characters %s' % sorted(bad))
    # a note may have several lines
    if not command.startswith('runs note ') and any(line.startswith('Injected') for line in text.splitlines()): wrong.append('a line of its own')
    if file.endswith('.out') and ' --json' in command and text.strip():
        try: json.loads(text)
        except ValueError as e: wrong.append(str(e))
    if wrong: print("'%s' prints %s" % (command, ', '.join(wrong)))
    faults += len(wrong) > 0
sys.exit(min(faults, 100))
P
# The check detects an escape sequence.
mkdir wrong printed
n=0
for wrong in $'\e[2J' $'\u009b1m' $'\u202ex' $'x\rInjected' $'x\nInjected: 1'; do printf 'show\n%s' "$wrong" >wrong/$((n += 1)).err; done
printf 'show --json\n{' >wrong/json.out
python3 judge.py wrong/* >judged
[ $? = 6 ] || fault "the judge finds only: $(cat judged)"

# shown WORDS...: stores the output of this command on both streams
n=0
shown() {
    n=$((n + 1))
    for stream in out err; do echo "$*" >printed/$n.$stream; done
    timeout 60 "$BITRAIN" "$@" >>printed/$n.out 2>>printed/$n.err </dev/null
    local got=$?
    [ $got -lt 124 ] || fault "'$*' ended with $got"
}
cp "$BITRAIN_STORE" hostile.db
python3 hostile.py hostile.db
cp hostile.db named.db
python3 hostile.py named.db name
for store in hostile.db named.db; do
    export BITRAIN_STORE=$tmp/$store
    other=second
    [ $store = hostile.db ] || other=last
    shown show calm
    shown show $other --all
    shown show calm --json
    shown show $other --json
    shown autopsy calm
    shown autopsy $other --json
    shown compare calm $other
    shown compare calm $other --json
    shown plot calm loss
    shown plot $other loss --json
    shown runs
    shown runs --json
    shown runs note $other
    shown ctl $other pause
    shown ctl calm pause --json
    shown train --resume calm --dry-run --steps 20
    shown train --resume $other --dry-run --steps 20
    shown train --resume calm --dry-run --json --steps 20
    shown eval $other
    shown generate $other --prompt x
    shown convert $other -o x.gguf
    shown export $other --out x.csv
    shown verify $other
    shown replay calm
    shown top $other --once
    shown top $other --once --json
    shown doctor --quick --json
    for view in runs attempts ranks events facts configs checkpoints layers; do shown query --json "SELECT * FROM $view LIMIT 50"; done
done
[ $n -ge 60 ] || fault "only $n commands"
python3 judge.py printed/* || faults=$((faults + $?))
exit $faults
