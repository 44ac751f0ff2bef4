#!/usr/bin/env bash
# ctest: timeout=120
# No space for a third checkpoint: the older of two is replaced. No space for a second: training continues with a
# warning, the older checkpoint remains complete, and the next one is tried again; a run whose last checkpoint fails
# exits with 1 and the reason.
. "$BT_SRC/tests/cli/train_lib.sh"
unshare -m true 2>/dev/null || skip "no permission to mount a small file system (unshare -m)"

export -f b q losses ok code says fault wait_step wait_gone ours
cat >inside.sh <<'END'
set -u
faults=0
started=()
cd "$tmp"
mount -t tmpfs -o size=16m tmpfs out || exit 77
fault() { echo "FAULT: $*" >>faults; }
slow=($slow_words)
run=(train "${slow[@]}" --steps 100000 --ckpt-every 10 --out "$tmp/out" --name full)
b "${run[@]}" --dry-run >plan.out 2>&1
grep -qE "^disk       a checkpoint takes [0-9.]+ MiB, the 2 that are kept and a new one [0-9.]+ MiB; '$tmp/out' has 16.0 MiB free" plan.out || fault "the plan's disk: $(grep ^disk plan.out)"
b "${run[@]}" --set model.d_ff=9000 --dry-run 2>&1 | grep -q "MiB free: none can be saved there (another --out)" || fault "a plan without room for one checkpoint: $(grep ^disk plan.out)"
"$BITRAIN" "${run[@]}" >f.out 2>f.err &
job=$!
wait_step full 25
# An older checkpoint may disappear meanwhile, because only the newest are kept.
compgen -G 'out/step-*/manifest.json' >/dev/null || fault "no checkpoint while there was room"
good=$(ls -d out/step-* | tail -n 1)
# During a pause no save is active, which would have removed one of the two checkpoints.
b ctl full pause >/dev/null 2>&1 || fault "the run does not pause"
for i in $(seq 300); do
    [ "$(q "SELECT count(*) FROM events WHERE run='full' AND kind='paused'")" -gt 0 ] && [ "$(ls out/step-*/manifest.json | wc -l)" = "$(ls -d out/step-* | wc -l)" ] &&
        [ "$(ls -d out/step-* | wc -l)" -ge 2 ] && break
    sleep 0.05
done
head -c 100m /dev/zero >out/filler 2>/dev/null # the disk is full now,
truncate -s -64K out/filler # except for a few pages: a new manifest may be longer than the removed one
b ctl full resume >/dev/null 2>&1 || fault "the run does not go on"
replaced="SELECT count(*) FROM events WHERE run='full' AND kind='checkpoint' AND title LIKE '%; the disk is full: 1 older one was removed for it'"
for i in $(seq 300); do [ "$(q "$replaced")" -ge 2 ] && break; sleep 0.05; done
[ "$(q "$replaced")" -ge 2 ] || fault "a full disk with two checkpoints gets no third: $(q "SELECT title FROM events WHERE run='full'" | tail -n 2)"
# Only the newest checkpoint remains, and there is no space for another one.
fill_up() {
    ls -d out/step-*/manifest.json 2>/dev/null | head -n -1 | while read -r m; do rm -rf "${m%/*}"; done
    head -c 100m /dev/zero >>out/filler 2>/dev/null
}
for i in $(seq 300); do
    fill_up
    [ "$(q "SELECT count(*) FROM events WHERE run='full' AND kind='checkpoint_failed'")" -ge 2 ] && break
    sleep 0.05
done
q "SELECT title FROM events WHERE run='full' AND level='error'" | grep -q "failed, training continues: cannot .*No space left on device" || fault "the failure is no event"
at=$(q "SELECT max(step) FROM steps WHERE run='full'")
wait_step full $((at + 5))
[ "$(q "SELECT count(*) FROM attempts WHERE run='full'")" = 1 ] || fault "a full disk restarts the run"
# The next checkpoint, which fails as well, may be active at any time, so the present temporary files must disappear.
mapfile -t partial < <(find out -name '*.tmp')
for file in "${partial[@]}"; do
    for i in $(seq 100); do [ -e "$file" ] || break; sleep 0.05; done
    [ ! -e "$file" ] || fault "a partial file remains: $file"
done
# The folder of a save that is still active exists for a moment.
for d in out/step-*; do
    for i in $(seq 100); do [ -e "$d/manifest.json" ] || [ ! -e "$d" ] && break; sleep 0.05; done
    [ -e "$d/manifest.json" ] || [ ! -e "$d" ] || fault "an uncommitted folder remains: $d"
done
b eval "$tmp/out" --tokens 128 >/dev/null 2>e.err || fault "the older checkpoint does not load: $(cat e.err)"
rm out/filler # there is space again, and the next save succeeds
n=$(q "SELECT count(*) FROM checkpoints WHERE run='full'")
for i in $(seq 300); do
    [ "$(q "SELECT count(*) FROM checkpoints WHERE run='full'")" -gt "$n" ] && break
    sleep 0.05
done
[ "$(q "SELECT count(*) FROM checkpoints WHERE run='full'")" -gt "$n" ] || fault "no checkpoint after there was room again"
# A save that was active may still replace an older checkpoint, whose space is then free; two failed saves show that the
# disk is full.
for again in 1 2; do
    n=$(q "SELECT count(*) FROM events WHERE run='full' AND kind='checkpoint_failed'")
    for i in $(seq 300); do
        fill_up
        [ "$(q "SELECT count(*) FROM events WHERE run='full' AND kind='checkpoint_failed'")" -gt "$n" ] && break
        sleep 0.05
    done
done
b ctl full stop >/dev/null 2>&1
wait $job
[ $? -eq 1 ] || fault "a run whose last checkpoint failed does not exit 1"
grep -q "last checkpoint could not be written.*No space left" f.err || fault "the last line: $(tail -n 1 f.err)"
# There is space but no inode for the database; its lock file has the last one.
mkdir few
mount -t tmpfs -o size=8m,nr_inodes=3 tmpfs few
b train "${slow[@]}" --steps 2 --quiet --store few/m.db --out "$tmp/few.out" >few.txt 2>&1 && fault "a database without an inode is made"
grep -q "No space left on device: its file system has no free inodes (df -i)" few.txt || fault "no inodes left: $(cat few.txt)"
exit 0
END
mkdir out
export tmp slow_words="${slow[*]}"
unshare -m bash inside.sh
got=$?
[ $got -eq 77 ] && skip "no permission to mount a tmpfs"
[ $got -eq 0 ] || fault "exit $got inside"
[ -e faults ] && { cat faults; faults=$(wc -l <faults); }
finish
