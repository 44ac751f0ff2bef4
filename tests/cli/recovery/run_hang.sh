#!/usr/bin/env bash
# ctest: timeout=150
# A rank that hangs, running or asleep, is reported with its position and by default ended within seconds; the run
# continues with the losses of an undisturbed one. A pause does not count as a hang.
. "$BT_SRC/tests/cli/train_lib.sh"

export BITRAIN_TEST_DELAY=8
run=(train "${light[@]}" --steps 30 --ckpt-every 100)
ok "${run[@]}" --name calm
losses calm >calm.txt

hang() { # hang NAME RANK HOW WORDS: WORDS is the expected message
    local name=$1 rank=$2 how=$3 words=$4; shift 4
    BITRAIN_TEST_HANG="$rank:14:$how:$tmp/$name.hung" b "${run[@]}" --name "$name" "$@" >"$name.out" 2>"$name.err"
    local got=$?
    [ $got -eq 0 ] || { fault "exit $got of $name"; tail -n 5 "$name.err"; }
    [ -e "$name.hung" ] || fault "$name never hung"
    losses "$name" | cmp -s - calm.txt || { fault "run $name has other losses"; losses "$name" | diff - calm.txt | head -n 4; }
    [ "$(q "SELECT count(*) FROM attempts WHERE run='$name'")" = 2 ] || fault "$name has $(q "SELECT count(*) FROM attempts WHERE run='$name'") attempts"
    q "SELECT title FROM events WHERE run='$name' AND kind='failure'" | grep -Eq "rank $rank \(pid [0-9]+\) is in forward and backward of step 15 since [0-9.]+ s, $words.*: the ranks are ended" ||
        fault "no message states where rank $rank hangs: $(q "SELECT title FROM events WHERE run='$name' AND kind='failure'" | head -n 2)"
    q "SELECT title FROM events WHERE run='$name' AND kind='failure'" | grep -Eq ", after [0-9]+ exchanges( \\(another rank: [0-9]+\\))?;" || fault "no message states after how many exchanges rank $rank hangs"
    [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND kind='warning' AND title LIKE 'stack of rank $rank:%bt_testing_hang <%bt_train_step <%< main'")" = 1 ] ||
        fault "no message states in which function rank $rank hangs: $(q "SELECT title FROM events WHERE run='$name' AND kind='warning'")"
    [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND kind='warning' AND title LIKE 'stack of rank %'")" = 2 ] || fault "the other rank of $name has not recorded its stack"
    [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND title LIKE 'stack of rank %bitrain+0x%'")" = 0 ] || fault "static functions have no names: $(q "SELECT title FROM events WHERE run='$name' AND title LIKE 'stack of rank %'")"
    [ "$(q "SELECT exit_kind FROM attempt JOIN run ON run.id = attempt.run WHERE name='$name' AND attempt=0")" = hung ] ||
        [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND kind='restarted' AND title LIKE '%no progress%'")" = 1 ] || fault "the end of $name is not reported as a hang"
}
hang busy 1 busy running
hang asleep 0 asleep asleep

# A paused rank does not hang.
BITRAIN_TEST_DELAY=60 b "${run[@]}" --name paused >paused.out 2>paused.err &
job=$!
started+=($job)
wait_step paused 8
ok ctl paused pause
sleep 5
ok ctl paused resume
wait $job || fault "paused: exit $?"
[ "$(q "SELECT count(*) FROM attempts WHERE run='paused'")" = 1 ] || fault "a pause cost a restart: $(q "SELECT title FROM events WHERE run='paused' AND kind='failure'")"
losses paused | cmp -s - calm.txt || fault "the paused run has other losses"
finish
