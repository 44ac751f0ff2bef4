#!/usr/bin/env bash
# ctest: timeout=180
# `bitrain train` from end to end: the record is complete, the result is printed, settings are printed, invalid requests
# are refused.
. "$BT_SRC/tests/cli/train_lib.sh"

ok train "${tiny[@]}" --steps 12 --name first --note "a note" --ckpt-every 5
says "run first done after step 12"
says "bits per byte"
says "bitrain generate first"
grep -q '^step=1 steps=12 loss=' err || fault "no first key=value line"
grep -q '^event=checkpoint level=info step=5 text="checkpoint after step 5:' err || fault "an event's step is counted unlike its words: $(grep event=checkpoint err)"
grep -q '^step=12 steps=12 ' err || fault "no last key=value line"
grep -q $'\033' err out && fault "escape sequences without a terminal"

[ "$(q "SELECT count(*), count(DISTINCT step) FROM steps WHERE run='first'")" = 12,12 ] || fault "steps are missing"
[ "$(q "SELECT count(*) FROM rank_steps WHERE run='first'")" = 24 ] || fault "rank steps are missing"
[ "$(q "SELECT count(*) FROM ranks WHERE run='first' AND isa <> '' AND threads = 1")" = 2 ] || fault "ranks are missing"
[ "$(q "SELECT state, ranks FROM runs WHERE run='first'")" = done,2 ] || fault "the run is not done"
[ "$(q "SELECT count(*) FROM runs WHERE run='first' AND note='a note' AND argv LIKE 'bitrain train --preset nano%' AND config LIKE '%\"optim.lr\"%'")" = 1 ] ||
    fault "argv, note or config are missing"
[ "$(q "SELECT group_concat(step) FROM (SELECT step FROM checkpoints WHERE run='first' ORDER BY step)")" = 5,10,12 ] || fault "checkpoints are missing in the record"
[ "$(ls -d runs/first/step-* 2>/dev/null | wc -l)" = 2 ] || fault "ckpt.keep is not kept"
[ "$(q "SELECT count(*) FROM events WHERE run='first' AND kind IN ('started', 'checkpoint', 'stopped')")" -ge 5 ] || fault "events are missing"
# The phases add up to the step.
[ "$(q "SELECT max(abs(step_ms - data_ms - fwd_ms - bwd_ms - comm_exposed_ms - wait_ms - optim_ms - ckpt_ms - monitor_ms - other_ms)) < 0.02 FROM rank_steps WHERE run='first'")" = 1 ] ||
    fault "phases do not sum up"

# A report needs no standard output, and data do.
b train "${tiny[@]}" --steps 12 --name first --continue >&- 2>&- || fault "exit $? of train with closed output"
b runs >&- 2>&- && fault "exit 0 of runs, whose table was not printed"

# A repeated run has the same losses, bit for bit; its name must be new.
printf '#!/bin/sh\necho "$*" >"%s/mpirun.words"\nexec mpirun "$@"\n' "$tmp" >counted && chmod +x counted
BITRAIN_MPIRUN="$tmp/counted" ok train "${tiny[@]}" --steps 12 --name second --ckpt-every 5 --quiet --set train.stats_every=2
# Settings are not in the command line of the ranks, which every user of the machine can read.
[ "$(wc -c <mpirun.words)" -lt 2000 ] && ! grep -q -e '--set' -e 'optim' mpirun.words || fault "the command line of the ranks: $(cat mpirun.words)"
[ "$(grep -vc '^run second done\|^validation\|^checkpoint' out)" = 0 ] || fault "--quiet is not quiet: $(cat out)"
[ ! -s err ] || fault "--quiet writes to stderr: $(cat err)"
[ "$(losses first)" = "$(losses second)" ] || fault "the same run twice gives other losses"
# More frequent statistics change no result: tensors, links, pairs of ranks.
[ "$(q "SELECT count(DISTINCT step), min(update_ratio) > 0, max(update_ratio) < 0.5 FROM layers WHERE run='second'")" = 6,1,1 ] || fault "updates of tensors are missing"
[ "$(q "SELECT group_concat(DISTINCT step), count(*), min(bytes_wire) > 0, min(flight_ms) > 0 FROM comm_pairs WHERE run='second'")" = "2,10,4,1,1" ] || fault "pairs of ranks are missing"
# On a busy machine the speed of the link may be unknown, which the run then reports.
measured=$(q "SELECT count(*) = 0 FROM facts WHERE run='second' AND key = 'link.dp.measured'")
[ "$(q "SELECT count(*) > 0 FROM comm_ops WHERE run='second' AND op='all_reduce' AND axis='dp' AND model_ms > 0")" = "$measured" ] || fault "no exchange is held against the link"
[ "$(q "SELECT count(*) FROM facts WHERE run='second' AND key IN ('link.dp.latency_s', 'link.dp.bytes_per_s') AND value > 0")" = $((2 * measured)) ] || fault "the link was not measured"
code 4 train "${tiny[@]}" --steps 12 --name first
says "already contains checkpoints"

# A run gets an automatic name; --json prints one object.
ok train "${tiny[@]}" --steps 3 --json
[ "$(wc -l <out)" = 1 ] || fault "--json prints more than one line"
python=$(command -v python3 || true)
if [ -n "$python" ]; then
    # The ranks trained with the settings that the run records.
    b query --json "SELECT config FROM runs WHERE run='second'" >recorded
    "$python" - recorded runs/second/step-000000000012/manifest.json <<'PY' || fault "the recorded settings are not those of the ranks"
import json, sys
recorded = json.loads(json.load(open(sys.argv[1]))[0]["config"])
trained = json.load(open(sys.argv[2]))["manifest"]["config"]
def text(v): return "\n".join(v) if isinstance(v, list) else v if isinstance(v, str) else json.dumps(v)
def same(a, b): return a == b or float(a) == float(b)
assert set(recorded) == set(trained), set(recorded) ^ set(trained)
for key, value in trained.items(): assert same(text(recorded[key]["value"]), value), key
PY
    "$python" - out <<'PY' || fault "the result object lacks something"
import json, re, sys
r = json.load(open(sys.argv[1]))
assert r["state"] == "done" and r["steps"] == 3 and r["tokens"] == 768 and r["ranks"] == 2 and r["loss"] > 0
assert re.fullmatch(r"[a-z]+-[a-z]+-[0-9]+", r["run"]), r["run"]
assert r["checkpoint"].endswith("step-000000000003") and r["params"] > 0 and "fwd_ms" in r["step_ms"]
PY
fi

# Settings with their source; a plan that trains nothing.
printf 'optim:\n  lr: 3e-4\n' >conf.yaml
before=$(q "SELECT count(*) FROM runs")
ok train conf.yaml "${tiny[@]}" --set optim.clip=2 --print-config
grep -q 'lr: *0.0003.*conf.yaml' out || fault "--print-config does not print where optim.lr is from"
# The printed file gives the same settings, and accepts one more: automatic values are not fixed by it.
without_origins() { sed 's/^# //; s/ *#.*//' "$1" | grep -v '^run\.\(name\|out\)\|^Lines'; }
cp out full.yaml
ok train full.yaml --print-config
diff <(without_origins full.yaml) <(without_origins out) >diff || fault "the printed settings do not read back: $(cat diff)"
{ cat full.yaml; echo 'train.accum: 2'; } >more.yaml
ok train more.yaml --print-config
grep -q '^# train.micro_batch: 2 .*auto' out || fault "a printed file with train.accum keeps the old micro-batch: $(grep micro_batch out)"
ok train full.yaml --preset small --print-config
grep -q '^# train.steps: 5000 ' out || fault "the preset of a printed file cannot be changed: $(grep train.steps out)"
ok train conf.yaml "${tiny[@]}" --dry-run
says "parameters"
says "mpirun -np 2"
[ "$(q "SELECT count(*) FROM runs")" = "$before" ] || fault "a dry run is recorded"
# Number of passes over the data and their duration: unknown before a run, then taken from a run with the same work, or
# otherwise from another run.
printf 'In the beginning God created the heaven and the earth.\n%.0s' $(seq 400) >book.txt
text=("${tiny[@]/synth:chain/book.txt}" --steps 162) # 162 steps of 256 tokens; 22000 bytes, 95 % of them for training
ok train "${text[@]}" --dry-run
says "data       20.9 k tokens to train on: 1.98 epochs; 1.10 k to validate with"
ok train "${text[@]}" --threads 3 --dry-run
says "time       not known yet: no run of such a size on 2 ranks x 3 is recorded here; to measure the speed: bitrain bench train --preset nano --ranks 2"
ok train "${tiny[@]}" --steps 400 --dry-run
says "the speed of run 'second' here"
# The figure in every table.
speed=$(b runs second | awk '$1 == "second" { for (i = 2; i < NF; i++) if ($(i + 1) ~ "/s$") { sub("/s", "", $(i + 1)); print $i, $(i + 1) } }')
says "at $speed tokens/s, the speed of run 'second' here"
ok train "${text[@]}" --dry-run --json
awk 'match($0, /"epochs":[0-9.]*/) { e = substr($0, RSTART + 9, RLENGTH - 9) } match($0, /"seconds":[0-9.e-]*/) { s = substr($0, RSTART + 10, RLENGTH - 10) }
    END { exit !(e > 1.97 && e < 2 && s > 0) }' out || fault "no epochs or seconds in: $(cut -c1-300 out)"
ok train "${tiny[@]}" --set model.d_ff=80 --steps 400 --dry-run
says "another model, did here"
# A tiny run does not predict a far larger model or larger steps.
ok train "${slow[@]}" --steps 400 --dry-run
says "time       not known yet: no run of such a size on 2 ranks x 1 is recorded here"
ok train "${tiny[@]}" --batch-tokens 4096 --steps 400 --dry-run
says "time       not known yet"
# train and its plan refuse the same settings with the same message.
same_refusal() {
    local want=$1; shift
    code "$want" train "$@"; cp err refused
    code "$want" train "$@" --dry-run
    cmp -s err refused || fault "--dry-run prints something else: $(cat err refused)"
    [ ! -s out ] || fault "a refused plan is printed: $(head -2 out)"
}
same_refusal 3 "${tiny[@]/synth:chain/nowhere.txt}" --steps 3
same_refusal 3 "${text[@]}" --tokenizer nowhere.json
ok tokenizer train book.txt --vocab 270 --out t.json
same_refusal 2 "${text[@]}" --tokenizer t.json --set model.vocab=260
same_refusal 4 "${tiny[@]}" --steps 12 --name first

# The model is trained even if nothing is recorded.
ok train "${tiny[@]}" --steps 3 --name ghost --no-monitor
[ "$(q "SELECT count(*) FROM runs WHERE run='ghost'")" = 0 ] || fault "--no-monitor records"
[ -d runs/ghost/step-000000000003 ] || fault "--no-monitor leaves no checkpoint"

# refuse: one clear line, the right exit code, nothing on standard output
refuse() {
    local want=$1 text=$2; shift 2
    code "$want" train "$@"
    says "$text"
    [ "$(wc -l <err)" = 1 ] || fault "more than one line for: $* : $(cat err)"
    [ ! -s out ] || fault "stdout for: $*"
}
refuse 2 "do not divide" "${tiny[@]}" --ranks 3 --batch-tokens 256 --steps 3
refuse 2 "not allowed" "${tiny[@]}" --name 'No Good' --steps 3
refuse 2 "did you mean" "${tiny[@]}" --stesp 3
refuse 3 "cannot open" --preset nano --data /nonexistent.txt --steps 3
refuse 3 "host file" "${tiny[@]}" --hosts /nonexistent --steps 3
refuse 1 "cannot create" "${tiny[@]}" --out /proc/none --steps 3
refuse 3 "no run 'none'" --resume none
refuse 3 "no checkpoint" --resume "$tmp/t"
refuse 4 "has done its 12 steps" --resume first
refuse 4 "cannot become 64" --resume first --steps 20 --set model.d_model=64
refuse 4 "keeps its name" --resume first --steps 20 --name other
: >store-is-empty.db; head -c 4096 /dev/urandom >junk.db
refuse 6 "junk.db" "${tiny[@]}" --steps 3 --store junk.db
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod 555 locked
    refuse 1 "locked" "${tiny[@]}" --out locked/here --steps 3
fi
(BITRAIN_MPIRUN=/nonexistent/mpirun; export BITRAIN_MPIRUN; code 1 train "${tiny[@]}" --steps 3; says "openmpi-bin"; [ $faults -eq 0 ]) || fault "a missing mpirun"

# A host that cannot be reached: ssh's own line is reported, not mpirun's list of causes.
printf '#!/bin/sh\necho "ssh: connect to host $1 port 22: Connection refused" >&2\nexit 255\n' >ssh-that-fails
chmod +x ssh-that-fails
printf 'far.invalid slots=1\nlocalhost slots=1\n' >hosts.txt
OMPI_MCA_plm_rsh_agent=$tmp/ssh-that-fails code 1 train "${tiny[@]}" --steps 3 --hosts hosts.txt --name afar
grep -q "could not start the ranks (exit code [0-9]*): ssh: connect to host .*far.* port 22: Connection refused ('bitrain doctor --hosts FILE' tries every host); no restart" err ||
    fault "an unreachable host: $(cat err)"

# Checkpoints of a removed run are kept and listed, or deleted with all files that the run wrote and no others; the name
# may be used again.
ok train "${tiny[@]}" --steps 3 --name gone
ok runs rm gone --yes
says "checkpoints remain in '$tmp/runs/gone' (to delete them: --checkpoints with \`runs rm\`, or now: rm -r '$tmp/runs/gone')"
code 4 train "${tiny[@]}" --steps 3 --name gone
says "or remove them: rm -r '$tmp/runs/gone')"
rm -r "$tmp/runs/gone"
ok train "${tiny[@]}" --steps 3 --name gone
touch runs/gone/mine.txt
ok runs rm gone --yes --checkpoints
says "deleted 1 checkpoint, "
says "'$tmp/runs/gone' contains other files, which are kept"
[ "$(ls -A runs/gone)" = mine.txt ] || fault "of a deleted run there is: $(ls -A runs/gone)"
ok train "${tiny[@]}" --steps 3 --name gone
ok runs rm gone --yes --checkpoints
[ -e runs/gone/mine.txt ] || fault "a file of somebody else is deleted"

# --detach: the run survives its terminal, under a name that is printed at once; errors are printed before.
if script -qec true "$tmp/try" >/dev/null 2>&1 </dev/null; then
    timeout 60 script -qec "$(printf '%q ' "$BITRAIN" train "${slow[@]}" --steps 60 --detach)" "$tmp/tty" >/dev/null 2>&1 </dev/null || fault "exit $? of --detach"
    away=$(tr -d '\r' <tty | sed -n 's/^run \([a-z0-9-]*\) trains in the background and continues when this terminal is closed$/\1/p')
    [ -n "$away" ] || fault "--detach does not name the run: $(cat tty)"
    grep -q "bitrain ctl $away stop" tty || fault "--detach does not print how to stop it"
    for i in $(seq 300); do [ "$(q "SELECT state FROM runs WHERE run='$away'")" = done ] && break; sleep 0.1; done
    [ "$(q "SELECT state FROM runs WHERE run='$away'")" = done ] || fault "the detached run is $(q "SELECT state, steps FROM runs WHERE run='$away'")"
fi
code 3 train "${tiny[@]/synth:chain/nowhere.txt}" --detach
code 4 train "${tiny[@]}" --steps 12 --name first --detach
BITRAIN_DETACH=true code 0 train "${tiny[@]}" --steps 3 --name twice
says "run twice trains in the background"
for i in $(seq 100); do [ "$(q "SELECT state FROM runs WHERE run='twice'")" = done ] && break; sleep 0.1; done
[ "$(q "SELECT state FROM runs WHERE run='twice'")" = done ] || fault "a run detached by the environment does not train"
# The record contains the command as typed, and the name of its parent.
[ "$(q "SELECT argv FROM runs WHERE run='twice'" | grep -o -e '--no-detach' -e '--name' | tr '\n' ' ')" = "--name " ] || fault "the command of a detached run: $(q "SELECT argv FROM runs WHERE run='twice'")"
[ "$(q "SELECT place FROM configs WHERE run='twice' AND key='run.name'")" = --name ] || fault "the name given is from '$(q "SELECT place FROM configs WHERE run='twice' AND key='run.name'")'"

# --dash: the address is shown, the dashboard ends with the run; a port in use is reported and is no failure.
ok doctor
says "mpirun listens on 0.0.0.0 and [::]"
if grep -q 'libmicrohttpd: bitrain dash serves' out; then
    ok train "${tiny[@]}" --steps 400 --name shown --dash --port 0
    says "http://127.0.0.1:"
    [ "$(q "SELECT count(*) FROM events WHERE run='shown' AND title LIKE '%#token=%'")" = 0 ] || fault "the token is in the database"
    [ -z "$(pgrep -f "bitrain dash --store $tmp")" ] || fault "the dashboard outlives the run"
fi

# eval and generate agree with the run; both compute in fp32 unless the run's precision is requested.
precision=$(q "SELECT value FROM configs WHERE run='first' AND key='train.precision'")
ok eval first --tokens 256 --json --precision "$precision"
[ "$(sed 's/.*"nats":\([0-9.]*\).*/\1/' out | cut -c1-6)" = "$(q "SELECT printf('%.17g', val_loss) FROM steps WHERE run='first' AND step=11" | cut -c1-6)" ] || fault "eval differs from the run: $(cat out)"
ok generate first --prompt abc --tokens 20 --seed 3
cp out g1; ok generate "$tmp/runs/first" --prompt abc --tokens 20 --seed 3
cmp -s out g1 || fault "the same seed gives another text"
[ "$(head -c 3 out)" = abc ] || fault "the prompt is not repeated"
ok generate first --prompt abc --tokens 20 --seed 3 --temperature 0 --threads 1
grep -qE '^20 tokens, [0-9.]+ tokens/s \(prompt: 3 tokens, [0-9.]+ tokens/s\), fp32$' err || fault "generate does not print its speed: $(cat err)"
# A stop string ends the text before it, and the text before it does not change.
ok generate first --prompt abc --tokens 40 --seed 3 --json
field_of() { sed -E 's/.*"text":"(.*)","tokens":([0-9]+),"finish_reason":"([a-z]+)".*/\'"$1"'/' "$2"; }
whole=$(field_of 1 out)
[ "$(field_of 3 out)" = length ] && [ "$(field_of 2 out)" = 40 ] || fault "40 tokens end otherwise: $(cat out)"
plain=$(sed -E 's/\\u[0-9a-f]{4}|\\./ /g' <<<"${whole:8}" | grep -oE '[A-Za-z0-9]{2}' | head -1) # two characters that JSON does not escape
if [ -n "$plain" ]; then
    ok generate first --prompt abc --tokens 40 --seed 3 --json --stop 'never ever' "$plain"
    [ "$(field_of 1 out)" = "${whole%%"$plain"*}" ] || fault "--stop $plain: '$(field_of 1 out)' is not the beginning of '$whole'"
    [ "$(field_of 3 out)" = stop ] || fault "--stop does not print so"
fi
ok generate first --prompt abc --tokens 20 --temperature 0 --repeat-penalty 50 --min-p 0.5
code 3 generate none
code 4 ctl first pause
says "not live: it has done its"
says "bitrain train --resume first --steps "
finish
