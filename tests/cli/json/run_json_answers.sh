# ctest: timeout=100
# The output of --json: exact for synthetic runs and files, and only the keys where it contains measured numbers. Some
# commands are also compared as text, because one function writes both. BT_UPDATE=1 in the environment writes the golden
# file.
set -u
. "$BT_SRC/tests/cli/train_lib.sh"
export TZ=UTC
golden=$BT_SRC/tests/cli/json/json_answers.txt
make=$BT_BIN/tests/t.store.synth_runs
"$make" "$BITRAIN_STORE" base-1 ranks=4 steps=300 || fault "base-1"
"$make" "$BITRAIN_STORE" abl-3 ranks=4 straggler=2 phase=data_ms excess=0.5 fail_at=120 resume_from=100 down_s=4 || fault "abl-3"
"$make" "$BITRAIN_STORE" cut ranks=2 steps=100 fail_at=60 || fault "cut"
for i in 1 2 3 4 5 6 7 8; do echo "a book of words, number $i: some text to read & to measure"; done >a.txt
printf '{"text":"one row"}\n{"text":"another row"}\n' >b.jsonl
ok train "${tiny[@]}" --ranks 1 --steps 2 --name tiny --quiet

# Objects and arrays end lines, so that a difference is near its key.
members() { sed 's/[]}],/&\n/g' out | sed "s|$tmp|TMP|g; s|$HOSTNAME|HOST|g; s|\"rev\":[0-9]*|\"rev\":N|" | fold -w 150 | sed "s| *\$||"; }
keys() { grep -oE '"[A-Za-z_0-9.]+":' out | awk '!seen[$0]++' | paste -sd' ' | fold -sw 150 | sed 's| *$||'; }
text() { sed "s|$tmp|TMP|g; s|$HOSTNAME|HOST|g; s| *\$||" out; }
# answer members|keys|text CODE WORDS...: compares the output in this form
answer() {
    local how=$1 want=$2; shift 2
    echo "== bitrain $* -> $want"
    code "$want" "$@"
    $how
}
{
    answer members 0 runs loss --json
    answer keys 0 runs run:base --json
    answer members 0 show abl-3 --json
    answer members 5 compare base-1 abl-3 cut --json --fail-if 'loss > -50% @ tokens=81920' 'tokens_per_s < -1%'
    answer members 0 compare run:a --group-by optim.lr,model.layers --json
    answer members 0 autopsy abl-3 --all --json
    answer members 0 autopsy cut --json
    answer members 0 query 'SELECT run, steps, null AS no FROM runs ORDER BY run LIMIT 2' --json
    answer members 0 query 'SELECT run, steps FROM runs ORDER BY run' --json-table
    answer keys 0 plot abl-3 loss --json
    answer members 0 tokenizer train a.txt --vocab 270 --out t.json --json | grep -v seconds
    answer members 0 tokenizer inspect t.json --text 'a book' --json --top 3
    answer members 0 tokenizer encode t.json --text 'a book' --json
    answer members 0 data prepare a.txt --tokenizer t.json --out a.bts --json | grep -v seconds
    answer members 0 data inspect a.bts a.txt b.jsonl --tokenizer t.json --sample 20 --json
    answer keys 0 doctor --quick --json
    answer text 5 compare base-1 abl-3 cut --fail-if 'loss > -50% @ tokens=81920' 'tokens_per_s < -1%'
    answer text 0 compare run:a --group-by optim.lr
    answer text 0 autopsy abl-3 --all
    answer text 0 tokenizer inspect t.json --text 'a book' --top 3
    answer text 0 data inspect a.bts a.txt b.jsonl --tokenizer t.json --sample 20
    answer keys 0 plan --preset small --simulate 4x2 --json
    answer keys 0 eval tiny --json
    answer keys 0 generate tiny --prompt 'a book' --tokens 3 --json
    answer keys 0 convert tiny --to hf -o hf --json
    answer keys 0 bench decode --preset nano --tokens 4 --json
} >answers
[ -n "${BT_UPDATE:-}" ] && cp answers "$golden"
diff -u "$golden" answers || fault "answers differ (BT_UPDATE=1 writes $golden)"
[ $faults = 0 ]
