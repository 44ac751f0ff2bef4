#!/usr/bin/env bash
# ctest: timeout=240
# An exponent bit flips in one rank's weights, or its gradients contain a NaN: an event contains the rank, and the run
# ends with the losses of an undisturbed run, bit for bit. A checkpoint damaged on disk is detected.
. "$BT_SRC/tests/cli/train_lib.sh"

run=(train "${slow[@]}" --batch-tokens 256 --steps 70 --ckpt-every 15)
event() { q "SELECT title FROM events WHERE run='$1' AND kind='$2'"; }
host=$(uname -n)

# Compares the losses with those of the undisturbed run, after the given number of attempts.
like_calm() {                                   # NAME CALM ATTEMPTS
    losses "$1" | cmp -s - "$2.txt" || { fault "run $1 has other losses than $2"; losses "$1" | diff - "$2.txt" | head -n 4; }
    [ "$(q "SELECT count(*) FROM attempts WHERE run='$1'")" = "$3" ] || fault "$1 has not $3 attempts: $(q "SELECT attempt, from_step, reason FROM attempts WHERE run='$1'" | tr '\n' ';')"
    [ "$(b eval "$1" --json | sed 's/"run":"[^"]*"//; s/"[a-z_]*\(_s\|_ms\|path\|checkpoint\)":[^,}]*//g')" = \
      "$(b eval "$2" --json | sed 's/"run":"[^"]*"//; s/"[a-z_]*\(_s\|_ms\|path\|checkpoint\)":[^,}]*//g')" ] || fault "the weights of $1 are not those of $2"
}

damaged() { # NAME CALM HOOK WORDS...: by default within 50 steps, restarted from a step before the damage
    local name=$1 calm=$2 hook=$3; shift 3
    BITRAIN_TEST_FLIP=$hook BITRAIN_TEST_ONCE=$tmp/once.$name ok "${run[@]}" --name "$name" "$@"
    [ -e "once.$name" ] || fault "nothing flipped in $name"
    like_calm "$name" "$calm" 2
    [ "$(q "SELECT count(*) FROM events WHERE run='$name' AND kind='restarted'")" = 1 ] || fault "$name was not started again"
    local seen
    seen=$(event "$name" hardware | grep -o 'after step [0-9]*' | head -n 1 | grep -o '[0-9]*')
    [ -n "$seen" ] && [ "$seen" -ge 21 ] && [ "$seen" -le 71 ] || fault "$name: damage of step 21 was seen after step '$seen'"
}

ok "${run[@]}" --name calm3 --ranks 3 --batch-tokens 384
losses calm3 >calm3.txt
damaged three calm3 2:21:layers.1.ffn_up:27 --ranks 3 --batch-tokens 384
event three hardware | grep -q "weights of layers.1.ffn_up on rank 2 (host '$host') are damaged" || fault "three: rank 2 is not named: $(event three hardware)"
[ "$(q "SELECT rank FROM events WHERE run='three' AND kind='hardware' LIMIT 1")" = 2 ] || fault "the event is not of rank 2"

# The faulty one of two ranks is unknown until the step has been repeated.
ok "${run[@]}" --name calm2
losses calm2 >calm2.txt
for rank in 0 1; do
    damaged "two$rank" calm2 $rank:21:layers.0.attn_q:25
    event "two$rank" hardware | grep -q "between rank 0 (host '$host') and rank 1 (host '$host')" || fault "two$rank: the pair is not named"
    event "two$rank" hardware | grep -q "was repeated: rank $rank (host '$host') had damaged weights of layers.0.attn_q" || fault "two$rank: rank $rank is not named: $(event "two$rank" hardware)"
done

# The flip of the highest exponent bit gives weights of 1e38 and a loss that is not finite, long before weights are
# compared.
damaged huge calm2 1:21:layers.0.attn_q:30 --check-weights 1000000

# One rank's gradients contain a NaN once: the step is computed again, without a restart.
BITRAIN_TEST_NAN=1:21:embed ok "${run[@]}" --name nan
like_calm nan calm2 1
event nan hardware | grep -q "gradient of embed is not finite, but not when computed again: a fault of the hardware of rank 1 (host '$host')" || fault "nan: rank 1 is not named: $(event nan hardware)"

# The newest checkpoint is read again when the machine is idle, and at once when the run is paused. If the disk has
# damaged it, that is reported, and another one is written.
BITRAIN_TEST_DELAY=20 "$BITRAIN" train "${slow[@]}" --steps 100000 --set ckpt.minutes=0 --name disk >disk.out 2>disk.err &
job=$!
started+=($job)
until_event() { local i; for i in $(seq 900); do [ "$(q "SELECT count(*) FROM events WHERE run='disk' AND $1")" -gt 0 ] && return; sleep 0.1; done; fault "never: $1"; return 1; }
if wait_step disk 3; then
    ok ctl disk checkpoint
    until_event "kind='ckpt_verified' AND title LIKE 'checkpoint after step % verified on disk (%'"
    for i in 1 2 3 4 5; do # before it is read; on a slow machine a later checkpoint is damaged
        n=$(q "SELECT count(*) FROM checkpoints WHERE run='disk'")
        ok ctl disk checkpoint
        for k in $(seq 200); do [ "$(q "SELECT count(*) FROM checkpoints WHERE run='disk'")" -gt "$n" ] && break; sleep 0.05; done
        file=$(ls runs/disk/step-*/data-00001-* | tail -n 1)
        printf '\125\252' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
        step=$(basename "$(dirname "$file")" | sed 's/step-0*//')
        ok ctl disk pause
        until_event "kind IN ('ckpt_verified', 'ckpt_damaged') AND title LIKE 'checkpoint after step $step %'" || break
        ok ctl disk resume
        [ "$(q "SELECT count(*) FROM events WHERE run='disk' AND kind='ckpt_damaged'")" = 0 ] || break
    done
    until_event "kind='ckpt_damaged' AND title LIKE 'checkpoint after step $step is damaged on disk, another one is written: %'"
    until_event "kind='checkpoint' AND step > $step"
    kill -TERM $job
    wait $job
    got=$?
    [ $got -eq 143 ] || fault "exit $got of a run whose checkpoint was damaged"
fi

# The NaN recurs each time in six consecutive batches: exit 5 with one line.
BITRAIN_TEST_NAN=1:21-26:embed code 5 "${run[@]}" --name data
says "the gradient was not finite in 5 consecutive steps"
[ "$(q "SELECT count(*) FROM attempts WHERE run='data'")" = 1 ] || fault "data: a restart does not help against data"
[ "$(q "SELECT count(*) FROM events WHERE run='data' AND kind='bad_step'")" = 5 ] || fault "data: not five events"
finish
