#!/bin/bash
# ctest: timeout=120 labels=web waits
# The dashboard against a hostile client over raw sockets: path traversal, foreign Host and Origin, tokens, methods,
# sizes, slow requests.
set -u
dir=$(mktemp -d)
pid=""
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; fi; rm -rf "$dir"' EXIT
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" BITRAIN_DASH_TOKEN=0123456789abcdef0123456789abcdef
unset SSH_CONNECTION
if "$BITRAIN" doctor --quick | grep -q "without the dashboard"; then echo "SKIP: built without the dashboard"; exit 77; fi
"$BT_BIN/tests/t.store.synth_runs" "$BITRAIN_STORE" demo ranks=2 steps=60 || exit 1
"$BITRAIN" dash --port 0 --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do [ -s "$dir/out" ] && break; sleep 0.05; done
port=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$dir/out")
[ -n "$port" ] || { echo "dash did not start:"; cat "$dir/err"; exit 1; }
failed=0
BT_ASSETS=$(grep -o "/assets/[a-z.]*" "$(dirname "$0")/../../web/static/index.html")
token="Authorization: Bearer $BITRAIN_DASH_TOKEN"

# ask REQUEST: prints the complete response until the server closes. The request is sent by one write, because data that
# arrive after the server has refused and closed reset the connection, and the response would be lost.
ask() { exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1; printf '%b' "$1" | dd obs=1M status=none >&3; timeout 20 cat <&3 2>/dev/null | tr -d '\0'; exec 3>&- 3<&-; }
# req METHOD PATH [header lines]: prints the response
req() { ask "$1 $2 HTTP/1.1\r\nHost: ${host-127.0.0.1:$port}\r\nConnection: close\r\n${3:+$3\r\n}\r\n"; }
want() {                                # want CODE WHAT RESPONSE
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
# No spelling of a path leads outside the table of routes; the server decodes a path only once.
for p in /../../etc/passwd /..%2f..%2fetc%2fpasswd /%2e%2e/%2e%2e/etc/passwd /%2E%2E%2F%2E%2E%2Fetc%2Fpasswd /%252e%252e/etc/passwd /%25%32%65%25%32%65/etc/passwd \
    /..%5c..%5cetc%5cpasswd '/..\\\\..\\\\etc\\\\passwd' /%c0%ae%c0%ae/etc/passwd /%c0%af..%c0%afetc/passwd /%e0%80%ae/etc/passwd /%uff0e%uff0e/etc/passwd /..%00/etc/passwd /....//....//etc/passwd \
    /..\;/..\;/etc/passwd //etc/passwd ///etc/passwd /./etc/passwd /assets/../../../etc/passwd /assets/..%2f..%2fetc%2fpasswd /assets/%2e%2e/%2e%2e/etc/passwd '/assets/..\\\\..\\\\etc\\\\passwd' \
    /assets/app.js/ /assets/app.js/../../etc/passwd /assets/ /assets /ASSETS/app.js /assets/app.js%20 /assets/app.js. /assets/app.js::\$DATA /.git/config /web/server/server.c /proc/self/environ /api/v1 /api/v1/ \
    /api/v1/runs/..%2f..%2fetc/head /api/v1/runs/%2e%2e/head /api/v1/runs/../server /api/v1/runs/a%00b/head /api/v1/runs/-x/head /api/v1/runs/RUN/head /api/v1/runs/nobody/head /api/v1//runs /api/v1/runs/ \
    file:///etc/passwd http://127.0.0.1/etc/passwd; do
    a=$(req GET "$p" "$token\r\nAccept-Encoding: gzip")
    case $(printf '%s' "$a" | head -1 | cut -d' ' -f2) in 404 | 400) ;; *) echo "FAIL: traversal $p: $(printf '%s' "$a" | head -1)"; failed=1 ;; esac
    if printf '%s' "$a" | grep -qE 'root:|BITRAIN_DASH'; then echo "FAIL: $p gave a file away"; failed=1; fi
done
# The server library cuts a path at a NUL, so such a path is refused.
want 400 "NUL after an asset"  "$(req GET '/assets/app.js%00/../../etc/passwd' "$token\r\nAccept-Encoding: gzip")"
want 400 "NUL before a path"   "$(req GET '/%00/api/v1/runs' "$token")"
want 413 "body of a GET"      "$(ask "GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\n$token\r\nContent-Length: 4\r\n\r\nabcd")"
want 405 "body of a POST when read-only" "$(ask "POST /api/v1/control HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\n$token\r\nContent-Length: 4\r\n\r\nabcd")"
want 405 "control when read-only" "$(req POST /api/v1/control "$token\r\nOrigin: http://127.0.0.1:$port\r\nX-Bitrain-Control: 1\r\nContent-Length: 0")"
big=$(printf 'a%.0s' $(seq 20000))
# Checks that a request is refused; the server may close before it has read everything, and the response is then lost.
refused() { local got; got=$(printf '%s' "$2" | head -1 | cut -d' ' -f2); case "$got" in 431 | 414 | 413 | 400 | "") ;; *) echo "FAIL: $1: got '$got'"; failed=1 ;; esac; }
refused "20 kB header"        "$(req GET /healthz "X-Big: $big")"
refused "20 kB address"       "$(req GET "/$big")"
want 200 "after oversize"     "$(req GET /healthz)"
want 400 "too many arguments" "$(req GET "/api/v1/runs?$(for i in $(seq 40); do printf 'a%d=1&' "$i"; done)" "$token")"
want 400 "limit that is no number" "$(req GET '/api/v1/runs?limit=1e99' "$token")"

# A request cannot be interpreted as two.
codes() { printf '%s' "$1" | grep -a '^HTTP/1\.1 ' | cut -d' ' -f2 | tr '\n' ' '; }
host_line="Host: 127.0.0.1:$port"
two=$(ask "GET /healthz HTTP/1.1\r\n$host_line\r\n\r\nGET /nothing HTTP/1.1\r\n$host_line\r\n$token\r\nConnection: close\r\n\r\n")
[ "$(codes "$two")" = "200 404 " ] || { echo "FAIL: two pipelined requests: $(codes "$two")"; failed=1; }
many=$(for i in $(seq 60); do printf 'GET /healthz HTTP/1.1\\r\\n%s\\r\\n\\r\\n' "$host_line"; done)
n=$(ask "${many}GET /healthz HTTP/1.1\r\n$host_line\r\nConnection: close\r\n\r\n" | grep -ac '^HTTP/1\.1 200')
[ "$n" -eq 61 ] || { echo "FAIL: $n of 61 pipelined answers"; failed=1; }
both=$(ask "GET /healthz HTTP/1.1\r\n$host_line\r\nConnection: close\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
want 400 "length and chunks together" "$both"
# libmicrohttpd 1.0 refuses such a request itself.
[[ $both == *"Content-Length and Transfer-Encoding together"* || $both == *"Transfer-Encoding and Content-Length headers"* ]] || { echo "FAIL: length and chunks together are not named"; failed=1; }
smuggled=$(ask "GET /healthz HTTP/1.1\r\n$host_line\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/server HTTP/1.1\r\n$host_line\r\n$token\r\nConnection: close\r\n\r\n")
case $(codes "$smuggled") in *200*200*) echo "FAIL: a request was smuggled: $(codes "$smuggled")"; failed=1 ;; esac
refused "negative length"     "$(req GET /healthz 'Content-Length: -1')"
refused "length that is no number" "$(req GET /healthz 'Content-Length: 1e3')"
refused "length that overflows" "$(req GET /healthz 'Content-Length: 99999999999999999999999')"
refused "two Hosts"           "$(req GET /healthz "Host: evil.example" | sed '1s/ 403 / 400 /; 1s/ 200 / 400 /')"
refused "no version"          "$(ask 'GET /healthz\r\n\r\n')"
refused "TLS on the plain port" "$(ask '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' | tr -dc '[:print:]\n')"
refused "blank in the name of a header" "$(req GET /healthz 'X Bad: 1' | sed '1s/ 200 / 400 /')"
refused "1000 headers"        "$(req GET /healthz "$(for i in $(seq 1000); do printf 'X-%d: aaaaaaaaaaaaaaaaaaaa\\r\\n' "$i"; done)X-Last: 1")"
want 200 "after those"        "$(req GET /healthz)"
case $(req HEAD /healthz | tr -d '\r' | sed '1,/^$/d') in "") ;; *) echo "FAIL: HEAD came with a body"; failed=1 ;; esac
want 304 "unchanged asset"    "$(req GET /assets/app.js "Accept-Encoding: gzip\r\nIf-None-Match: $(req GET /assets/app.js 'Accept-Encoding: gzip' | tr -d '\r' | sed -n 's/^ETag: //p')")"
# A client without gzip gets the same bytes uncompressed.
plain() { a=$(req GET /assets/uplot.css "$1" | tr -d '\r'); want 200 "plain asset ($1)" "$a"; printf '%s' "$a" | grep -aqi '^content-encoding' && { echo "FAIL: '$1' got gzip"; failed=1; }; printf '%s' "$a" | grep -aq 'uplot' || { echo "FAIL: '$1' got no text"; failed=1; }; }
plain 'X-None: 1'
plain 'Accept-Encoding: identity'
plain 'Accept-Encoding: br, gzip;q=0'
want 304 "unchanged plain asset" "$(req GET /assets/app.js "If-None-Match: $(req GET /assets/app.js | tr -d '\r' | sed -n 's/^ETag: //p')")"
want 200 "the plain form's tag is not the other's" "$(req GET /assets/app.js "Accept-Encoding: gzip\r\nIf-None-Match: $(req GET /assets/app.js | tr -d '\r' | sed -n 's/^ETag: //p')")"
for e in 'gzip' 'br, gzip' 'GZIP;q=0.5' 'deflate , gzip ;q=1.0'; do req GET /assets/app.js "Accept-Encoding: $e" | grep -aqi '^content-encoding: gzip' || { echo "FAIL: no gzip for '$e'"; failed=1; }; done
want 501 "SQL that nobody enabled" "$(req GET '/api/v1/query?sql=SELECT+1' "$token")"
want 401 "SQL without a token" "$(req GET '/api/v1/query?sql=SELECT+1')"
# Errors contain the cause and remedy, and neither markup of the client nor unnecessary details of the machine.
shape() { printf '%s' "$2" | grep -q '^{"error":{"code":"[a-z_]\+","message":"[^"]\+.*","hint":".\+"}}$' || { echo "FAIL: shape of the error $1: $(printf '%s' "$2" | tail -1)"; failed=1; }; }
shape 400 "$(req GET '/api/v1/runs?limit=x' "$token")"
shape 401 "$(req GET /api/v1/runs)"
shape 403 "$(host=evil.example req GET /)"
shape 404 "$(req GET /api/v1/runs/nobody/head "$token")"
shape 404 "$(req GET /nothing "$token")"
shape 405 "$(req PUT /api/v1/runs "$token\r\nContent-Length: 0")"
shape 413 "$(ask "GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\n$token\r\nContent-Length: 4\r\n\r\nabcd")"
shape 501 "$(req GET '/api/v1/query?sql=SELECT+1' "$token")"
# Besides the main thread, one thread responds and one watches the database; both can only read it.
[ "$(ls "/proc/$pid/task" | wc -l)" -eq 3 ] || { echo "FAIL: $(ls "/proc/$pid/task" | wc -l) threads"; failed=1; }
readers=0
for fd in "/proc/$pid/fd/"*; do
    [ "$(readlink "$fd")" = "$BITRAIN_STORE" ] || continue
    readers=$((readers + 1))
    [ $((8#$(sed -n 's/^flags:[^0-9]*//p' "/proc/$pid/fdinfo/${fd##*/}") & 3)) -eq 0 ] || { echo "FAIL: the server opened the database for writing"; failed=1; }
done
[ $readers -gt 0 ] || { echo "FAIL: the server holds no database: this test looks at nothing"; failed=1; }

a=$(req GET / 'Accept-Encoding: gzip')
want 200 "the page" "$a"
for hdr in "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" 'X-Content-Type-Options: nosniff' 'Referrer-Policy: no-referrer' 'X-Frame-Options: DENY' 'Cross-Origin-Opener-Policy: same-origin'; do
    printf '%s' "$a" | grep -aqF "$hdr" || { echo "FAIL: header missing: $hdr"; failed=1; }
done
total=0 # the compressed size of everything the page loads is small
for f in / $BT_ASSETS; do
    n=$(req GET "$f" 'Accept-Encoding: gzip' | grep -ai '^content-length:' | tr -dc 0-9)
    total=$((total + ${n:-1000000}))
done
most=82000
command -v zopfli >/dev/null || most=83000
command -v esbuild >/dev/null || most=99000 # if esbuild is missing the scripts are not minified
[ $total -le $most ] || { echo "FAIL: the page weighs $total bytes, more than $most"; failed=1; }
a=$(req GET /api/v1/login "$token")
printf '%s' "$a" | grep -q 'HttpOnly; SameSite=Strict' || { echo "FAIL: login cookie"; failed=1; }
printf '%s' "$a" | grep -qi 'Access-Control-Allow' && { echo "FAIL: CORS header"; failed=1; }

# 200 connections send a byte at intervals and 1000 send nothing: a normal request is still served, and the slow
# connections are closed.
ulimit -n 4096 2>/dev/null || ulimit -n "$(ulimit -Hn)"
slow=()
for i in $(seq 1200); do exec {fd}<>"/dev/tcp/127.0.0.1/$port" && slow+=("$fd"); [ "$i" -le 200 ] && printf 'GET / HT' >&"$fd"; done 2>/dev/null
[ ${#slow[@]} -gt 600 ] || { echo "FAIL: only ${#slow[@]} connections could be opened"; failed=1; }
for i in 1 2 3; do want 200 "honest request among ${#slow[@]} silent ones" "$(req GET /healthz)"; done
cut=no
for _ in $(seq 15); do
    sleep 1
    if ! printf 'x' >&"${slow[0]}" 2>/dev/null || read -r -t 0.1 -u "${slow[0]}" _; then cut=yes; break; fi
    read -r -t 0.01 -u "${slow[0]}" _; [ $? -eq 1 ] && { cut=yes; break; }
done 2>/dev/null
[ $cut = yes ] || { echo "FAIL: a request of a byte a second was never cut"; failed=1; }
for fd in "${slow[@]}"; do exec {fd}>&-; done
want 200 "after them" "$(req GET /healthz)"
kill "$pid"; wait "$pid"; [ $? -eq 0 ] || { echo "FAIL: the end of the server: status $?"; failed=1; }
pid=""

# A control request needs the option, a token, the page's own origin and its header; an invalid or slow body is refused.
"$BITRAIN" dash --port "$port" --control --enable-query --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do grep -q port "$dir/out" && break; sleep 0.05; done
origin="Origin: http://127.0.0.1:$port" intent='X-Bitrain-Control: 1'
post() { ask "POST /api/v1/control HTTP/1.1\r\n$host_line\r\nConnection: close\r\n$1\r\nContent-Length: ${#2}\r\n\r\n$2"; }
want 401 "control without token"  "$(post "$origin\r\n$intent" '{}')"
want 403 "control without origin" "$(post "$token\r\n$intent" '{}')"
want 403 "control from elsewhere" "$(post "$token\r\n$intent\r\nOrigin: http://evil.example" '{}')"
want 403 "control without intent" "$(post "$token\r\n$origin" '{}')"
for body in '' '{' '[]' '{"run":1}' '{"run":"demo"}' '{"run":"demo","verb":"explode"}' '{"run":"../x","verb":"stop"}' '{"run":"demo","run":"demo","verb":"stop"}' '{"run":"demo","verb":"set"}'; do
    want 400 "control with $body" "$(post "$token\r\n$origin\r\n$intent" "$body")"
done
case $(post "$token\r\n$origin\r\n$intent" '{"run":"nobody","verb":"stop"}' | head -1 | cut -d' ' -f2) in 404 | 409) ;; *) echo "FAIL: control of a run that is not there"; failed=1 ;; esac
begin() { ask "POST /api/v1/start HTTP/1.1\r\n$host_line\r\nConnection: close\r\n$1\r\nContent-Length: ${#2}\r\n\r\n$2"; }
want 403 "start from elsewhere" "$(begin "$token\r\n$intent\r\nOrigin: http://evil.example" '{}')"
for body in '' '[]' '{"name":"../x"}' '{"name":1}' '{"settings":[]}' '{"settings":{"alert":"reboot"}}' '{"settings":{"steps":2}}' '{"settings":{"data":"--detach"}}' '{"settings":{"preset":"nanno"}}'; do
    want 400 "start with $body" "$(begin "$token\r\n$origin\r\n$intent" "$body")"
done
[ "$("$BITRAIN" query --csv "SELECT count(*) FROM runs" | tail -1)" = 1 ] || { echo "FAIL: a run was started"; failed=1; }
big=$(printf 'a%.0s' $(seq 70000))
case $(post "$token\r\n$origin\r\n$intent" "$big" | head -1 | cut -d' ' -f2) in 413 | "") ;; *) echo "FAIL: a body of 70 kB"; failed=1 ;; esac
for m in PUT DELETE PATCH OPTIONS TRACE; do want 405 "method $m with control" "$(req $m /api/v1/control "$token\r\nContent-Length: 0")"; done
case $(req GET '/api/v1/query?sql=SELECT+steps+AS+n+FROM+runs' "$token" | tail -1) in *'"columns":["n"],"rows":[[60]]'*) ;; *) echo "FAIL: SQL that was enabled"; failed=1 ;; esac
want 400 "SQL that writes"        "$(req GET '/api/v1/query?sql=DELETE+FROM+run' "$token")"
kill "$pid"; wait "$pid"; pid=""

# Only its owner can open a Unix socket, no token is needed, and foreign Hosts are still refused. A socket without a
# server is replaced, a used one is not.
"$BITRAIN" dash --socket "$dir/s" --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do grep -q socket "$dir/out" && break; sleep 0.05; done
[ "$(stat -c '%a %F' "$dir/s")" = '600 socket' ] || { echo "FAIL: the socket is $(stat -c '%a %F' "$dir/s")"; failed=1; }
if "$BITRAIN" dash --socket "$dir/s" 2>"$dir/err2"; then echo "FAIL: a socket twice"; failed=1; elif [ $? -ne 4 ]; then echo "FAIL: a socket in use: $(cat "$dir/err2")"; failed=1; fi
kill -9 "$pid"; wait "$pid" 2>/dev/null
"$BITRAIN" dash --socket "$dir/s" --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do grep -q socket "$dir/out" && break; sleep 0.05; done
grep -q socket "$dir/out" || { echo "FAIL: a stale socket: $(cat "$dir/err")"; failed=1; }
kill "$pid"; wait "$pid"; pid=""
[ ! -e "$dir/s" ] || { echo "FAIL: the socket stays behind"; failed=1; }

# If the port is used, the error contains the cause and the remedy.
"$BITRAIN" dash --port "$port" --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do grep -q port "$dir/out" && break; sleep 0.05; done
"$BITRAIN" dash --port "$port" 2>"$dir/err2"; [ $? -eq 4 ] || { echo "FAIL: a port in use: status $?"; failed=1; }
grep -q "in use by bitrain (pid $pid).*--port" "$dir/err2" || { echo "FAIL: a port in use: $(cat "$dir/err2")"; failed=1; }
SSH_CONNECTION='10.0.0.1 1 10.0.0.2 22' "$BITRAIN" dash --port 0 >"$dir/out" 2>"$dir/err2" &
far=$!
for _ in $(seq 200); do grep -q '^http' "$dir/out" && break; sleep 0.05; done
sleep 0.1
kill "$far"; wait "$far"
grep -qE "ssh -L ([0-9]+):127\.0\.0\.1:\1 $(hostname)" "$dir/err2" || { echo "FAIL: the ssh line: $(cat "$dir/err2")"; failed=1; }
[ $failed -eq 0 ] && echo "every hostile request was refused"
exit $failed
