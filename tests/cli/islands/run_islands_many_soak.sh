#!/usr/bin/env bash
# ctest: timeout=3600 soak
# ISLANDS islands (64) of one rank on this machine for LASTS seconds (600), with asynchronous updates: the hub remains
# below 200 MB and does not grow after the first fifth of the time, no island is lost, and every island's updates are
# applied. The script prints the hub's memory.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
many=${ISLANDS:-64} lasts=${LASTS:-600} limit=3600
names=()
for k in $(seq "$many"); do names+=("i$k"); done
for ((k = 0; k < many; k += 32)); do b hub --keys keys "${names[@]:k:32}" >/dev/null 2>err || fault "no keys: $(cat err)"; done

rss_kb() { awk '/^VmRSS/ { print $2 }' "/proc/$serving/status"; }
start_hub --islands "$many" --name hub --grace 60
serving=$(serving)
for i in "${names[@]}"; do
    start_island "$i" --mode ps --staleness -1 --batch-tokens 128 --steps 100000000 --set launch.hang_s=0
    process[$i]=$island
done
for k in $(seq 3000); do                        # the job begins when the last island has joined
    [ "$(grep -c ' joined at step' hub.err)" -ge "$many" ] && break
    sleep 0.2
done
[ "$(grep -c ' joined at step' hub.err)" -ge "$many" ] || fault "$(grep -c ' joined at step' hub.err) of $many islands have joined"
first=0 most=0 began=$SECONDS
while [ $((SECONDS - began)) -lt "$lasts" ]; do
    sleep 2
    now=$(rss_kb)
    [ -n "$now" ] || { fault "the hub has ended: $(tail -n 3 hub.err)"; break; }
    [ "$now" -gt "$most" ] && most=$now
    [ "$first" = 0 ] && [ $((SECONDS - began)) -ge $((lasts / 5)) ] && first=$now
done
last=$(rss_kb)
kill "${process[@]}"
wait "${process[@]}"
kill $hub
wait $hub
state=$(tr -d '\n ' <"$(ls -d hub-out/step-* | tail -n 1)/manifest.json")
clocks=$(grep -o '"clocks":\[[^]]*' <<<"$state" | cut -d'[' -f2 | tr ',' '\n' | sort -n)
[ "$(head -n 1 <<<"$clocks")" -gt 0 ] || fault "an island has no update in the weights"
[ "$(grep -c 'declared dead' hub.err)" = 0 ] || fault "islands were lost: $(grep -m 3 'declared dead' hub.err)"
[ "$most" -le $((200 * 1024)) ] || fault "the hub took $most KiB"
[ "$last" -le $((first + 10 * 1024)) ] || fault "the hub grew from $first to $last KiB"
echo "$many islands, $lasts s: $(grep -o '"version":[0-9]*' <<<"$state" | tail -n 1 | cut -d: -f2) updates;" \
    "steps of an island $(head -n 1 <<<"$clocks") to $(tail -n 1 <<<"$clocks"); hub $first KiB, $last KiB at the end, $most KiB at most"
exit $((faults > 0))
