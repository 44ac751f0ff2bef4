#!/usr/bin/env bash
# ctest: timeout=120
# bench train prints one JSON object with every field that help documents, on one rank and on two; errors of ranks
# appear as one line.
set -u
bad=0
fault() { echo "$*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_DATA_HOME=$tmp HOME=$tmp
tiny="--set model.layers=2 --set model.d_model=64 --set model.heads=4 --set model.kv_heads=2 --set model.d_ff=128 --seq-len 32 --batch-tokens 256 --threads 1"

value() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$tmp/out"; }
check() {
    [ "$(wc -l <"$tmp/out")" -eq 1 ] || fault "$1: not one line: $(cat "$tmp/out")"
    for key in tokens_per_s mfu step_ms data_ms fwd_ms bwd_ms comm_exposed_ms wait_ms optim_ms other_ms memory_mib loss params isa threads ranks batch_tokens; do
        grep -q "\"$key\":" "$tmp/out" || fault "$1: no $key in $(cat "$tmp/out")"
    done
    [ "$(value batch_tokens)" = 256 ] && [ "$(value threads)" = 1 ] && [ "$(value steps)" = 3 ] || fault "$1: wrong sizes: $(cat "$tmp/out")"
    awk -v t="$(value tokens_per_s)" -v lo="$(value tokens_per_s_min)" -v hi="$(value tokens_per_s_max)" -v s="$(value step_ms)" -v l="$(value loss)" -v r="$(value memory_mib)" \
        'BEGIN {exit !(t > 0 && lo <= t && t <= hi && s > 0 && l > 1 && l < 6 && r > 1)}' || fault "$1: figures that cannot be: $(cat "$tmp/out")"
}

"$BITRAIN" bench train $tiny --steps 3 --set train.reproducible=true >"$tmp/out" 2>"$tmp/err" || fault "reproducible: exit $?: $(cat "$tmp/err")"
grep -Eq 'reproducible +costs [+-][0-9.]+ % of a plain step, [+-][0-9.]+ % of its processor time' "$tmp/out" || fault "the cost of the reproducible mode is not printed: $(cat "$tmp/out")"
# Losses of two layouts: int8 gradients share scales between the tokens of a micro-batch, and these micro-batches
# differ.
"$BITRAIN" bench train $tiny --grad float --steps 3 --json >"$tmp/out" 2>"$tmp/err" || fault "alone: exit $?: $(cat "$tmp/err")"
[ -s "$tmp/err" ] && fault "alone: prints on standard error: $(cat "$tmp/err")"
check alone
alone=$(value loss)
"$BITRAIN" bench train $tiny --grad float --steps 3 --ranks 2 --json >"$tmp/out" 2>"$tmp/err" || fault "two ranks: exit $?: $(cat "$tmp/err")"
check "two ranks"
[ "$(value ranks)" = 2 ] || fault "two ranks: ran on $(value ranks)"
awk -v a="$alone" -v b="$(value loss)" 'BEGIN {d = a - b; exit !(d < 1e-3 * a && -d < 1e-3 * a)}' || fault "loss $alone alone, $(value loss) on two ranks"

"$BITRAIN" bench train $tiny --steps 2 >"$tmp/out" 2>&1 || fault "text: exit $?"
grep -q 'speed .*tokens' "$tmp/out" || fault "text: $(cat "$tmp/out")"

# The built-in text is created in the folder that a run would use, although it did not exist.
"$BITRAIN" bench train $tiny --data builtin --tokenizer bytes --steps 2 --ranks 2 >"$tmp/out" 2>&1 || fault "built-in text: exit $?: $(cat "$tmp/out")"
[ -s "$tmp/bitrain/cache/builtin-kjv.txt" ] || fault "no built-in text in $tmp/bitrain/cache"
(mkdir "$tmp/here" && cd "$tmp/here" && "$BITRAIN" bench train $tiny --data builtin --tokenizer bytes --steps 2 --store m.db) >"$tmp/out" 2>&1 ||
    fault "beside a database of this folder: exit $?: $(cat "$tmp/out")"
[ -s "$tmp/here/cache/builtin-kjv.txt" ] || fault "no built-in text in $tmp/here/cache"
env -u HOME -u XDG_DATA_HOME "$BITRAIN" bench train $tiny --steps 2 >"$tmp/out" 2>&1 || fault "without a home: exit $?: $(cat "$tmp/out")"

# bench learn's bits per byte equal those of the run's own validation.
head -c 400000 /dev/urandom | base64 -w 60 >"$tmp/text.txt"
# The end of the text has longer tokens than the beginning.
cat "$BT_SRC"/engine/*.md >>"$tmp/text.txt"
"$BITRAIN" bench learn --seeds 1 --corpus text="$tmp/text.txt" --recipe 'x: data.tokenizer=bpe:512' --store "$tmp/bytes.db" --with train.steps=3 train.batch_tokens=256 \
    launch.ranks=1 launch.threads=1 model.layers=1 model.d_model=32 model.heads=2 model.kv_heads=2 model.d_ff=64 model.seq_len=32 --json >"$tmp/out" 2>"$tmp/err" ||
    fault "learn: exit $?: $(cat "$tmp/err")"
said=$("$BITRAIN" query --store "$tmp/bytes.db" "SELECT json_extract(body, '\$.bits_per_byte') FROM events WHERE kind = 'evaluation' ORDER BY seq DESC LIMIT 1" --csv | tail -n 1)
awk -v a="$said" -v b="$(value bits_per_byte)" 'BEGIN {d = a - b; exit !(a > 1 && d < 1e-6 && -d < 1e-6)}' || fault "the run prints $said bits per byte, bench learn $(value bits_per_byte)"

# The times of the profile add up to the step: every operation once, all remaining time under "other"; measuring the
# peaks does not count as memory.
"$BITRAIN" bench train $tiny --steps 4 --profile >"$tmp/out" 2>&1 || fault "profile: exit $?"
awk '/ of a step/ { n[$1]++; for (i = 1; i < NF; i++) { if ($(i + 1) == "%" && !($1 in share)) share[$1] = $i; if ($(i + 1) == "calls,") calls[$1] = $i } last = $1 }
     / peak, all ranks/ { mib = $2 }
     END { for (k in n) { if (n[k] != 1) exit 1; sum += share[k] }
           exit !(sum > 99 && sum < 101 && last == "other" && calls["tern_fwd"] == 14 && calls["tern_dx"] + calls["tern_dx8"] == 14 && mib < 150) }' "$tmp/out" ||
    fault "profile: figures that cannot be: $(cat "$tmp/out")"
"$BITRAIN" bench train $tiny --steps 1 --profile --json >"$tmp/out"
grep -q '"op":"tern_fwd","ms":' "$tmp/out" || fault "no operations in the JSON of a profile"
# The processor time of the phases is above zero and at most the elapsed time.
sed 's/.*"processor":{\([^}]*\)}.*/\1/' "$tmp/out" | tr , '\n' | awk -F: -v s="$(value step_ms)" '{sum += $2} /"bwd_ms"/ {bwd = $2} END {exit !(bwd > 0 && sum < 1.5 * s)}' || fault "processor time of phases: $(cat "$tmp/out")"
"$BITRAIN" train $tiny --data synth:chain --ranks 1 --steps 4 --store "$tmp/p.db" --profile >"$tmp/out" 2>&1 || fault "train --profile: exit $?: $(cat "$tmp/out")"
grep -q 'tern_fwd .* of a step, .* calls, .* % of' "$tmp/out" || fault "train --profile prints no operations: $(cat "$tmp/out")"

"$BITRAIN" bench train $tiny --ranks 2 --data /nowhere/at.all >"$tmp/out" 2>"$tmp/err"
code=$?
[ $code -ne 0 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q "/nowhere/at.all" "$tmp/err" || fault "missing data on two ranks: exit $code, '$(cat "$tmp/err")'"
"$BITRAIN" bench train $tiny --ranks 3 2>"$tmp/err" >/dev/null
[ $? -eq 2 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] || fault "three ranks for eight sequences: $(cat "$tmp/err")"
# bench comm prints every codec and gather by size, on two ranks, with the bytes that the codecs send.
"$BITRAIN" bench comm $tiny --json >"$tmp/out" 2>"$tmp/err" || fault "comm: exit $?: $(cat "$tmp/err")"
rows=$(grep -o '{"what"[^}]*}' "$tmp/out")
[ "$(wc -l <<<"$rows")" -eq 33 ] || fault "comm: not 33 rows: $(cat "$tmp/out")"
# sent WHAT/CODEC: prints the bytes that a rank sends for 4 MiB of fp32
sent() { grep "\"what\":\"${1%/*}\",\"codec\":\"${1#*/}\",\"bytes\":4194304," <<<"$rows" | sed 's/.*"bytes_wire":\([0-9.]*\).*/\1/'; }
for pair in exchange/none:4194304 exchange/bf16:2097152 exchange/int8:1064984 exchange/ternary:229400 exchange/sign:188440 exchange/topk:131096 \
    gather/fp32:2097152 gather/bf16:1048576 gather/codes:131084; do
    awk -v got="$(sent "${pair%:*}")" -v want="${pair#*:}" 'BEGIN {exit !(got >= want && got < want * 1.001 + 300)}' || fault "comm: ${pair%:*} sends $(sent "${pair%:*}") bytes, not ${pair#*:}"
done
awk -v exact="$(sent "exchange/int8 exact")" -v flips="$(sent gather/flips)" 'BEGIN {exit !(exact < 1000000 && flips < 13000 && flips > 5000)}' || fault "comm: $(sent "exchange/int8 exact") and $(sent gather/flips) bytes of exact int8 and flips"
awk 'BEGIN {RS = "}"} /"ms":/ && !/"ms":[0-9]/ {exit 1}' <<<"$rows" || fault "comm: a row without a time: $rows"
# The speed of each codec, and the link up to which it saves time, computed from the other figures (for sign including
# the encoding of the returning sums).
codecs=$(grep -o '{"codec":"[a-z0-9]*","bits"[^}]*}' "$tmp/out")
[ "$(wc -l <<<"$codecs")" -eq 5 ] || fault "comm: not 5 codecs: $(cat "$tmp/out")"
grep -q '"codec":"sign","bits":1.125,' <<<"$codecs" || fault "comm: sign has no 1.125 bits: $codecs"
awk -F'[:,}]' '{ bits = $4; e = $6; d = $8; a = $10; link = $12; want = bits / 8 / (4 / e + 4 / d + 2 / a); if ($2 == "\"sign\"") want = link; exit !(e > 1e6 && d > 1e6 && a > 1e6 && link > 0.99 * want && link < 1.01 * want) }' <<<"$codecs" ||
    fault "comm: rates of codecs that cannot be: $codecs"
"$BITRAIN" bench comm $tiny --ranks 1 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && grep -q "needs --ranks 2 or more" "$tmp/err" || fault "comm on one rank: $(cat "$tmp/err")"
# bench learn: two recipes on a corpus; a curve's last point is the run's last validation; recorded runs are not
# repeated.
seq 1 6000 | sed 's/$/ is a number/' >"$tmp/words.txt"
learn() {
    "$BITRAIN" bench learn --seeds 1 --goal "$1" --recipe 'default:' 'muon: optim.name=muon train.batch_tokens=128' --corpus words="$tmp/words.txt" --store "$tmp/learn.db" \
        --with model.layers=2 model.d_model=64 model.heads=4 model.kv_heads=2 model.d_ff=128 model.seq_len=32 train.batch_tokens=256 train.steps=4 \
        train.eval_every=2 train.eval_tokens=512 launch.ranks=1 launch.threads=1 "${@:2}"
}
# A run that was stopped continues.
steps_of() { "$BITRAIN" query --store "$tmp/learn.db" --csv "SELECT count(*) FROM steps WHERE run = 'default.words.1'" 2>/dev/null | tail -n 1; }
export BITRAIN_TEST_SLOW=0:400
learn 99 --json >"$tmp/out" 2>"$tmp/err" &
for i in $(seq 200); do [ "$(steps_of)" -gt 0 ] 2>/dev/null && break; sleep 0.05; done
kill -TERM "$(pgrep -P $! -x bitrain)" || fault "learn ended before it was stopped"
wait $!
[ $? -eq 143 ] && grep -q "stopped after 0 of 2 runs; run the same command to continue" "$tmp/err" || fault "learn was stopped by TERM: $(cat "$tmp/err")"
unset BITRAIN_TEST_SLOW
[ "$(steps_of)" -lt 4 ] || fault "the run was complete before it was stopped"
learn 99 --json >"$tmp/out" 2>"$tmp/err" || fault "learn: exit $?: $(cat "$tmp/err")"
[ "$(grep -o '"recipe":"[a-z]*","settings"' "$tmp/out" | wc -l)" -eq 2 ] && [ "$(grep -o '"tokens":[0-9]*' "$tmp/out" | tr -d '\n')" = '"tokens":512"tokens":1024"tokens":256"tokens":512' ] ||
    fault "learn: $(cat "$tmp/out")"
want=$("$BITRAIN" query --store "$tmp/learn.db" --json "SELECT val_loss / ln(2) AS bits FROM steps WHERE run = 'muon.words.1' AND step = 3" | grep -o '[0-9]\.[0-9]*' | head -1)
awk -v got="$(grep -o '"bits_per_byte":[0-9.]*' "$tmp/out" | tail -1)" -v want="$want" 'BEGIN {sub(/.*:/, "", got); d = got - want; exit !(want > 1 && d < 1e-6 && -d < 1e-6)}' ||
    fault "learn: its last loss is not the recorded $want: $(cat "$tmp/out")"
learn 99 --json 2>"$tmp/err" | cmp -s - "$tmp/out" || fault "learn: another answer of the same records: $(cat "$tmp/err")"
[ "$("$BITRAIN" query --store "$tmp/learn.db" "SELECT 'n', count(*) FROM runs" | tail -1 | tr -dc 0-9)" = 2 ] || fault "learn did its runs again"
learn 0.5 --curves "$tmp/c.tsv" >"$tmp/out" 2>"$tmp/err" || fault "learn, a table: exit $?"
grep -q '^# muon: optim.name=muon train.batch_tokens=128$' "$tmp/c.tsv" && [ "$(grep -c '^muon.words.1.[0-9.]*.512.[0-9.]*$' "$tmp/c.tsv")" = 1 ] &&
    "$BITRAIN" plot --curves "$tmp/c.tsv" --json | grep -q '"name":"muon","seeds":1,"points":\[{[^]]*"tokens":512,' || fault "learn: curves: $(cat "$tmp/c.tsv")"
grep -Eq '^muon +words +[0-9.]+ +- +[+-][0-9.]+ % +- +[0-9.]+ +\|.* - +- +-$' "$tmp/out" || fault "learn: a goal that was not reached: $(cat "$tmp/out")"
# Equal minutes: each recipe makes as many steps as fit according to its short run, which is not recorded; it is
# compared with the first recipe, seed by seed.
learn 0.5 --seeds 2 --minutes 0.01 --store "$tmp/minutes.db" --json >"$tmp/out" 2>"$tmp/err" || fault "learn, minutes: exit $?: $(cat "$tmp/err")"
sed -n 's/^\([a-z]*\): \([0-9.]*\) ms a step, \([0-9]*\) steps in 0.01 minutes$/\1 \2 \3/p' "$tmp/err" >"$tmp/steps"
[ "$(wc -l <"$tmp/steps")" -eq 2 ] || fault "learn, minutes: $(cat "$tmp/err")"
while read -r recipe ms steps; do
    awk -v ms="$ms" -v n="$steps" 'BEGIN { want = 600 / ms; d = n - want; exit !(n == 20 && want <= 20.5 || d < 0.01 * want + 1 && -d < 0.01 * want + 1) }' || fault "learn, minutes: $recipe has $steps steps of $ms ms"
    [ "$("$BITRAIN" query --store "$tmp/minutes.db" --csv "SELECT group_concat(steps, ' ') FROM runs WHERE run LIKE '$recipe.%'" | tail -n 1)" = "$steps $steps" ] || fault "learn, minutes: $recipe has not $steps steps"
done <"$tmp/steps"
sqlite3 :memory: "WITH r AS (SELECT value ->> 'recipe' AS recipe, value ->> 'seed' AS seed, value -> 'curve' ->> '\$[#-1].bits_per_byte' AS bits FROM json_each(readfile('$tmp/out'), '$.runs')),
    d AS (SELECT b.bits / a.bits - 1 AS d FROM r a JOIN r b USING (seed) WHERE a.recipe = 'default' AND b.recipe = 'muon'), s AS (SELECT value FROM json_each(readfile('$tmp/out'), '$.summary') WHERE value ->> 'recipe' = 'muon')
    SELECT count(*) = 2 AND abs(avg(d) - (s.value ->> 'against_first_frac')) < 1e-9 AND abs((max(d) - min(d)) / 2 - (s.value ->> 'against_first_frac_error')) < 1e-9 FROM d, s" | grep -qx 1 ||
    fault "learn: against the first recipe: $(cat "$tmp/out")"
refused() { [ "$1" -eq 2 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q "$2" "$tmp/err" || fault "learn, '$2': exit $1, $(cat "$tmp/err")"; }
"$BITRAIN" bench learn --recipe muon 2>"$tmp/err"; refused $? "is not 'NAME: key=value"
"$BITRAIN" bench learn --recipe 'a:' 'a: x=1' 2>"$tmp/err"; refused $? "'a' is there twice"
"$BITRAIN" bench learn --corpus perl 2>"$tmp/err"; refused $? "is not NAME=PATH"
"$BITRAIN" bench learn --recipe 'b: optim.nam=muon' 2>"$tmp/err"; refused $? "recipe 'b': .*optim.nam"
"$BITRAIN" bench decode --preset nano --tokens 8 --json >"$tmp/out" 2>"$tmp/err" || fault "decode: exit $?: $(cat "$tmp/err")"
awk -v t="$(value tokens_per_s)" -v p="$(value packed_ms)" -v all="$(value token_ms)" -v b="$(value packed_bytes)" 'BEGIN {exit !(t > 1 && p > 0 && p < all && b == 6 * (4 * 192 * 64 + 2 * 512 * 64 + 192 * 128))}' ||
    fault "decode: figures that cannot be: $(cat "$tmp/out")"
"$BITRAIN" bench decode --preset nano --tokens 999 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && grep -q 256 "$tmp/err" || fault "decode beyond the context: $(cat "$tmp/err")"
"$BITRAIN" bench tran >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && grep -q "did you mean 'train'" "$tmp/err" || fault "wrong verb: $(cat "$tmp/err")"
"$BITRAIN" bench >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] || fault "no verb"
exit $bad
