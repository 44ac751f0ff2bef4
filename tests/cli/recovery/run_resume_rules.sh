#!/usr/bin/env bash
# ctest: timeout=240
# A resumed run keeps the optimizer's rule and the steps of its ramps.
. "$BT_SRC/tests/cli/train_lib.sh"
tiny+=(--ranks 1)

# States of one optimizer do not fit another: this is refused before the run is started again; it remains finished, and
# its checkpoint unchanged.
for pair in "adamw muon" "adamw lion" "muon adamw" "lion adamw"; do
    read -r had wanted <<<"$pair"
    ok train "${tiny[@]}" --steps 3 --optimizer "$had" --name "of-$had-$wanted"
    code 4 train --resume "of-$had-$wanted" --optimizer "$wanted" --steps 6
    says "optim.name is $had in run 'of-$had-$wanted' and cannot become $wanted when it is resumed"
    code 4 train --resume "$tmp/runs/of-$had-$wanted" --optimizer "$wanted" --steps 6
    [ "$(q "SELECT state, attempts FROM runs WHERE run='of-$had-$wanted'")" = done,1 ] || fault "a refused resumption changed the record"
    ok train --resume "of-$had-$wanted" --optimizer "$had" --steps 4
done
# An extended run does not return to short sequences: a ramp is placed by the original number of steps.
ok train "${tiny[@]}" --ranks 1 --steps 10 --set train.seq_ramp=0.5 --name ramp
ok train --resume ramp --steps 30
q "SELECT title FROM events WHERE run='ramp' AND kind='ramp'" >ramps
[ "$(tail -n 1 ramps)" = "from step 11 on attention sees stretches of 32" ] || fault "the ramp returns: $(cat ramps)"
ok train "${tiny[@]}" --ranks 1 --steps 20 --set train.seq_ramp=0.001 --dry-run
says "train.seq_ramp 0.001: 0.001 of 20 steps is before the end of the first"
# A run of an earlier version: a removed setting with its default value is ignored, another value is refused by name,
# and the run remains listed.
command -v sqlite3 >/dev/null || finish
record() { sqlite3 "$BITRAIN_STORE" "UPDATE run_doc SET config = json_set(config, '\$.\"model.value_residual\"', $1)"; }
record '0.5'
code 1 train --resume ramp --steps 31
says "run 'ramp' cannot be resumed: model.value_residual=0.5: this setting was removed (omit it;"
ok show ramp
# A value that a setting no longer accepts can be replaced.
record 0
sqlite3 "$BITRAIN_STORE" "UPDATE run_doc SET config = json_set(config, '\$.\"parallel.codec\"', 'int4')"
code 2 train --resume ramp --steps 31
says "parallel.codec=int4: this value was removed (use --codec int8)"
ok train --resume ramp --steps 31 --codec int8 --dry-run
sqlite3 "$BITRAIN_STORE" "UPDATE run_doc SET config = json_set(config, '\$.\"parallel.codec\"', 'none')"
record "json('{\"value\": 0.0, \"origin\": \"default\"}')"
ok train --resume ramp --steps 31
finish
