#!/usr/bin/env bash
# Makes the two pictures of README.md from an active training: `bitrain top` as SVG, the dashboard as PNG.
# Needs tmux, Python and Chromium. Usage: tests/pictures/make_pictures.sh [BITRAIN [STEPS]]
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
bitrain=${1:-$src/build/bitrain}
steps=${2:-600}
tmp=$(mktemp -d)
export BITRAIN_STORE=$tmp/bitrain.db
session=pictures-$$
end() {
    tmux kill-session -t "$session" 2>/dev/null || true
    "$bitrain" ctl book stop >/dev/null 2>&1 || true
    for _ in $(seq 100); do "$bitrain" runs state:running 2>/dev/null | grep -q book || break; sleep 0.2; done
    rm -rf "$tmp"
}
trap end EXIT

# The tour of README.md, with two ranks.
cd "$tmp"
cat /usr/share/common-licenses/* >book.txt
"$bitrain" tokenizer train book.txt --vocab 1000 --out book.json >/dev/null
"$bitrain" train --data book.txt --tokenizer book.json --name book --steps "$steps" --ranks 2 --threads 1 --batch-tokens 1024 --eval-every 50 --detach >/dev/null
done_steps() { "$bitrain" query "SELECT steps FROM runs WHERE run = 'book'" --csv 2>/dev/null | tail -1; }
until [ "$(done_steps)" -ge $((steps * 7 / 10)) ] 2>/dev/null; do
    sleep 1
    [ "$("$bitrain" query "SELECT state FROM runs WHERE run = 'book'" --csv 2>/dev/null | tail -1)" != failed ] || { "$bitrain" logs book; exit 1; }
done

tmux new-session -d -s "$session" -x 100 -y 30 "TERM=screen-256color '$bitrain' top book"
sleep 2
tmux capture-pane -ep -t "$session" | python3 "$src/tests/pictures/terminal_svg.py" 100 >"$src/cli/pictures/terminal.svg"

# A report shows the pages of the dashboard without a server.
"$bitrain" report book -o book.html >/dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$tmp/profile" --window-size=1100,760 --virtual-time-budget=8000 \
    --screenshot="$src/cli/pictures/page.png" "file://$tmp/book.html#/run/book/overview" >/dev/null 2>&1
ls -l "$src/cli/pictures"
