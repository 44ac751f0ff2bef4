#!/bin/bash
# ctest: timeout=120 labels=web,mpi
# `bitrain train --ranks 2 --dash` prints an address that works during the run, its buttons control the run, and the
# dashboard ends with the run. If the port is used, only the dashboard is missing.
set -u
if "$BITRAIN" doctor --quick | grep -q "without the dashboard"; then echo "SKIP: built without the dashboard"; exit 77; fi
dir=$(mktemp -d)
pid=""
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; fi; rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" HOME="$dir"
unset SSH_CONNECTION BITRAIN_DASH_TOKEN
failed=0
bad() { echo "FAIL: $*"; failed=1; }
small="--data synth:chain --seq-len 32 --batch-tokens 8192 --set model.layers=1 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --threads 1"
"$BITRAIN" train --ranks 2 --dash --port 0 --name demo --steps 1000000 $small >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 400); do grep -q '#token=' "$dir/out" "$dir/err" && break; kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
url=$(grep -ho 'http://[^ ]*#token=[0-9a-f]*' "$dir/out" "$dir/err" | head -1)
[ -n "$url" ] || { echo "FAIL: no address"; cat "$dir/out" "$dir/err"; exit 1; }
port=${url#http://127.0.0.1:}; port=${port%%/*}
token=${url##*=}
req() { exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1; printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\nAuthorization: Bearer %s\r\n%b' "$1" "$2" "$port" "$token" "${3:-\r\n}" >&3; timeout 20 cat <&3 | tr -d '\0'; exec 3>&- 3<&-; }
ask() { local body="{\"run\":\"demo\",\"verb\":\"$1\"${2:+,\"value\":\"$2\"}}"; req POST /api/v1/control "Origin: http://127.0.0.1:$port\r\nX-Bitrain-Control: 1\r\nContent-Length: ${#body}\r\n\r\n$body"; }
state() { req GET /api/v1/runs/demo/head | grep -o '"state":"[a-z]*"' | cut -d'"' -f4; }
until_state() { for _ in $(seq 300); do [ "$(state)" = "$1" ] && return; sleep 0.1; done; bad "the run never was $1 (it is $(state))"; }
[ "$(stat -c %a "$dir/bitrain/dash-$port.token")" = 600 ] || bad "mode of the token's file"
req GET / | head -1 | grep -q ' 200 ' || bad "the page"
req GET /api/v1/runs | grep -q '"run":"demo"' || bad "the run is not listed"
until_state running
for c in /proc/[0-9]*/stat; do # it has a lower priority than the ranks if both need a core
    if read -r -a f <"$c" && [ "${f[3]}" = "$pid" ] && tr '\0' ' ' <"${c%stat}cmdline" | grep -q ' dash '; then [ "${f[18]}" = 10 ] || bad "the dashboard's niceness is ${f[18]}"; nice_seen=1; fi
done 2>/dev/null
[ -n "${nice_seen:-}" ] || bad "no dashboard among the children of the run"
for _ in $(seq 200); do req GET '/api/v1/runs/demo/series?metric=loss&width=100' | grep -q '"mean":\[[0-9]' && break; sleep 0.1; done
req GET '/api/v1/runs/demo/series?metric=loss&width=100' | grep -q '"mean":\[[0-9]' || bad "no loss arrived"
unpacked() { exec 3<>"/dev/tcp/127.0.0.1/$port"; printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\nAuthorization: Bearer %s\r\nAccept-Encoding: gzip\r\n\r\n' "$1" "$port" "$token" >&3; timeout 20 cat <&3 | LC_ALL=C sed '1,/^\r$/d' | gzip -dc; exec 3>&- 3<&-; }
unpacked /api/v1/metrics | grep -q '"key":"loss"' || bad "an answer is not compressed for a client that takes gzip"
ask pause | grep -q '"ok":true' || bad "pause: $(ask pause | tail -1)"
until_state paused
ask resume | grep -q '"ok":true' || bad "resume"
until_state running
ask set lr_factor=0.5 | grep -q '"ok":true' || bad "learning rate"
ask set lr_factor=no | grep -q '"error"' || bad "a learning rate that is no number was taken"
ask set lr=1e-9 | grep -q 'the peak learning rate is 1e-09' || bad "the learning rate is not told as a value"
ask tag '+paper' | grep -q '"reply":"tags of demo: paper"' || bad "tag"
ask note 'from the page' | grep -q '"reply":"demo: noted"' || bad "note"
ask annotate here | grep -q '"reply":"noted at this moment"' || bad "annotate"
ask remove records | grep -q 'is being trained by pid' || bad "a live run was removed"
ask remove everything | grep -q "must be 'records'" || bad "remove what?"
ask fly | grep -q 'must be one of pause.*annotate, acknowledge, remove' || bad "an unknown verb"
[ "$("$BITRAIN" query --csv "SELECT tags || note FROM runs WHERE run = 'demo'" | tail -1)" = "paperfrom the page" ] || bad "tags and note are not kept"
ask checkpoint | grep -q '"ok":true' || bad "checkpoint"
ask stop | grep -q '"ok":true' || bad "stop"
for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
kill -0 "$pid" 2>/dev/null && bad "the run does not stop"
wait "$pid"; pid=""
sleep 0.2
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then bad "the dashboard outlived the run"; fi
[ "$("$BITRAIN" query --json "SELECT count(*) AS n FROM events WHERE run = 'demo' AND kind = 'control'" | tr -dc 0-9)" -ge 3 ] || bad "what was asked is not in the record"

# A port in use: the run continues and succeeds.
"$BITRAIN" dash --port 0 --json >"$dir/holder" 2>/dev/null &
holder=$!
for _ in $(seq 200); do grep -q port "$dir/holder" && break; sleep 0.05; done
port=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$dir/holder")
"$BITRAIN" train --ranks 1 --dash --port "$port" --name second --steps 5 $small >"$dir/out" 2>"$dir/err" || bad "a taken port ended the run: $(cat "$dir/err")"
grep -q "in use by bitrain (pid $holder)" "$dir/out" "$dir/err" || bad "nobody said that the port is taken: $(cat "$dir/out" "$dir/err")"
kill "$holder"; wait "$holder"
[ $failed -eq 0 ] && echo "the dashboard beside a run works and harms nothing"
exit $failed
