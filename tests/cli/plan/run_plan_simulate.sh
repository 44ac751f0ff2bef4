#!/usr/bin/env bash
# ctest: ranks=2 timeout=240 labels=mpi
# bitrain plan --simulate: its output says that it is a simulation, larger clusters are not free, and impossible
# clusters are refused in one line.
. "$(dirname "$0")/../train_lib.sh"

number() { grep -o "\"$1\":[0-9.e+-]*" out | cut -d: -f2; }
ok plan --preset small --simulate 64x8 --link 25Gbit,5us --mtbf 8h --stragglers 0.05
says "SIMULATION 64 hosts x 8 ranks"
says "simulated"
says "Daly"
says "why        "
[ "$(grep -cE '^ *[0-9]+ +[0-9]+ ' out)" = 7 ] || fault "not 1, 2, 4 .. 64 hosts: $(cat out)"
# The plan prints the load during the measurement of the rates, and notes that a high load makes times too long.
grep -qE "^taken .*measured at a machine load of [0-9.]+; all hosts alike" out || fault "not at which load: $(grep ^taken out)"
# A busy machine measures in several calls; between two calls the missing rates are scaled from other shapes.
for _ in 1 2 3 4; do
    ok plan --preset small --simulate 64x8
    marked=$(grep -c "(scaled rates)" out)
    ok plan --preset small --simulate 64x8 --json
    scaled=$(grep -o '"scaled_rates":true' out | wc -l)
    [ "$scaled" = "$marked" ] && break
done
[ "$scaled" = "$marked" ] || fault "$marked layouts are marked as of scaled rates, not $scaled"
ok plan --preset small --simulate 1x1 --quiet
for f in "$tmp"/rates/*.json; do cp "$f" "$f.kept"; sed -i 's/"load":[0-9.e+-]*/"load":3.5/' "$f"; done
ok plan --preset small --simulate 1x1 --json
[ "$(number probe_load)" = 3.5 ] || fault "no load in JSON: $(number probe_load)"
ok plan --preset small --simulate 1x1
says "SIMULATION 1 host x 1 rank: "
says "warning    rates were measured under load 3.5, so times are pessimistic"
says "energy     "
for f in "$tmp"/rates/*.json; do sed -i 's/"load":[0-9.e+-]*/"load":0.2/' "$f"; done
ok plan --preset small --simulate 1x1
grep -q "^warning" out && fault "warns at a load of 0.2: $(grep ^warning out)"
for f in "$tmp"/rates/*.json.kept; do mv "$f" "${f%.kept}"; done
ok plan --preset small --simulate 16x4 --link 1Gbit,50us --json
grep -q '"simulation":true' out || fault "not labelled: $(cut -c1-200 out)"
slow=$(number tokens_per_s | sort -g | tail -1)
ok plan --preset small --simulate 16x4 --link 400Gbit,1us --json
awk -v a="$slow" -v b="$(number tokens_per_s | sort -g | tail -1)" 'BEGIN {exit !(b > 1.05 * a)}' || fault "a link 400 times as fast changes nothing"
# The same arguments give the same numbers.
cp out first
ok plan --preset small --simulate 16x4 --link 400Gbit,1us --json
cmp -s out first || fault "a simulation is not repeatable"
# Thousands of ranks are simulated quickly, because the rates are known.
start=$SECONDS
ok plan --preset small --simulate 512x8
[ $((SECONDS - start)) -le 60 ] || fault "4096 ranks take $((SECONDS - start)) s"

one_line() { # words, code, text
    local text=$1 want=$2; shift 2
    b plan "$@" >out 2>err
    local got=$?
    [ $got = "$want" ] || fault "exit $got, not $want, of: plan $*"
    grep -qF -- "$text" err || fault "plan $* prints: $(cat err)"
    [ "$(grep -vc '^measured' err)" = 1 ] || fault "more than a line: $(cat err)"
}
one_line "is not of the form RATE,LATENCY" 2 --simulate 4x2 --link fast
one_line "is not of the form HOSTSxRANKS" 2 --simulate many
one_line "is too large: a job has at most 65536 ranks" 2 --simulate 100000x8
one_line "--simulate 99999999999999999999x8 is too large" 2 --simulate 99999999999999999999x8
one_line "too little); would fit: " 1 --preset small --simulate 2x4 --memory 200MiB
# The message contains the missing amount and the remedy: the minimum for a rank and for a host, and the memory of a
# host.
grep -qE "no layout of 8 ranks fits: the least is [0-9.]+ [MG]iB a rank, [0-9.]+ MiB a host, which has 200(\.0*)? MiB \([0-9.]+ [MG]iB too little\)" err ||
    fault "not by how much: $(cat err)"
one_line "no layout of 512 ranks is possible" 2 --simulate 64x8 --batch-tokens 4096 --pp 1 --tp 1
# Rates of another build and a damaged file are reported, and rates are measured again.
refused_rates() { # text
    b plan --preset nano --simulate 4x4 >out 2>err || fault "exit $? with $1: $(cat err)"
    grep -qF -- "$1" err || fault "not reported ($1): $(cat err)"
    grep -q "^measured" err || fault "not measured again ($1): $(cat err)"
    [ "$(wc -l <err)" -le 3 ] || fault "more than is needed ($1): $(cat err)"
}
sed -i 's/"build":"[0-9a-f]*"/"build":"0123456789abcdef"/' "$tmp"/rates/*.json
refused_rates "they were measured with another build of this program"
for f in "$tmp"/rates/*.json; do head -c 200 "$f" >cut && cp cut "$f"; done
refused_rates "are not used: "
one_line "--islands was removed (the predictions" 2 --simulate 4x2 --islands 2
one_line "is not a size" 2 --simulate 4x2 --memory lots
one_line "--mtbf describes a simulated cluster" 2 --mtbf 8h
one_line "--write is of layouts on this machine" 2 --simulate 4x2 --write x.yaml
one_line "--ranks is of layouts on this machine" 2 --simulate 4x2 --ranks 3
one_line "--trial is of layouts on this machine" 2 --simulate 4x2 --trial 3
# An empty value is not the same as an omitted option.
for word in simulate link memory mtbf write; do one_line "--$word is empty (leave it out, or: " 2 --simulate 4x2 --$word=; done
# The units are valid, but the numbers exceed those of any cluster.
one_line "is outside the possible range of a link (1 kbit to 1000 Tbit per second, a latency of at most 60 s)" 2 --simulate 4x2 --link 1e300Gbit,1us
one_line "--memory '0.5kB' is not a size" 2 --simulate 4x2 --memory 0.5kB
one_line "is outside the possible range of memory" 2 --simulate 4x2 --memory 1e300TiB
one_line "--mtbf '1e-9s' is outside the possible range" 2 --simulate 4x2 --mtbf 1e-9s
one_line "--stragglers must be a number from 0 to 10, not 'nan'" 2 --simulate 4x2 --stragglers nan
one_line "--price must be a number from 0 to 1000000, not '-3'" 2 --simulate 4x2 --price -3
# A job that always fails before its start is complete is reported instead of a time.
ok plan --preset small --simulate 4x2 --mtbf 2s
says "5000 steps would hardly ever be done: the job fails every 2.0 s"
finish
