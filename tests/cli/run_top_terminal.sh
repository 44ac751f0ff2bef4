# ctest: timeout=180 waits
# top in a real terminal (tmux): keys, resizing down to 20x5 and back, suspend and resume, quit, signals, a terminal
# that is closed.
set -u
command -v tmux > /dev/null || { echo "tmux is not installed"; exit 77; }
d=$(mktemp -d) || exit 1
T="tmux -S $d/socket -f /dev/null"
trap '$T kill-server 2> /dev/null; for o in "$d"/outer-*; do tmux -S "$o" kill-server 2> /dev/null; done; rm -rf "$d"' EXIT
export BITRAIN_STORE=$d/m.db LC_ALL=C.UTF-8
unset NO_COLOR TMUX COLUMNS LINES
n_failed=0
fail() { echo "FAIL: $*"; $T capture-pane -p -t s 2> /dev/null | head -60; n_failed=$((n_failed + 1)); }

"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" base-1 ranks=4 || fail base-1
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" demo ranks=8 straggler=5 excess=2 fail_at=120 resume_from=100 down_s=4 || fail demo

screen() { $T capture-pane -p -t s; }
keys() { $T send-keys -t s "$@"; }
sees() { # sees PATTERN [SECONDS]: waits until the screen shows the pattern, 10 s by default
    local i
    for i in $(seq $((${2:-10} * 10))); do
        screen | grep -qE -- "$1" && return 0
        sleep 0.1
    done
    fail "never saw: $1"
    return 1
}

$T new-session -d -s s -x 80 -y 24 "PS1='ready> ' TERM=screen-256color bash --norc -i" 2> "$d/tmux.err" ||
    { echo "skipped: tmux cannot open a terminal here: $(head -n 1 "$d/tmux.err")"; exit 77; }
$T set -g default-terminal screen-256color 2> /dev/null
sees 'ready>'
keys "'$BITRAIN' top demo; echo STATUS=\$?" Enter
sees 'demo +○ DONE +ranks 8 '

i=0
for p in 'slowest ranks' 'stragglers' 'where each rank' 'per rank and step' 'ternary weights' 'goodput' '▸demo' 'processors and memory'; do
    i=$((i + 1))
    keys $i
    sees "$p"
done
keys 2; sees 'without rank 5: 133 ms'
keys / ; keys -l 'rank [15]'; keys Enter; sees '2 of 8'
keys Escape; sees 'ranks x time'
keys 1; keys -l ':step 61'; keys Enter; sees 'in the past'
keys End; sees 'step 200/200'
keys f; sees FROZEN
keys f x; sees 'x tokens'
keys '?'; sees 'go to a screen'
keys Escape; sees 'slowest ranks'
keys C; sees 'the run is not live'

# 256 colours, and none with NO_COLOR (below).
$T capture-pane -e -p -t s | grep -q "$(printf '\033\\[')38;5;80m" || fail "no colours"

# Many changes of the size always give a complete screen, and at the end the original screen.
strip() { sed -E '1s/[0-9]+:[0-9]+:[0-9]+//; s/the run is not live//'; }
keys End; keys 2; sees 'without rank 5'; sleep 0.5
before=$(screen | strip)
for size in 81x25 200x60 79x24 80x23 40x12 20x5 21x6 33x7 1x1 2x2 120x8 20x50 150x45 60x20 20x5; do
    $T resize-window -t s -x ${size%x*} -y ${size#*x}
    sleep 0.05
done
sees '^demo ○ DONE$'
[ "$(screen | grep -c .)" -le 5 ] || fail "more than five lines at 20x5"
$T resize-window -t s -x 80 -y 24
sees 'without rank 5: 133 ms'
sleep 0.5
[ "$(screen | strip)" = "$before" ] || { fail "another screen after resizing"; echo "$before"; }

# Suspend, resume, redraw.
keys C-z
sees 'Stopped'
sees 'ready>'
keys 'fg; echo STATUS=$?' Enter
sees 'without rank 5: 133 ms'
keys C-l; sees 'without rank 5: 133 ms'

# A multiplexer's client detaches, and another one of another size attaches: its screen is complete.
outer() { $O capture-pane -p -t o 2> /dev/null; }
looks() { # looks PATTERN: waits until the attached client shows the pattern, at most 10 s
    local i
    for i in $(seq 100); do outer | grep -qE -- "$1" && return 0; sleep 0.1; done
    fail "an attached client never shows: $1"
    outer
}
$T set -w -t s window-size latest
for size in 100x30 90x26; do
    O="tmux -S $d/outer-$size -f /dev/null"
    $O new-session -d -s o -x ${size%x*} -y ${size#*x} "env -u TMUX LC_ALL=C.UTF-8 $T attach -t s"
    looks 'without rank 5: 133 ms'
    looks '^ demo +○ DONE'
    looks '1 Overview +2 Ranks'
    $O kill-server
done
$T resize-window -t s -x 80 -y 24
sees 'without rank 5: 133 ms'

# Quitting restores the shell, the cursor and the echo.
keys q
sees 'STATUS=0'
[ "$($T display -p -t s '#{alternate_on}#{cursor_flag}')" = 01 ] || fail "the terminal was not restored: $($T display -p -t s '#{alternate_on}#{cursor_flag}')"
keys 'stty -a | grep -o " echo "' Enter
sees '^ echo'
keys clear Enter

# Ctrl-C quits; SIGTERM restores the terminal as well.
keys "'$BITRAIN' top demo; echo STATUS=\$?" Enter; sees 'slowest ranks'
keys C-c; sees 'STATUS=0'
keys clear Enter
keys "'$BITRAIN' top demo & echo pid=\$!; fg; echo STATUS=\$?" Enter; sees 'slowest ranks'
pid=$(pgrep -P "$($T display -p -t s '#{pane_pid}')" | tail -1)
kill -TERM "$pid"
sees 'STATUS='
[ "$($T display -p -t s '#{alternate_on}')" = 0 ] || fail "SIGTERM left the alternate screen"
keys clear Enter

# Other signals restore it as well: previous screen, echo and line mode.
for signal in QUIT INT SEGV; do
    keys clear Enter
    keys "'$BITRAIN' top demo & echo pid=\$!; fg; echo STATUS=\$?" Enter; sees 'slowest ranks'
    kill -$signal "$(pgrep -P "$($T display -p -t s '#{pane_pid}')" | tail -1)"
    sees 'STATUS='
    [ "$($T display -p -t s '#{alternate_on}')" = 0 ] || fail "SIG$signal left the alternate screen"
    keys 'stty -a | grep -oE " (echo|icanon) " | wc -l' Enter
    sees '^2$'
done
keys clear Enter

# Pasted text triggers no key, and the form inserts it into its field.
runs_before=$("$BITRAIN" runs --json | grep -c '"run"')
$T set-buffer "$(printf 'R\ry\nS\nq')"
keys "'$BITRAIN'" Enter; sees '▸base-1|▸demo'
$T paste-buffer -p -t s; sees 'pasted text is taken after'
keys R; sees 'start a run'
$T paste-buffer -p -t s; sees 'nanoR y S q'
keys Escape; sees '▸base-1|▸demo'
# Old terminals paste without brackets: a confirmation pasted together with its question does not count.
keys -l "$(printf 'R\ry')"; sleep 0.5
keys Escape; sees '▸base-1|▸demo'
[ "$("$BITRAIN" runs --json | grep -c '"run"')" = "$runs_before" ] || fail "pasted bytes started a run"
keys q; sees 'ready> *$'
keys clear Enter

# The terminal has any size that its kernel can report.
for size in '65535 50' '3000 2000' '2 60000'; do
    keys "stty cols ${size% *} rows ${size#* }; timeout -s TERM 3 '$BITRAIN' top demo > '$d/huge' < /dev/tty; echo STATUS=\$?; stty cols 80 rows 24" Enter
    sees 'STATUS=(0|124)' 15
    [ "$(wc -c < "$d/huge")" -gt 100 ] || fail "nothing was drawn on a terminal of $size"
    keys clear Enter
done

# No colours, ASCII, and a terminal without capabilities.
keys "NO_COLOR=1 '$BITRAIN' top demo" Enter; sees 'slowest ranks'
$T capture-pane -e -p -t s | grep -q "$(printf '\033\\[')[0-9;]*3[0-8]" && fail "colours although NO_COLOR is set"
keys q; sees 'ready> *$'
keys clear Enter
keys "LC_ALL=C '$BITRAIN' top demo" Enter; sees 'demo +o DONE'
screen | LC_ALL=C grep -q '[^ -~]' && fail "not ASCII in the C locale"
keys q; sees 'ready> *$'
keys clear Enter
keys "TERM=dumb '$BITRAIN' top demo; echo STATUS=\$?" Enter; sees 'STATUS=0'
keys clear Enter
keys "TERM=nosuch '$BITRAIN' top demo; echo STATUS=\$?" Enter; sees 'slowest ranks'
keys q; sees "terminal 'nosuch' is unknown here"; sees 'STATUS=0'
keys clear Enter

# `bitrain` without arguments on a terminal shows the list of runs, and the form.
keys "'$BITRAIN'" Enter; sees '▸base-1'
keys R; sees 'start a run'
keys Escape; sees '▸base-1'
keys Space Space c; sees 'compare: loss'
keys Escape; sees '●base-1|▸base-1'
keys R; sees 'start a run'
keys -l 'x'; keys Enter; sees 'start this training'; keys y; sees "unknown preset 'nanox'"
keys BSpace Tab; keys -l 'synth:chain'; keys Tab; keys -l 2; keys Tab Tab; keys -l 1; keys Tab; keys -l 1; keys Tab Tab; keys -l 'from-form'; keys Enter
sees 'start this training'; keys n; sees 'Tab next field'; keys Enter; sees 'start this training'; keys y
sees 'from-form +(●|○)' 60 # the run has begun, and its overview opened automatically
sees 'step 2/2' 60
sees 'DONE' 60
keys 7; sees '▸from-form'; keys Space c; sees 'settings that differ'; sees 'train.steps +200 +200 +2'
keys q; sees 'ready> *$'
keys clear Enter

# top ends when the terminal is closed.
keys "'$BITRAIN' top demo" Enter; sees 'slowest ranks'
pid=$(pgrep -P "$($T display -p -t s '#{pane_pid}')" | tail -1)
$T kill-server
for i in $(seq 50); do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
kill -0 "$pid" 2> /dev/null && { fail "top outlived its terminal"; kill -9 "$pid"; }

[ $n_failed -eq 0 ] && echo "top in a terminal: ok"
exit $((n_failed > 0))
