#!/usr/bin/env bash
# ctest: timeout=60
# The validation loss of a run rose again: commands that use its newest weights print the better checkpoint and how to
# use it. There is no such note if the newest weights are the best, or if the best are not stored.
. "$BT_SRC/tests/cli/train_lib.sh"

command -v sqlite3 >/dev/null || skip "sqlite3 is missing"
told="fell@best has the lower loss: validation 0.5000 at step 10,"
ok train "${tiny[@]}" --steps 40 --stop-after 20 --eval-every 10 --name fell
grep -q "@best" out err && fault "the best is reported of a run that was never better"
ok eval fell
grep -q "@best" out err && fault "the newest weights are the best, and other ones are reported"

# Simulates an earlier, better loss.
sqlite3 "$BITRAIN_STORE" "UPDATE run SET best_val = 0.5, best_val_step = 9 WHERE name = 'fell'" || fault "no such columns"
newest=$(q "SELECT printf('%.4f', val_loss) FROM runs WHERE run = 'fell'")
ok eval fell
says "$told $newest now"
ok convert fell -o copy
[ "$(grep -c "$told" err)" = 1 ] || fault "convert reports the best $(grep -c "$told" err) times"
ok eval fell --json
grep -q "@best" out && fault "the note is within the answer"
ok generate fell --prompt 12 --tokens 4
says "$told"
ok show fell
says "best validation loss 0.5000 at step 10 (fell@best)"
ok eval fell@best
grep -q "$told" out err && fault "the best weights are reported to be the newest"
ok train --resume fell --threads 1 --ranks 2
says "bitrain generate fell@best"
says "(validation 0.5000 at step 10,"

rm runs/fell/best || fault "no such link"
ok eval fell
grep -q "@best" out err && fault "a checkpoint that is not there is named"
ok show fell
says "best validation loss 0.5000 at step 10"
grep -q "@best" out && fault "show names a checkpoint that is not there"
finish
