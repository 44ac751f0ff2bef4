#!/usr/bin/env bash
# ctest: timeout=120
# The backup at a run's end: a large database is copied in the background, so the prompt appears at once; the copy is
# complete; a kill during the copy leaves the previous backups, and the next backup removes the temporary files.
. "$BT_SRC/tests/cli/train_lib.sh"
f=$BITRAIN_STORE

whole() { [ "$(sqlite3 -readonly "$1" 'PRAGMA integrity_check')" = ok ] || fault "$1 is not whole"; }
has() { sqlite3 -readonly "$1" "SELECT count(*) FROM runs WHERE run = '$2'"; }
maker() { pgrep -f -- "--name $1" | head -n 1; } # the process that makes the copy, a child of an ended run
until_true() { # COMMAND...: waits at most 30 s
    for _ in $(seq 600); do "$@" && return 0; sleep 0.05; done
    fault "never: $*"
    return 1
}
half_made() { [ -n "$(find "$tmp" -name 'm.db.backup-*.tmp' -size +0)" ]; }
second_name() { [ "$(stat -c %i "$f.backup")" = "$(stat -c %i "$f.backup.1" 2>/dev/null)" ]; }
latest_is() { [ "$(has "$f.backup" "$1" 2>/dev/null)" = 1 ]; }

command -v sqlite3 >/dev/null || skip "sqlite3 is not installed"
"$BT_BIN/tests/t.store.synth_runs" "$f" big ranks=8 steps=30000 >/dev/null || fault "no large database"
[ "$(stat -c %s "$f")" -gt $((16 << 20)) ] || fault "the database is not large enough to be copied aside"
ok train "${tiny[@]}" --steps 3 --name one
until_true latest_is one
whole "$f.backup"
before=$(stat -c %i "$f.backup")

# The gate is closed, so a run that waited for its backup would never end.
export BITRAIN_TEST_BACKUP=$tmp/gate
ok train "${tiny[@]}" --steps 3 --name two
until_true half_made
pid=$(maker two)
[ -n "$pid" ] || fault "no process makes the backup"
[ "$(stat -c %i "$f.backup")" = "$before" ] || fault "the backup changed before it was whole"
kill -9 "$pid"
whole "$f.backup"
[ "$(has "$f.backup" two)" = 0 ] || fault "a killed backup took the place of the old one"
[ "$(q "SELECT state FROM runs WHERE run = 'two'")" = done ] || fault "the run whose backup was killed is not done"

# The process is killed between its two renames: both names exist and are the newest backup.
touch gate.copy
ok train "${tiny[@]}" --steps 3 --name three
until_true second_name
pid=$(maker three)
kill -9 "$pid"
for x in "$f.backup" "$f.backup.1"; do whole "$x"; latest_is one || fault "$x is not the one from before"; done
half_made || fault "nothing was killed"

# An undisturbed backup: the newest is complete, the older one is the previous backup, and no other file remains.
touch gate.rename
ok train "${tiny[@]}" --steps 3 --name four
until_true latest_is four
for x in "$f.backup" "$f.backup.1"; do whole "$x"; done
[ "$(has "$f.backup" three)" = 1 ] || fault "the backup lacks a run"
[ "$(sqlite3 -readonly "$f.backup" "SELECT count(*) FROM steps WHERE run = 'big'")" = 30000 ] || fault "the backup lacks steps"
[ "$(has "$f.backup.1" one)$(has "$f.backup.1" four)" = 10 ] || fault "the older backup is not the one from before"
[ -z "$(find "$tmp" -name 'm.db.backup-*.tmp*')" ] || fault "left behind: $(find "$tmp" -name 'm.db.backup-*.tmp*')"
finish
