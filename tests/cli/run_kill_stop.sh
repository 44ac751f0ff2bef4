#!/usr/bin/env bash
# ctest: timeout=180
# Signals and terminals: one Ctrl-C saves and stops, a second one stops at once; keys work in a pty, and the terminal is
# restored; a closed terminal, a closed pipe and Ctrl-Z do not disturb the training.
. "$BT_SRC/tests/cli/train_lib.sh"
run=(train "${light[@]}" --steps 60)
export BITRAIN_TEST_DELAY=15 # steps remain when a signal arrives, on any processor

go() {                                          # NAME STEP WORDS...
    local name=$1 step=$2; shift 2
    "$BITRAIN" "${run[@]}" --name "$name" "$@" >"$name.out" 2>"$name.err" &
    job=$!
    started+=($job)
    wait_step "$name" "$step"
}
ended() {                                       # NAME CODE STATE
    wait $job
    local got=$?
    [ $got -eq "$2" ] || fault "$1: exit $got, not $2"
    [ "$(q "SELECT state FROM runs WHERE run='$1'")" = "$3" ] || fault "$1 is not '$3'"
}
saved() { [ -e "$(printf 'runs/%s/step-%012d/manifest.json' "$1" $(($(q "SELECT max(step) FROM steps WHERE run='$1'") + 1)))" ]; }

BITRAIN_TEST_DELAY='' ok "${run[@]}" --name calm
losses calm >calm.txt

# A background job of a script ignores SIGINT; `env` restores the default.
go_int() { local name=$1 step=$2; shift 2; env --default-signal=INT "$BITRAIN" "${run[@]}" --name "$name" "$@" >"$name.out" 2>"$name.err" & job=$!; started+=($job); wait_step "$name" "$step"; }

go term 5
kill -TERM $job
ended term 143 stopped
saved term || fault "SIGTERM: nothing saved at the last step"
last=$(q "SELECT max(step) FROM steps WHERE run='term'") # the signal may reach a run that has finished
[ "$last" = 59 ] || ok train --resume term --threads 1 --ranks 2
losses term | cmp -s - calm.txt || fault "stopped by SIGTERM and resumed: other losses"

# The signal arrives after the last step, during the final validation: the run is finished, and there is nothing to
# resume.
"$BITRAIN" train "${light[@]}" --steps 4 --set train.eval_tokens=3000000 --name late >late.out 2>late.err &
job=$!
started+=($job)
wait_step late 3
kill -TERM $job 2>/dev/null
ended late 0 done
[ "$(q "SELECT exit_kind, exit_code FROM runs WHERE run='late'")" = done,0 ] || fault "late: $(q "SELECT exit_kind, exit_code FROM runs WHERE run='late'")"

# `timeout` signals its child and then its whole process group: the two signals are one request, although a second
# request would stop the run at once.
go group 5
kill -TERM $job; kill -TERM $job
ended group 143 stopped
saved group || fault "two SIGTERM at a time: nothing saved"
go_int pair 5
kill -INT $job; kill -INT $job                  # `timeout -s INT`
ended pair 130 stopped
saved pair || fault "two SIGINT at a time: nothing saved"
go again 5
kill -TERM $job; sleep 1.2; kill -TERM $job 2>/dev/null
wait $job; [ $? -eq 143 ] || fault "a second SIGTERM after a second does not end the run"

go_int once 5
kill -INT $job
ended once 130 stopped
saved once || fault "SIGINT: nothing saved"

go_int twice 5
before=$(ls runs/twice/step-* 2>/dev/null | wc -l)
kill -INT $job; sleep 0.15; kill -INT $job 2>/dev/null
ended twice 130 stopped
q "SELECT title FROM events WHERE run='twice'" | grep -q "stopping at once" || saved twice || fault "the second SIGINT left no trace"

# The reader of standard output exits.
("$BITRAIN" "${run[@]}" --name piped 2>&1 | head -n 1 >/dev/null) &
piped=$!
started+=($piped)
wait_step piped 59
wait_gone || fault "the piped run hangs"
wait $piped # the supervisor has its last row to write
[ "$(q "SELECT state FROM runs WHERE run='piped'")" = done ] || fault "a closed pipe ended the run: $(q "SELECT state FROM runs WHERE run='piped'")"

# Ctrl-Z and fg.
go zed 5
kill -TSTP $job
for i in $(seq 100); do [ "$(cut -d' ' -f3 /proc/$job/stat)" = T ] && break; sleep 0.02; done
[ "$(cut -d' ' -f3 /proc/$job/stat)" = T ] || fault "SIGTSTP does not stop the supervisor"
kill -CONT $job
ended zed 0 done
losses zed | cmp -s - calm.txt || fault "Ctrl-Z disturbed the run"

if ! script -qec true "$tmp/try.pty" >/dev/null 2>&1 </dev/null; then
    [ $faults -gt 0 ] || skip "no 'script' or no pseudo-terminals here (/dev/pts); the rest passed"
    finish
fi
mkfifo keys
pty() { # NAME STEP WORDS...: runs in a terminal whose keyboard is the fifo
    local name=$1 step=$2; shift 2
    printf '#!/bin/bash\n"%s"' "$BITRAIN" >"$name.sh"
    printf ' %q' "${run[@]}" --name "$name" "$@" >>"$name.sh"
    printf '\necho "exit=$?"\nstty -a\n' >>"$name.sh"
    TERM=xterm script -qefc "bash $tmp/$name.sh" "$name.pty" <keys >/dev/null 2>&1 &
    job=$!
    started+=($job)
    exec 8>keys
    wait_step "$name" "$step"
}
shown() { # NAME TEXT: waits until the terminal shows the text (10 s)
    local i
    for i in $(seq 200); do
        grep -qF -- "$2" "$1.pty" && return 0
        sleep 0.05
    done
    fault "the terminal of $1 never shows \"$2\""
}
give_back() { shown "$1" "exit=$2"; shown "$1" " icanon"; shown "$1" " echo "; exec 8>&-; wait $job; }

pty keyed 3 --steps 100000
shown keyed $'\rstep '
printf '?' >&8; shown keyed "keys: p pause"
printf 'c' >&8; shown keyed "checkpoint after step"
printf '+' >&8; shown keyed "learning rate factor 1.25 "
printf -- '-' >&8; shown keyed "learning rate factor 1 "
printf 'p' >&8; shown keyed "paused after step"
printf 'p' >&8; shown keyed "resumed after a pause"
printf '\003' >&8                               # Ctrl-C
shown keyed "run keyed stopped after step"
give_back keyed 130
saved keyed || fault "Ctrl-C in a terminal: nothing saved"
for t in 'checkpoint requested by key c' 'pause requested by key p' 'resume requested by key p' 'stop requested by Ctrl-C'; do
    [ "$(q "SELECT count(*) FROM events WHERE run='keyed' AND title='$t'")" = 1 ] || fault "no event '$t'"
done

# The terminal is closed: training continues, and can still be controlled.
pty closed 3 --steps 100000
kill -9 $job
exec 8>&-
wait $job 2>/dev/null
wait_step closed $(($(q "SELECT max(step) FROM steps WHERE run='closed'") + 5))
ok ctl closed stop
wait_gone || fault "the run without a terminal does not stop"
[ "$(q "SELECT state FROM runs WHERE run='closed'")" = stopped ] || fault "the run without a terminal is '$(q "SELECT state FROM runs WHERE run='closed'")'"
finish
