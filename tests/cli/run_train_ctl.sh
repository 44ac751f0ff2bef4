#!/usr/bin/env bash
# ctest: timeout=120
# `bitrain ctl`: every verb reaches the ranks, prints one line and is an event; refusals have their exit codes.
. "$BT_SRC/tests/cli/train_lib.sh"

BITRAIN_TEST_DELAY=10 b train "${light[@]}" --steps 100000 --name live >live.out 2>live.err &
job=$!
started+=($job)
wait_step live 3

events() { q "SELECT count(*) FROM events WHERE run='live' AND title LIKE '$1'"; }
wait_event() { # PATTERN [N]: waits until N such events exist (10 s)
    local i
    for i in $(seq 200); do
        [ "$(events "$1")" -ge "${2:-1}" ] && return 0
        sleep 0.05
    done
    fault "no event like '$1'"
}
newest() { q "SELECT max(step) FROM steps WHERE run='live'"; }

ok ctl live status
grep -qE '^live: running, [0-9]+ steps? done, [0-9] ranks?, 0 restarts, last record [0-9.]+ ?m?s ago$' out || fault "status: $(cat out)"
ok ctl last status --json
grep -q '^{"run":"live","verb":"status","answer":{' out || fault "status --json: $(cat out)"

ok ctl live checkpoint
[ "$(cat out)" = "live: checkpoint requested, to write a checkpoint now" ] || fault "answer: $(cat out)"
code 2 ctl live mixture 3:1
says "run 'live' was begun without data.mixture"
wait_event 'checkpoint requested by ctl'
wait_event 'checkpoint after step %'
[ "$(q "SELECT count(*) FROM checkpoints WHERE run='live'")" -ge 1 ] || fault "no checkpoint is recorded"

ok ctl live eval
wait_event 'validation %'
validations() { q "SELECT count(val_loss) FROM steps WHERE run='live'"; }
sleep 0.3 # the record of the step follows its evaluation
[ "$(validations)" = 1 ] || fault "an evaluation requested is no validation of its step"
ok ctl live pause
wait_event 'paused after step %'
at=$(newest); sleep 0.4
[ "$(newest)" = "$at" ] || fault "steps go on during the pause"
ok ctl live status
says "live: paused, "
code 4 ctl live pause
says "paused already"
ok ctl live eval # also in a pause
wait_event 'validation %' 2
[ "$(q "SELECT val_loss IS NOT NULL FROM steps WHERE run='live' AND step=$at")" = 1 ] ||
    fault "an evaluation during a pause is no validation of the step before it"
[ "$(validations)" = 2 ] || fault "$(validations) steps have a validation loss"
ok ctl live resume
wait_event 'resumed after%'
code 4 ctl live resume
wait_step live $((at + 3))

code 2 ctl live sample 'go on' # refused by the ranks: synthetic data are not text
says "are not text"
code 2 ctl live sample ' '
says "the prompt is empty"
code 2 ctl live sample "$(printf '%600s' x)"
says "at most 512"
[ "$(events 'sample after %go on%requested by ctl')" = 1 ] || fault "'sample' is no event"

ok ctl live set lr_factor=0.5
wait_event 'learning rate factor 0.5%'
ok ctl live set optim.lr=1e-4
wait_event 'learning rate factor 0.05 %'
code 4 ctl live set lr=1000
says "times the configured"
code 2 ctl live pause --force
code 2 ctl live set lr=fast
code 2 ctl live set lr_factor=-1
code 4 ctl live set data.path=x
says "cannot change while the run is live"
code 2 ctl live paws
says "did you mean 'pause'"
code 2 ctl live pause now
code 3 ctl dead status
says "no run 'dead'"

ok ctl live stop
says "live: stopped after step" # the run has ended when ctl returns, so the next command finds its checkpoint
[ "$(q "SELECT state FROM runs WHERE run='live'")" = stopped ] || fault "ctl stop returned before the run had ended"
wait $job
[ $? -eq 0 ] || fault "a run that was requested to stop does not exit 0"
grep -q "run live stopped after step" live.out || fault "the summary: $(head -n 1 live.out)"
[ "$(q "SELECT state FROM runs WHERE run='live'")" = stopped ] || fault "the run is not 'stopped'"
last=$(($(newest) + 1))
[ -e "$(printf 'runs/live/step-%012d/manifest.json' $last)" ] || fault "no checkpoint at the stop"
[ ! -e runs/live/control ] || fault "the control file remains"
for verb in pause resume checkpoint eval stop; do
    times=1; [ $verb = eval ] && times=2
    [ "$(q "SELECT count(*) FROM events WHERE run='live' AND kind='control' AND title='$verb requested by ctl'")" = $times ] || fault "'$verb' is no event"
done
code 4 ctl live status
code 4 ctl live sample 'x'

# A deleted checkpoint is not listed as existing.
ok show live
folder=$(q "SELECT path FROM checkpoints WHERE run='live' ORDER BY step DESC LIMIT 1")
says "$folder"
mv "$folder" "$folder.away"
ok show live
if grep -qF "$folder" out; then fault "show names a checkpoint that is not there: $(grep -F "$folder" out)"; fi
says "(deleted)"
mv "$folder.away" "$folder"

# A sample from a prompt, of text, in any layout: both ranks take part, and training continues unchanged.
words=(--preset nano --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=128
       --set model.seq_len=64 --batch-tokens 512 --set train.eval_tokens=256 --set train.sample_tokens=24 --eval-every 1000000 --threads 1 --ranks 2)
BITRAIN_TEST_DELAY=10 b train "${words[@]}" --steps 100000 --name words >words.out 2>words.err &
job=$!
started+=($job)
wait_step words 3
ok ctl words sample 'In the beginning #1 "God" 100%'
[ -s out ] || fault "no text"
[ "$(q "SELECT json_extract(body, '\$.prompt') FROM events WHERE run='words' AND kind='sample'")" = 'In the beginning #1 God 100%' ] ||
    fault "the prompt did not arrive: $(q "SELECT body FROM events WHERE run='words' AND kind='sample'")"
code 2 ctl words sample "$(printf 'x%.0s' $(seq 64))"
says "no room to continue"
wait_step words $(($(q "SELECT max(step) FROM steps WHERE run='words'") + 3))
ok ctl words pause
ok ctl words sample 'And' --json # also in a pause
says '"verb":"sample","answer":"'
code 4 runs rename words other
ok ctl words stop
wait $job
ok runs rename words other
code 3 show words
ok train --resume other --steps 100000 --stop-after 2 --quiet
[ "$(q "SELECT count(*) FROM attempts WHERE run='other'")" = 2 ] || fault "a renamed run is not resumed: $(cat err)"
finish
