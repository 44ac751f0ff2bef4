#!/usr/bin/env bash
# ctest: timeout=300
# Every process of a run is killed repeatedly: no file remains in /tmp or /dev/shm, no process, no descriptor.
# CYCLES=100 is the long form (target test-leaks).
. "$BT_SRC/tests/cli/train_lib.sh"
cycles=${CYCLES:-4}
seed=${SEED:-$$}
RANDOM=$seed
echo "seed $seed, $cycles cycles"

"$BITRAIN" train "${slow[@]}" --steps 1000000 --ckpt-every 10 --name victim --max-restarts 1000 >v.out 2>v.err &
job=$!
started+=($job)
step=3
fds=
rank_pid() { q "SELECT pid FROM ranks WHERE run='victim' AND rank=$1 ORDER BY attempt DESC LIMIT 1"; }
for i in $(seq "$cycles"); do
    wait_step victim $step || break
    [ "$i" -gt 1 ] || grep -q "/dev/shm/bitrain-.*\(vader\|sm\)_segment" "/proc/$(q "SELECT pid FROM ranks WHERE run='victim' AND rank=1")/maps" ||
        [ ! -w /dev/shm ] || fault "the segments of the ranks are not in our folder"
    [ -n "$fds" ] || fds=$(ls /proc/$job/fd | wc -l)
    case $((RANDOM % 3)) in
        0) kill -9 "$(rank_pid 0)";;
        1) kill -9 "$(rank_pid 1)";;
        2) kill -9 "$(ps -o ppid= -p "$(rank_pid 0)" | tr -d " ")";;
    esac
    for j in $(seq 200); do
        [ "$(q "SELECT count(*) FROM attempts WHERE run='victim'")" -gt "$i" ] && break
        sleep 0.05
    done
    step=$(($(q "SELECT max(step) FROM steps WHERE run='victim'") + RANDOM % 8 + 1))
done
wait_step victim $step
[ "$(q "SELECT count(*) FROM attempts WHERE run='victim'")" = $((cycles + 1)) ] || fault "$cycles kills gave $(q "SELECT count(*) FROM attempts WHERE run='victim'") attempts"
now=$(ls /proc/$job/fd | wc -l)
[ "$now" -le $((fds + 1)) ] || fault "descriptors grow: $fds, then $now"
[ "$(find "$TMPDIR" -maxdepth 2 -type d -name '[0-9]*' | wc -l)" -le 1 ] || fault "folders of old attempts: $(find "$TMPDIR" -maxdepth 2)"
ok ctl victim stop
wait $job
[ $? -eq 0 ] || fault "the victim does not end in order"
[ "$(q "SELECT count(*), count(DISTINCT step) FROM steps WHERE run='victim'" | tr , ' ' | awk '{ print $1 == $2 }')" = 1 ] || fault "double steps"
# The supervisor and all other processes of a run are killed at once; the next run removes their files.
"$BITRAIN" train "${slow[@]}" --steps 1000000 --name wiped >w.out 2>w.err &
job=$!
started+=($job)
wait_step wiped 3
kill -9 $job $(pgrep -f "(mpirun|prterun) .*$tmp") $(pgrep -f "bitrain rank .*$tmp")
wait $job 2>/dev/null
wait_gone || fault "ranks are left"
ok train "${tiny[@]}" --steps 2 --name after
finish
