#!/usr/bin/env bash
# ctest: timeout=240
# A resource that a restart needs is refused (a full disk, a folder without permission, a locked or removed database,
# ...) while a rank is killed: in every row of the table the run continues from memory, and at the end no step and no
# row is missing.
. "$BT_SRC/tests/cli/train_lib.sh"
[ "$(id -u)" = 0 ] || skip "only root may mount small file systems and become another user"
unshare -m true 2>/dev/null || skip "no permission to mount a small file system (unshare -m)"
command -v setpriv >/dev/null || skip "no setpriv (Debian: util-linux): root ignores permissions"

cat >inside.sh <<'END'
set -u
cd "$tmp"
fault() { echo "FAULT: $*" | tee -a faults; }
for part in ck:16m db:24m t:48m; do
    mkdir -p "${part%:*}"
    mount -t tmpfs -o "size=${part#*:}" tmpfs "${part%:*}" || exit 77
done
mount -t tmpfs -o size=48m tmpfs /dev/shm || exit 77
chmod 1777 /dev/shm
chmod 755 "$tmp"
cp "$BITRAIN" program
mkdir ck/run
chown -R 65534:65534 ck db t
export BITRAIN_STORE=$tmp/db/m.db HOME=$tmp/t XDG_RUNTIME_DIR=$tmp/t XDG_CACHE_HOME=$tmp/t/cache
as_other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
setpriv --reuid 65534 --regid 65534 --clear-groups ./program train $slow_words --steps 1000000 --ckpt-every 20 --out "$tmp/ck/run" --name refused >r.out 2>&1 &
job=$!
count() { grep -c "$1" r.out; }
# Prints the number of completed steps in the newest line with this event.
after() { grep "event=$1 " r.out | tail -n 1 | sed 's/.* step=\([0-9]*\) .*/\1/'; }
# until_more PATTERN N: waits until the output has more than N such lines (20 s)
until_more() {
    local i
    for i in $(seq 400); do
        [ "$(count "$1")" -gt "$2" ] && return 0
        sleep 0.05
    done
    return 1
}
fill() { dd if=/dev/zero of="$1/FILL" bs=4k 2>/dev/null; }
refuse() {
    case $1 in
    checkpoints_full) fill ck ;;
    checkpoints_no_inodes) mount -o "remount,nr_inodes=$(df --output=iused ck | tail -n 1 | tr -d ' ')" ck ;;
    checkpoints_read_only) chmod 555 ck/run ;;
    database_full) fill db ;;
    database_locked) flock -x "$BITRAIN_STORE.lock" sleep 30 & holder=$! ;;
    database_removed) rm -f "$BITRAIN_STORE" "$BITRAIN_STORE-wal" "$BITRAIN_STORE-shm" ;;
    shared_memory_full) fill /dev/shm ;;
    temporary_full) fill t ;;
    log_not_writable) chmod 0 ck/run/log.txt ;;
    esac
}
grant() {
    case $1 in
    checkpoints_no_inodes) mount -o remount,nr_inodes=10000 ck ;;
    checkpoints_read_only) chmod 755 ck/run ;;
    database_locked) kill $(pgrep -P $holder) $holder 2>/dev/null ;;
    log_not_writable) chmod 644 ck/run/log.txt ;;
    *) rm -f ck/FILL db/FILL t/FILL /dev/shm/FILL ;;
    esac
}
until_more "event=checkpoint " 0 || fault "the run does not start: $(tail -n 3 r.out)"
rows=0
for row in checkpoints_full checkpoints_no_inodes checkpoints_read_only database_full database_locked database_removed \
    shared_memory_full temporary_full log_not_writable; do
    before=$(count event=resumed) saved=$(count "event=checkpoint ") failed=$(count event=checkpoint_failed)
    [ $row = checkpoints_full ] || until_more "event=checkpoint " "$saved" || fault "$row: no progress before it"
    refuse $row
    # The refusal takes effect at the next checkpoint.
    case $row in checkpoints_*) until_more event=checkpoint_failed "$failed" || fault "$row: no checkpoint fails" ;; esac
    kill -9 "$(pgrep -f -- "program rank .*$tmp" | head -n 1)"
    # mpirun needs space for its own files, so the run waits for space.
    if [ $row = temporary_full ]; then sleep 0.7; grant $row; fi
    until_more event=resumed "$before" || fault "$row: the run does not continue: $(grep -v ^step= r.out | tail -n 3)"
    line=$(grep event=resumed r.out | tail -n 1)
    # The copy in memory is a step or two old.
    [ "$(after resumed)" -ge $(($(after failure) - 15)) ] || fault "$row: steps before $(after failure) are lost: $line"
    grant $row
    kill -0 $job 2>/dev/null || { fault "$row: the run has ended: $(tail -n 2 r.out)"; break; }
    rows=$((rows + 1))
done
echo "$rows rows"
n=$(count "event=checkpoint ")
until_more "event=checkpoint " "$n" || fault "no checkpoint after everything was granted"
kill -TERM $job
wait $job
got=$?
[ $got = 143 ] || fault "exit $got, not 143: $(tail -n 3 r.out)"
grep -q "database.*disk is full\|the disk is full" r.out || fault "no message reports the full database"
grep -q "/dev/shm has no room" r.out || fault "no message reports the full /dev/shm"
ask() { as_other ./program query --csv "$1" | tail -n +2 | tr -d '"'; }
[ "$(ask "SELECT count(*) - max(step) - 1 FROM steps WHERE run='refused'")" = 0 ] ||
    fault "steps are missing: $(ask "SELECT count(*), max(step) FROM steps WHERE run='refused'")"
[ "$(ask "SELECT count(*) FROM attempts WHERE run='refused'")" = $((rows + 1)) ] ||
    fault "$(ask "SELECT count(*) FROM attempts WHERE run='refused'") attempts, not $((rows + 1))"
exit 0
END
export tmp BITRAIN slow_words="${slow[*]}"
unshare -m bash inside.sh
got=$?
[ $got -eq 77 ] && skip "no permission to mount a tmpfs"
[ $got -eq 0 ] || fault "exit $got inside"
[ -e faults ] && faults=$((faults + $(wc -l <faults)))
finish
