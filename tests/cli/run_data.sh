#!/usr/bin/env bash
# `bitrain data` and `bitrain tokenizer` from end to end: text to tokens and back, JSONL, shards in parts, damage, no
# remaining files.
set -u
bad=0
fault() { echo "$*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export BITRAIN_STORE=$tmp/db/none.db XDG_DATA_HOME=$tmp/data HOME=$tmp
b() { "$BITRAIN" "$@" 2>err || fault "exit $? of: bitrain $*: $(cat err)"; [ ! -s err ] || fault "bitrain $* wrote to standard error: $(cat err)"; }
field() { grep -o "\"$2\":[^,}]*" "$1" | head -1 | cut -d: -f2 | tr -d '"'; }

awk 'BEGIN { split("the light and darkness was upon face of waters earth evening morning first day God called", w, " ");
             for (i = 1; i <= 30000; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%s%s", w[1 + int(x / 65536) % 16], x / 4096 % 13 < 1 ? ".\n" : " " } }' >prose.txt
mkdir -p books/two
cp prose.txt books/two/b.txt
head -c 5000 prose.txt >books/a.txt

# Two trainings give the same tokenizer.
b tokenizer train books --vocab 320 --out t.json >/dev/null
b tokenizer train --data books --vocab 320 --out u.json --json >report
cmp -s t.json u.json || fault "the same text gave two tokenizers"
[ "$(field report vocab)" = 320 ] || fault "train --json does not print 320 tokens: $(cat report)"
b tokenizer inspect t.json >about
grep -q 'vocabulary.*320 tokens: 63 merges, 1 special' about || fault "inspect prints: $(cat about)"
b tokenizer inspect t.json --json --text 'the light' >about
[ "$(field about hash)" = "$(field report hash)" ] || fault "two hashes of one tokenizer"

# The end of each file, which training holds out, is not read.
{ head -c 9500 prose.txt; printf 'QZ%.0s' {1..250}; } >ended.txt
b tokenizer train ended.txt --vocab 300 --out held.json --json >report
[ "$(field report val_frac)" = 0.05 ] || fault "tokenizer train does not report the share that it leaves out: $(cat report)"
b tokenizer train ended.txt --vocab 300 --val-frac 0 --out all.json >about
[ "$("$BITRAIN" tokenizer encode held.json --text QZQZQZ | wc -w)" = 6 ] || fault "the tokenizer has tokens of held-out text"
[ "$("$BITRAIN" tokenizer encode all.json --text QZQZQZ | wc -w)" -lt 6 ] || fault "--val-frac 0 does not read the end"

# Text is encoded and decoded.
b tokenizer encode t.json prose.txt >ids
"$BITRAIN" tokenizer decode t.json <ids | cmp -s - prose.txt || fault "decode(encode(text)) is not the text"
head -c 3000 /dev/urandom >noise
"$BITRAIN" tokenizer encode t.json <noise | "$BITRAIN" tokenizer decode t.json | cmp -s - noise || fault "decode(encode(noise)) is not the noise"
[ "$("$BITRAIN" tokenizer encode bytes --text AZ)" = '65 90' ] || fault "bytes of AZ"
[ "$("$BITRAIN" tokenizer decode bytes 65 90)" = AZ ] || fault "65 90 as bytes"

# Shards.
b data prepare books --tokenizer t.json --out books.bts --json >report
[ "$(field report documents)" = 2 ] || fault "prepare --json: $(cat report)"
[ "$(field report source_bytes)" = $(($(wc -c <prose.txt) + 5000)) ] || fault "prepare counts $(field report source_bytes) bytes"
"$BITRAIN" data prepare books --tokenizer t.json --out books.bts >out 2>err
[ $? -eq 4 ] || fault "prepare replaced a file unasked"
b data prepare books --tokenizer t.json --out books.bts --force >/dev/null
# Threads, and processes under mpirun, divide the work: the shard does not depend on their number.
b data prepare books --tokenizer t.json --threads 3 --out three.bts >/dev/null
cmp -s books.bts three.bts || fault "three threads wrote another shard"
mpirun -np 2 "$BITRAIN" data prepare books --tokenizer t.json --out ranks.bts >out 2>err || fault "mpirun data prepare: $(cat out err)"
cmp -s books.bts ranks.bts && [ "$(grep -c 'tokens of bpe' out)" = 1 ] || fault "two processes wrote another shard: $(cat out err)"
b data inspect books.bts --tokenizer t.json --json --sample 20 >about
[ "$(field about segments)" = 2 ] && [ "$(field about fits_tokenizer)" = true ] && [ "$(field about verified)" = true ] || fault "inspect --json: $(cat about)"
[ "$(field about tokens)" = "$(field report tokens)" ] || fault "tokens of prepare and inspect differ"
b data inspect books.bts books --no-verify >about
[ "$(wc -l <about)" -eq 4 ] || fault "inspect of a shard and a folder of two files: $(cat about)"

# A folder with a picture and a dangling link: both are skipped, counted and reported; --glob selects by name.
mkdir mixed
cp prose.txt mixed/a.txt
cp prose.txt mixed/notes.md
head -c 3000 /dev/zero >mixed/cover.jpg
ln -s nowhere.txt mixed/gone.txt
warned() { grep -q "^warning: $1 skipped (not text): .*$2" err || fault "the note about skipped files is: $(cat err)"; }
"$BITRAIN" data prepare mixed --out mixed.bts --json >report 2>err || fault "a picture in a folder stops prepare: $(cat err)"
[ "$(field report documents)" = 2 ] || fault "documents of a mixed folder: $(cat report)"
warned "2 files are" "mixed/cover.jpg (binary), ..."
"$BITRAIN" data prepare mixed --glob '*.txt' --out mixed.bts --force --json >report 2>err || fault "--glob: $(cat err)"
[ "$(field report documents)" = 1 ] || fault "documents of --glob '*.txt': $(cat report)"
warned "1 file is" "mixed/gone.txt (a link that leads nowhere)"
"$BITRAIN" tokenizer train mixed --glob '*.md' --vocab 300 --out m.json >out 2>err || fault "tokenizer --glob: $(cat err)"
BITRAIN_STORE=$tmp/mixed.d/m.db "$BITRAIN" train --data mixed --ranks 1 --threads 1 --dry-run >out 2>err || fault "a mixed folder cannot be trained on: $(cat err)"
warned "2 files are" "mixed/cover.jpg"
BITRAIN_STORE=$tmp/mixed.d/m.db "$BITRAIN" train --data mixed --glob '*.txt' --ranks 1 --threads 1 --dry-run >out 2>err || fault "train --glob: $(cat err)"
warned "1 file is" "mixed/gone.txt"

# JSONL in parts; bad lines are reported with their numbers.
for i in $(seq 1 200); do printf '{"id": %d, "meta": {"body": "document %d \\u00e9\\n"}}\n' "$i" "$i"; done >docs.jsonl
"$BITRAIN" data prepare docs.jsonl --field meta.body --shard-tokens 1000 --out docs.bts --json >report 2>err || fault "JSONL in parts: $(cat err)"
[ "$(cat err)" = 'note: keys of rows that are not used: id (200)' ] || fault "the note about unused keys is: $(cat err)"
# All other readers of rows report them too: tokenizer training, --val-data, eval --data.
"$BITRAIN" tokenizer train docs.jsonl --field meta.body --vocab 270 --out rows.json >out 2>err ||
    fault "a tokenizer of rows: $(cat err)"
[ "$(grep -c 'keys of rows that are not used: id (200)' err)" = 1 ] ||
    fault "the note of tokenizer train about unused keys is: $(cat err)"
seq 4000 >numbers.txt
keyed() { BITRAIN_STORE=$tmp/keyed.d/m.db "$BITRAIN" "$@" >out 2>err || fault "exit $? of $1: $(tail -n 2 err)"; }
keyed train --data numbers.txt --val-data docs.jsonl --set data.field=meta.body --tokenizer bytes --name keyed --steps 1 \
    --ranks 1 --threads 1 --batch-tokens 64 --set model.layers=1 --set model.d_model=32 --set model.heads=2 \
    --set model.kv_heads=2 --set model.d_ff=64 --set model.seq_len=32 --set train.eval_tokens=64
keyed query "SELECT title FROM events WHERE run = 'keyed'" --csv
grep -q 'validation data: keys of rows that are not used: id (200)' out || fault "of keys of --val-data that are not used the run records: $(cat out)"
keyed eval keyed --data docs.jsonl --field meta.body --threads 1
grep -q '^note: keys of rows that are not used: id (200)$' err || fault "the note of eval about unused keys is: $(cat err)"
[ "$(field report documents)" = 200 ] && [ "$(field report shards)" -gt 2 ] || fault "JSONL in parts: $(cat report)"
[ "$(ls docs-*.bts | wc -l)" = "$(field report shards)" ] && [ ! -e docs.bts ] || fault "files of the parts: $(ls docs*)"
b data inspect docs-*.bts --json >about
[ "$(grep -o '"documents":[0-9]*' about | awk -F: '{s += $2} END {print s}')" = 200 ] || fault "documents of the parts"
echo '{"id": 201}' >>docs.jsonl
"$BITRAIN" data prepare docs.jsonl --field meta.body --out bad.bts >out 2>err
[ $? -eq 6 ] && grep -q "docs.jsonl' line 201: no field 'meta.body'" err || fault "a line without the field: $(cat err)"
[ ! -e bad.bts ] || fault "a failed prepare left a shard"
"$BITRAIN" data prepare docs.jsonl --field meta.body --bad-rows skip --out bad.bts --json >report 2>err || fault "--bad-rows skip: $(cat err)"
[ "$(field report documents)" = 200 ] && grep -q "^warning: 1 of 201 rows are bad and left out; the first: 'docs.jsonl' line 201" err || fault "--bad-rows skip: $(cat report err)"

# A tokenizer omits bad rows, too.
"$BITRAIN" tokenizer train docs.jsonl --field meta.body --vocab 300 --out refused.json >report 2>err && fault "a tokenizer took a bad row"
"$BITRAIN" tokenizer train docs.jsonl --field meta.body --vocab 300 --bad-rows skip --out skipped.json >report 2>err || fault "tokenizer train --bad-rows skip: $(cat err)"
grep -q "^warning: 1 of 201 rows are bad and left out" err || fault "tokenizer train: the bad row is not reported: $(cat err)"
# A --dry-run of a training also reports keys that no reader uses.
for i in $(seq 200); do printf '{"text": "%s of some words", "score": 1}\n' $i; done >scored.jsonl
BITRAIN_STORE=$tmp/scored.d/m.db "$BITRAIN" train --data scored.jsonl --tokenizer bytes --ranks 1 --threads 1 --seq-len 32 --batch-tokens 64 --dry-run >out 2>err || fault "a rehearsal: $(cat err)"
[ "$(grep -c '^note: .*score' err)" = 1 ] || fault "train --dry-run does not report the key that it does not read: $(cat err)"

# Epochs of 101 rows of 64 bytes, 4 rows a step; one byte more is held out.
head -c 6465 prose.txt >epochs.txt
epochs() { BITRAIN_STORE=$tmp/epochs.d/m.db "$BITRAIN" train --data epochs.txt --set data.val_frac=0 --ranks 1 --threads 1 --seq-len 64 --batch-tokens 256 "$@" >out 2>err; }
printf 'num_train_epochs: 3\nwarmup_ratio: 0.1\nevals_per_epoch: 4\nsaves_per_epoch: 2\n' >epochs.yaml
epochs epochs.yaml --print-config || fault "epochs of another tool: $(cat err)"
for want in 'train.steps: 76 ' 'optim.warmup: 8 ' 'train.eval_every: 6 ' 'ckpt.every: 13 ' 'train.epochs: 3 '; do grep -qE "^(# )?$want" out || fault "3 epochs of 101 sequences: no $want: $(grep -E 'steps:|warmup:|every:|epochs:' out)"; done
cp out printed.yaml
epochs printed.yaml --print-config && grep -q '^# train.steps: 76 ' out || fault "a printed configuration with epochs: $(cat err)"
epochs --epochs 0.5 --print-config && grep -q '^# train.steps: 13 ' out || fault "half an epoch: $(grep steps: out; cat err)"
epochs --epochs 2 --steps 5 && fault "epochs and steps were taken"
grep -q 'give only one of them' err || fault "epochs and steps: $(cat err)"

# Damage.
printf '\377' | dd of=books.bts bs=1 seek=300 conv=notrunc 2>/dev/null
"$BITRAIN" data inspect books.bts >out 2>err
[ $? -eq 6 ] && grep -q "block 0 (bytes 128" err || fault "a damaged shard: $(cat err)"

# A killed `data prepare` leaves no shard or a complete one.
for i in $(seq 1 60); do cat prose.txt; done >large.txt
"$BITRAIN" data prepare large.txt --tokenizer t.json --out large.bts >out 2>err &
pid=$!
sleep 0.05
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
[ ! -e large.bts ] || "$BITRAIN" data inspect large.bts >/dev/null || fault "a killed prepare left half a shard"

# A full disk is reported.
if [ -w /dev/full ]; then
    "$BITRAIN" tokenizer encode t.json prose.txt >/dev/full 2>err
    [ $? -eq 1 ] && grep -q 'cannot write the output' err || fault "a full disk under encode: $(cat err)"
fi

# The built-in corpus, if its program is installed.
if command -v bible >/dev/null; then
    b data inspect builtin --json >about
    [ "$(field about tokens)" = 4137850 ] || fault "the built-in corpus has $(field about tokens) bytes"
    head -1 "$tmp/db/cache/builtin-kjv.txt" | grep -qx 'In the beginning God created the heaven and the earth.' || fault "the built-in corpus begins: $(head -1 "$tmp/db/cache/builtin-kjv.txt")"
    [ "$(ls "$tmp/db/cache")" = builtin-kjv.txt ] || fault "the cache holds: $(ls "$tmp/db/cache")"
fi
rm -rf "$tmp/db"
PATH=$tmp "$BITRAIN" data inspect builtin >out 2>err
[ $? -eq 3 ] && grep -q 'install bible-kjv or pass --data' err || fault "without the program: $(cat err)"
exit $bad
