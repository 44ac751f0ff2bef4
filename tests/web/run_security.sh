#!/bin/bash
# The dashboard against a hostile client, over raw sockets: traversal, foreign Host and Origin, tokens, methods, sizes, slow requests.
# timeout: 120
# labels: web
set -u
dir=$(mktemp -d)
pid=""
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; fi; rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" BITRAIN_DASH_TOKEN=0123456789abcdef0123456789abcdef
unset SSH_CONNECTION
if "$BITRAIN" doctor --quick | grep -q "without the dashboard"; then echo "SKIP: built without the dashboard"; exit 77; fi
"$BITRAIN" dash --port 0 --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do [ -s "$dir/out" ] && break; sleep 0.05; done
port=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$dir/out")
[ -n "$port" ] || { echo "dash did not start:"; cat "$dir/err"; exit 1; }
failed=0
BT_ASSETS=$(cd "$(dirname "$0")/../../web/static" && ls -- *.js *.css *.svg | sed "s,^,/assets/,")
token="Authorization: Bearer $BITRAIN_DASH_TOKEN"

# ask REQUEST -> the whole answer (the server closes)
ask() { exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1; printf '%b' "$1" >&3; timeout 20 cat <&3 2>/dev/null | tr -d '\0'; exec 3>&- 3<&-; }
# req METHOD PATH [header lines] -> the answer
req() { ask "$1 $2 HTTP/1.1\r\nHost: ${host-127.0.0.1:$port}\r\nConnection: close\r\n${3:+$3\r\n}\r\n"; }
want() {                                # want CODE WHAT ANSWER
    local got; got=$(printf '%s' "$3" | head -1 | cut -d' ' -f2)
    if [ "$got" != "$1" ]; then echo "FAIL: $2: wanted $1, got '$got'"; failed=1; fi
}

want 200 "healthz"            "$(req GET /healthz)"
want 401 "no token"           "$(req GET /api/v1/runs)"
want 401 "wrong token"        "$(req GET /api/v1/runs 'Authorization: Bearer 0123456789abcdef0123456789abcdee')"
want 401 "empty token"        "$(req GET /api/v1/runs 'Authorization: Bearer ')"
want 401 "token too long"     "$(req GET /api/v1/runs "${token}0")"
want 401 "cookie of another port" "$(req GET /api/v1/runs "Cookie: bitrain_1=$BITRAIN_DASH_TOKEN")"
want 200 "right token"        "$(req GET /api/v1/server "$token")"
want 200 "right cookie"       "$(req GET /api/v1/server "Cookie: a=b; bitrain_$port=$BITRAIN_DASH_TOKEN")"
want 403 "foreign Host"       "$(host=evil.example req GET / )"
want 403 "Host that begins well" "$(host=127.0.0.1.evil.example req GET /healthz)"
want 403 "Host with another port" "$(host=127.0.0.1:1 req GET /healthz)"
want 400 "no Host"            "$(ask 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n')"
want 403 "foreign Origin"     "$(req GET /api/v1/server "$token\r\nOrigin: http://evil.example")"
want 403 "Origin null"        "$(req GET /api/v1/server "$token\r\nOrigin: null")"
want 403 "cross-site fetch"   "$(req GET /api/v1/server "$token\r\nSec-Fetch-Site: cross-site")"
for m in PUT DELETE PATCH OPTIONS TRACE POST; do want 405 "method $m" "$(req $m /api/v1/runs "$token\r\nContent-Length: 0")"; done
for p in /../../etc/passwd /%2e%2e/%2e%2e/etc/passwd /assets/../../../etc/passwd /assets/..%2f..%2fetc%2fpasswd '/assets/..\\\\..\\\\etc\\\\passwd' /%252e%252e/etc/passwd //etc/passwd \
    /assets/app.js/ /assets/ /.git/config /api/v1/runs/..%2f..%2fetc/head /api/v1/runs/%2e%2e/head; do
    a=$(req GET "$p" "$token\r\nAccept-Encoding: gzip")
    want 404 "traversal $p" "$a"
    if printf '%s' "$a" | grep -q 'root:'; then echo "FAIL: $p gave a file away"; failed=1; fi
done
want 413 "body"               "$(ask "POST /api/v1/control HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\n$token\r\nContent-Length: 4\r\n\r\nabcd")"
want 405 "control when read-only" "$(req POST /api/v1/control "$token\r\nOrigin: http://127.0.0.1:$port\r\nX-Bitrain-Control: 1\r\nContent-Length: 0")"
big=$(printf 'a%.0s' $(seq 20000))
# refused, perhaps by closing before all was read (the answer is then lost with the reset)
refused() { local got; got=$(printf '%s' "$2" | head -1 | cut -d' ' -f2); case "$got" in 431 | 414 | 400 | "") ;; *) echo "FAIL: $1: got '$got'"; failed=1 ;; esac; }
refused "20 kB header"        "$(req GET /healthz "X-Big: $big")"
refused "20 kB address"       "$(req GET "/$big")"
want 200 "after oversize"     "$(req GET /healthz)"
want 400 "too many arguments" "$(req GET "/api/v1/runs?$(for i in $(seq 40); do printf 'a%d=1&' "$i"; done)" "$token")"
want 400 "limit that is no number" "$(req GET '/api/v1/runs?limit=1e99' "$token")"

a=$(req GET / 'Accept-Encoding: gzip')
want 200 "the page" "$a"
for hdr in "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" 'X-Content-Type-Options: nosniff' 'Referrer-Policy: no-referrer' 'X-Frame-Options: DENY' 'Cross-Origin-Opener-Policy: same-origin'; do
    printf '%s' "$a" | grep -aqF "$hdr" || { echo "FAIL: header missing: $hdr"; failed=1; }
done
total=0                                  # all the page loads, compressed, stays small
for f in / /assets/uplot.js /assets/uplot.css $(printf '%s' "$BT_ASSETS"); do
    n=$(req GET "$f" 'Accept-Encoding: gzip' | grep -ai '^content-length:' | tr -dc 0-9)
    total=$((total + ${n:-1000000}))
done
[ $total -le 61440 ] || { echo "FAIL: the page weighs $total bytes, more than 60 KiB"; failed=1; }
a=$(req GET /api/v1/login "$token")
printf '%s' "$a" | grep -q 'HttpOnly; SameSite=Strict' || { echo "FAIL: login cookie"; failed=1; }
printf '%s' "$a" | grep -qi 'Access-Control-Allow' && { echo "FAIL: CORS header"; failed=1; }

# 40 connections that send a byte now and then, 100 that say nothing: an honest request is still answered, the slow ones are cut
slow=()
for i in $(seq 140); do exec {fd}<>"/dev/tcp/127.0.0.1/$port" && slow+=("$fd"); [ "$i" -le 40 ] && printf 'GET / HT' >&"$fd"; done
want 200 "honest request among 140 silent ones" "$(req GET /healthz)"
cut=no
for _ in $(seq 15); do
    sleep 1
    if ! printf 'x' >&"${slow[0]}" 2>/dev/null || read -r -t 0.1 -u "${slow[0]}" _; then cut=yes; break; fi
    read -r -t 0.01 -u "${slow[0]}" _; [ $? -eq 1 ] && { cut=yes; break; }
done 2>/dev/null
[ $cut = yes ] || { echo "FAIL: a request of a byte a second was never cut"; failed=1; }
for fd in "${slow[@]}"; do exec {fd}>&-; done
want 200 "after them" "$(req GET /healthz)"
[ $failed -eq 0 ] && echo "every hostile request was refused"
exit $failed
