#!/usr/bin/env bash
# ctest: timeout=120
# Data-parallel ranks of a host have one copy of the frozen base beside which their adapters train: the same mapping,
# which only one rank writes. (run_lora.sh checks that the bits are those of one rank.)
. "$BT_SRC/tests/cli/train_lib.sh"

ok train "${tiny[@]}" --ranks 1 --steps 2 --name base
lora=("${tiny[@]}" --tune lora --set tune.rank=2 --init-from base --steps 1000000 --set ckpt.final=false)
mapping() { awk '/memfd:bitrain-base/ { print $4 ":" $5; exit }' "/proc/$1/maps"; } # device and inode

"$BITRAIN" train "${lora[@]}" --ranks 2 --name two >two.out 2>two.err &
job=$!
started+=($job)
wait_step two 5
pids=($(q "SELECT pid FROM ranks WHERE run='two' ORDER BY rank"))
[ ${#pids[@]} = 2 ] || fault "ranks: ${pids[*]}"
one=$(mapping "${pids[0]}") other=$(mapping "${pids[1]}")
[ -n "$one" ] && [ "$one" = "$other" ] || fault "the ranks map '$one' and '$other'"
# The system's own count: both processes share the pages.
shared() { awk '/memfd:bitrain-base/ { on = 1; next } /^[0-9a-f]+-[0-9a-f]+ / { on = 0 } on && /^Shared_/ { shared += $2 } on && /^Rss:/ { all += $2 }
    END { print shared + 0, all + 0 }' "/proc/$1/smaps"; }
for pid in "${pids[@]}"; do
    read -r both all <<<"$(shared "$pid")"
    [ "$all" -gt 0 ] && [ "$((2 * both))" -ge "$all" ] || fault "rank with pid $pid: $both KiB of the base's $all are shared"
done
kill -TERM $job
wait $job

"$BITRAIN" train "${lora[@]}" --ranks 1 --name alone >alone.out 2>alone.err &
job=$!
started+=($job)
wait_step alone 5
[ -z "$(mapping "$(q "SELECT pid FROM ranks WHERE run='alone'")")" ] || fault "a rank by itself shares its base"
kill -TERM $job
wait $job
finish
