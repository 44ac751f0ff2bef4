#!/bin/bash
# ctest: timeout=90 labels=web waits
# `bench http` prints plausible values for every figure, and neither files nor processes remain.
set -u
if "$BITRAIN" doctor --quick | grep -q "without the dashboard"; then echo "SKIP: built without the dashboard"; exit 77; fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
out=$(TMPDIR=$dir "$BITRAIN" bench http --steps 2000 --ranks 2 --load-s 1 --stream-s 1 --json) || { echo "FAIL: status $?"; exit 1; }
value() { printf '%s' "$out" | grep -oE "\"$1\":[-0-9.e+]+" | cut -d: -f2; }
failed=0
for key in start_ms first_byte_ms_p50 first_byte_ms_p95 series_cold_ms_p95 series_cold_ms_max series_rank_ms series_zoom_ms_p50 series_zoom_ms_p95 series_zoom_ms_max requests_per_s requests_tiny_per_s \
    attacked_ms_p50 attacked_ms_p99 attacked_ms_max attacked_cores event_ms_p50 event_ms_p95 rss_before_mib rss_after_mib stream_events; do
    awk -v v="$(value $key)" 'BEGIN {exit !(v > 0)}' || { echo "FAIL: $key is '$(value $key)'"; failed=1; }
done
[ "$(value attacked_failed)" = 0 ] || { echo "FAIL: $(value attacked_failed) honest requests were refused under attack"; failed=1; }
awk -v v="$(value rss_after_mib)" 'BEGIN {exit !(v < 64)}' || { echo "FAIL: the server takes $(value rss_after_mib) MiB"; failed=1; }
[ -z "$(ls -A "$dir")" ] || { echo "FAIL: left behind: $(ls "$dir")"; failed=1; }
! pgrep -f "dash --store $dir" >/dev/null || { echo "FAIL: a server stays behind"; failed=1; }
exit $failed
