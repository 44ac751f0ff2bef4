#!/usr/bin/env bash
# ctest: timeout=150 waits
# --elastic and `ctl resize`: a run continues with other numbers of ranks, in layouts with tensor parallelism, ZeRO-3
# and a pipeline, and its losses equal those of one undisturbed rank; resizes do not count as restarts; impossible
# layouts are refused.
. "$BT_SRC/tests/cli/train_lib.sh"
same=("${light[@]}" --set train.reproducible=true --set train.unit=2 --steps 120 --set ckpt.minutes=0)

ok train "${same[@]}" --ranks 1 --name calm
losses calm >calm.txt
export BITRAIN_TEST_DELAY=10 # the delay keeps a fast machine from ending the run before a request arrives

# paused RUN: pauses the run after step 5. A paused run remains paused after a resize, so each layout trains only a step
# or two on any machine.
paused() { wait_step $1 5 && ok ctl $1 pause; }
go_on() {
    local i
    for i in $(seq 40); do b ctl $1 resume >out 2>err && return; sleep 0.25; done
    fault "'$1' does not go on: $(cat err)"
}
# resize RUN WHAT: requests the layout and waits until its ranks have trained a step.
resize() {
    local run=$1 what=$2 i attempt
    attempt=$(q "SELECT max(attempt) FROM attempts WHERE run='$run'")
    ok ctl $run resize $what
    for i in $(seq 400); do
        [ "$(q "SELECT count(*) FROM steps WHERE run='$run' AND attempt > $attempt")" -gt 0 ] 2>/dev/null && return 0
        sleep 0.05
    done
    fault "no step after: resize $what"
    return 1
}
"$BITRAIN" train "${same[@]}" --elastic 1:4 --name moved >m.out 2>m.err &
job=$!
started+=($job)
if paused moved; then
    for what in 2,tp=2 4,zero=3 1 2,pp=2,zero=0; do resize moved $what || break; done
    code 2 ctl moved resize 5
    says "outside the 1 to 4 of --elastic"
    code 2 ctl moved resize 3,tp=2
    says "do not divide 3 ranks"
    code 2 ctl moved resize two
    says "must be a whole number"
    code 2 ctl moved resize 2,cp=2
    says "none of tp=N, pp=N, zero=N"
    code 4 ctl moved resize 2,pp=2,zero=0
    says "has 2 ranks: pp 2 already"
    go_on moved
fi
wait $job || { fault "exit $? of a run that was resized"; tail -n 5 m.err; }
losses moved | cmp -s - calm.txt || fault "resized four times, the losses differ: $(losses moved | diff - calm.txt | head -n 3)"
[ "$(q "SELECT group_concat(world_size) FROM (SELECT world_size FROM attempts WHERE run='moved' ORDER BY attempt)")" = 2,2,4,1,2 ] ||
    fault "ranks: $(q "SELECT attempt, world_size, reason FROM attempts WHERE run='moved'")"
[ "$(q "SELECT count(*) FROM events WHERE run='moved' AND kind='resized'")" = 4 ] || fault "events: $(q "SELECT kind, title FROM events WHERE run='moved' AND kind<>'checkpoint'")"
[ "$(q "SELECT count(*) FROM events WHERE run='moved' AND level<>'info'")" = 0 ] || fault "warnings: $(q "SELECT kind, title FROM events WHERE run='moved' AND level<>'info'")"
q "SELECT body FROM events WHERE run='moved' AND kind='resized'" | grep -q '{from:2,to:4,why:requested by ctl}' || fault "$(q "SELECT body FROM events WHERE run='moved' AND kind='resized'")"
q "SELECT tp FROM ranks WHERE run='moved' AND attempt=1 AND rank=1" | grep -qx 1 || fault "attempt 1 is not tensor-parallel: $(q "SELECT * FROM ranks WHERE run='moved' AND attempt=1")"

# A rank dies during the change of the number of ranks: the run continues with the requested number.
"$BITRAIN" train "${same[@]}" --ranks 2 --ckpt-every 10 --max-restarts 1 --name hurt >h.out 2>h.err &
job=$!
started+=($job)
if wait_step hurt 15 && ok ctl hurt pause; then
    ok ctl hurt resize 1
    pkill -9 -n -f -- "bitrain rank .*$tmp"
    go_on hurt
    wait $job || { fault "exit $? of a run killed while it was resized"; tail -n 5 h.err; }
    losses hurt | cmp -s - calm.txt || fault "killed while it was resized, the losses differ"
    [ "$(q "SELECT world_size FROM attempts WHERE run='hurt' ORDER BY attempt DESC LIMIT 1")" = 1 ] || fault "it did not become one rank"
fi

# --stop-after counts steps across a resize; the range of --elastic is checked.
"$BITRAIN" train "${same[@]}" --elastic 1:2 --stop-after 60 --name part >p.out 2>p.err &
job=$!
started+=($job)
if paused part; then
    resize part 1
    go_on part
    wait $job || fault "exit $? with --stop-after"
    [ "$(q "SELECT max(step) FROM steps WHERE run='part'")" = 59 ] || fault "--stop-after 60 ended at $(q "SELECT max(step) FROM steps WHERE run='part'")"
fi
code 2 train "${tiny[@]}" --elastic 4:1
says "is not a range of ranks MIN:MAX"
code 2 train "${tiny[@]}" --elastic 3:4
says "outside --elastic 3:4"
finish
