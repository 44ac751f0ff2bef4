#!/usr/bin/env bash
# Bad input, as a table: each case gives one line on standard error, the right exit code and no crash; standard output
# is empty unless a report found something (exit code 5).
# Rows: exit code | words after 'bitrain' | text that the line must contain. {tmp} is an empty folder, {store} a
# database that does not exist, {junk} a binary file of no format, {empty} an empty file, {short} a text of 17 bytes,
# {conf} a configuration file with a misspelt key.
# Every command of 'bitrain help' needs a row.
set -u
rows=$(cat <<'END'
2 | hlep                                        | unknown command 'hlep' (did you mean 'help'?)
2 | stop book                                   | did you mean 'bitrain ctl RUN stop'?
2 | ps                                          | did you mean 'bitrain runs state:running'?
2 | log book                                    | did you mean 'bitrain logs RUN'?
2 | delete book                                 | did you mean 'bitrain runs rm RUN'?
2 | chat book                                   | did you mean 'bitrain serve RUN'?
2 | version                                     | did you mean 'bitrain --version'?
2 | run book.txt                                | did you mean 'bitrain train --data FILE'?
2 | train help                                  | did you mean '--help'?
2 | dash book                                   | the dashboard shows all runs
2 | dash --host localhost:80                    | (--host localhost --port 80)
2 | serve book --listen localhost:80            | (--listen localhost --port 80)
2 | top a b                                     | top shows one run
2 | generate book 'This License'                | unexpected text 'This License' (--prompt
2 | eval book {short}                           | (--data gives the text)
2 | sweep --data {tmp}/book.txt                 | settings of its runs are lines of the sweep's file
2 | report book --lr 1                          | unknown option '--lr' (it is one of 'bitrain train')
2 | convert {tmp} --to hf -o x.gguf             | 'x.gguf' is the name of a GGUF file
2 | ctl stop book                               | did you mean 'bitrain ctl book stop'?
2 | zebra                                       | 'bitrain help' lists the commands
2 | help zebra                                  | no help about 'zebra'
2 | help --markdwon                             | did you mean '--markdown'?
2 | help --completion ksh                       | only bash, zsh and fish
2 | help train topics                           | unexpected word 'topics'
2 | report                                      | no run given
3 | report nosuch -o {tmp}/r.html                | none.db
3 | logs nosuch                                 | none.db
2 | logs --tail -1                              | --tail must be a whole number from 0
2 | dash --port 70000                           | --port must be a whole number from 0 to 65535
1 | dash --port 0 --host 192.0.2.1              | cannot listen on 192.0.2.1
2 | plan --rows 0                               | --rows must be a whole number from 1
2 | plan --rankz 4                              | did you mean '--ranks'?
2 | plan --preset nanno                         | did you mean 'nano'?
2 | plan --ranks 32 --micro-batch 3             | no layout of 32 ranks is possible
2 | plan rates-probe                            | is started by 'bitrain plan' only
2 | plan layout-race 10 keep                    | is started by 'bitrain plan' only
2 | plan --trial -1                             | --trial must be a number from 0 to 600
2 | plan --watts -5                             | --watts must be a number from 0 to
2 | plan --simulate 4x2 --stragglers 11         | --stragglers must be a number from 0 to 10
2 | plan --simulate 0x8                         | is not of the form HOSTSxRANKS, hosts times ranks on each, such as 64x8
2 | plan --simulate 4000000000x8                | is too large: a job has at most 65536 ranks
2 | plan --simulate 1x5000                      | 1024 on a host
2 | plan --simulate 4x2 --link 25Gbit           | is not of the form RATE,LATENCY of a host's link, such as 25Gbit,5us or 3GB,1ms
2 | plan --simulate 4x2 --link 0Gbit,5us        | --link '0Gbit,5us' is not of the form RATE,LATENCY
2 | plan --simulate 4x2 --mtbf never            | --mtbf 'never' is not a time such as 90s, 30m, 8h or 2d
2 | plan --simulate 4x2 --memory 64             | --memory '64' is not a size such as 64GiB
2 | plan --simulate 4x2 --hosts {conf}          | --simulate is of hosts that are not here (leave --hosts out)
2 | train --stpes 5                             | did you mean '--steps'?
2 | train --save-every 5                        | did you mean '--ckpt-every'?
2 | train --config {conf}                       | it is given as an argument: bitrain train FILE.yaml
2 | train --seed abc                            | from 0 to 9007199254740992
2 | train --ranks 1 --tp 2                      | does not divide the 1 ranks (use 2 ranks)
2 | train --minutes 1 --steps 5                 | train.minutes and train.steps determine the same value: give only one of them
2 | train --minutes 1 --tokens 5k               | train.minutes and train.tokens determine the same value
2 | train --minutes 1 --epochs 2                | train.minutes and train.epochs determine the same value
2 | train --minutes 1 --data synth:chain        | --minutes with synthetic data is not possible
2 | train --minutes 1 --hosts {conf}            | --minutes with --hosts is not possible
2 | train --minutes 0.001 --data {tmp}/book.txt | --minutes 0.001 is too short
2 | plan --minutes 5                            | --minutes is of train (bitrain train --minutes 5 --dry-run
2 | train --steps many                          | --steps must be a whole number from 0
2 | train --set optim.lrr=1                     | did you mean 'optim.lr'?
2 | train {conf}                                | conf.yaml:4: unknown option 'optim.lrr' (did you mean 'optim.lr'?)
3 | train {tmp}/none.yaml                       | none.yaml' does not exist ('bitrain train --print-config' prints one to start with)
2 | train {junk}                                | junk
1 | train {tmp}                                 | Is a directory
2 | train {conf} other.yaml                     | unexpected word 'other.yaml'
2 | train nano                                  | 'nano' is a preset, not a configuration file (did you mean '--preset nano'?)
2 | train {tmp}/book.txt                        | is data, not a configuration file (did you mean '--data
2 | train --preset nanno                        | did you mean 'nano'?
2 | train --ranks 3                             | use 2 or 4 ranks, or --batch-tokens 3840 or 4608
2 | train --ranks 32                            | more data-parallel ranks (32) than sequences in a step (16
2 | train --ranks 2 --dp-replicate 3            | = 3 ranks, but the job has 2 (use 3 ranks, or --dp-replicate 2)
2 | train --ranks 4 --tp 4                      | --tp 4 does not divide model.heads = 6 (use --tp 2)
2 | train --preset small --ranks 3 --tp 3       | --tp 3 does not divide model.heads = 8 (use --tp 2 or 4)
2 | train --ranks 2 --tp 2 --set model.d_ff=511 | --tp 2 does not divide model.d_ff = 511
2 | train --ranks 3 --tp 2                      | does not divide the 3 ranks (use 2 or 4 ranks)
2 | train --preset base --ranks 6 --tp 6 --set train.reproducible=true --set model.kv_heads=12 --set model.d_ff=2052 | cannot share out the 4 parts of this model, 1, 2, 4, ... to a rank (use --tp 4, or train.parts=6
2 | train --ranks 3 --tp 3 --set train.reproducible=true --set model.d_ff=510 | use --tp 2, or train.parts=6 in all runs to be compared
2 | train --ranks 4 --dp-shard 2                | --dp-shard 2 needs --zero 1, 2 or 3
2 | train --ranks 4 --dp-shard 3 --zero 2       | use 3 or 6 ranks
2 | train --ranks 4 --zero 3 --dp-replicate 4   | use --dp-shard 2, or leave --dp-replicate out
2 | train --ranks 1024 --zero 1 --batch-tokens 262144 --tokenizer bytes | more shards than blocks of 4096 parameters, of which the model has 662 (use --dp-shard 512)
2 | train --grad int8 --set model.linear=dense | use --grad float
2 | train --ranks 2 --tp 2 --seq-len 1 --batch-tokens 8 --micro-batch 1 | fewer than ranks to share them (use mesh.sequence=false, or --seq-len 2)
2 | train --ranks 8 --pp 8                      | more pipeline stages than the 6 layers of the model (use --pp 6)
2 | train --precision fp16 --set train.loss_scale=3 | use 2 or 4
2 | train --ranks 3 --balance 1,2               | has 2 shares, but there are 3 data-parallel ranks
2 | train --seq-len 300                         | use --batch-tokens 3900 or 4200
2 | train --set model.heads=5                   | model.heads 5 does not divide model.d_model 192
2 | train --micro-batch 3 --ranks 1             | train.micro_batch 3 does not divide the 16 sequences
2 | train --isa avx513                          | did you mean 'avx512'?
2 | train --name 'No Good'                      | run name 'No Good' is not allowed
2 | train --set model.vocab=100                 | too small for the byte tokenizer
2 | train --steps 5 --tokens 1M                 | give one of them
3 | train --data {tmp}/none.txt                 | none.txt': No such file or directory
6 | train --data {junk}                         | binary
2 | train --data {empty}                        | the data has 0 tokens
2 | train --data {tmp}                          | folder
2 | train --data {short}                        | one sequence needs
2 | train --data synth:nonsense                 | nonsense
3 | train --tokenizer {tmp}/none.json           | none.json
3 | train --hosts {tmp}/none                    | cannot read host file
2 | train --hosts {empty} --data synth:chain    | names no host
1 | train --hosts {tmp} --data synth:chain      | a folder?
3 | train --resume nosuch                       | none.db
2 | train --continue                            | --continue needs --name
2 | train --continue --name a --resume b        | give only one of them
1 | train --store /proc/none/x.db               | /proc/none
1 | train --out /proc/none --data synth:chain   | /proc/none
1 | train --store /proc/none/x.db --data synth:chain --out {tmp}/new/deep/run | cannot create folder '/proc/none'
1 | train --data synth:chain --out {tmp}/new/$(printf %0300d 0) | File name too long
6 | train --store {junk} --data synth:chain     | junk
3 | top nosuch                                  | none.db
2 | top --screen nonsense                       | nonsense
2 | ctl last                                    | ctl needs a run and a verb
3 | ctl last pause                              | none.db
2 | sweep                                       | no file given
3 | sweep {tmp}/none.yaml                       | none.yaml' ('bitrain sweep --help' shows one)
2 | sweep {empty}                               | the space is empty
3 | compare --group-by nonsense                 | none.db
2 | show                                        | no run given
3 | show last                                   | none.db
2 | autopsy                                     | no run given
3 | autopsy last                                | none.db
2 | drill --quick --elastic 1:2                 | two drills
2 | drill --elastic 2                           | MIN:MAX
2 | compare one                                 | two runs at least
2 | compare one two --paired run.seed           | give --group-by
3 | compare one two                             | none.db
2 | plot                                        | plot needs a run
3 | plot last                                   | none.db
2 | export                                      | no run given
2 | export last --format xml                    | csv|jsonl
3 | export last                                 | none.db
6 | runs --store {junk}                         | junk
3 | eval {tmp}                                  | no checkpoint in
2 | eval last --tokens x                        | --tokens must be a whole number
3 | generate {tmp}                              | no checkpoint in
2 | generate --temperature hot                  | --temperature must be a number
3 | convert {tmp}/none -o {tmp}/converted       | cannot open checkpoint folder
2 | convert last --to gguff -o {tmp}/converted  | --to must be one of
2 | hub                                         | --listen HOST:PORT
2 | hub --listen 127.0.0.1:0                    | --keys DIR
3 | hub --listen 127.0.0.1:0 --keys {tmp}       | hub.key
2 | hub --keys {tmp}/keys Bad/Name              | is not a valid name for an island's keys
2 | hub --listen localhost --keys {tmp}         | --listen 'localhost' has no port
2 | hub --link-timeout 0                        | --link-timeout must be a number from 1
2 | hub --islands 0                             | --islands must be a whole number from 1 to 64
2 | hub --listen 127.0.0.1:0 --keys {junk}      | is readable by other users
2 | train --mode psx                            | sync|ps|diloco
3 | serve last                                  | none.db
3 | serve {tmp}                                 | no checkpoint in
2 | serve last --port 65536                     | --port
2 | serve last --open --listen 0.0.0.0          | only with --listen 127.0.0.1
3 | serve last more                             | none.db
2 | data                                        | needs a verb
2 | data frob                                   | no verb 'frob'
3 | data inspect {tmp}/none.bts                 | none.bts
6 | data inspect {junk}                         | junk
2 | tokenizer                                   | needs a verb
3 | tokenizer inspect {tmp}/none.json           | none.json
6 | tokenizer inspect {junk}                    | junk
2 | bench                                       | bench
2 | bench nonsense                              | 'bitrain bench' has no verb 'nonsense' (kernels, train, learn, comm, decode, store, http)
2 | bench trian --help                          | 'bitrain bench' has no verb 'trian' (did you mean 'train'?)
2 | data prepair --help                         | did you mean 'prepare'?
2 | tokenizer zebra -h                          | 'bitrain tokenizer' has no verb 'zebra' (train, inspect, encode, decode, import)
2 | ctl last pasue --help                       | 'bitrain ctl' has no verb 'pasue' (did you mean 'pause'?)
2 | ctl last pasue                              | did you mean 'pause'?
2 | ctl last set                                | 'set' needs KEY=VALUE
2 | help bench trian                            | did you mean 'train'?
2 | help bench train comm                       | unexpected word 'comm'
2 | help metrics zebra                          | unexpected word 'zebra'
2 | train --set islands.outer_momentum=-0.5     | islands.outer_momentum -0.5 is neither a momentum (0 to below 1) nor -1
2 | rank                                        | no MPI job
2 | mcp --contorl                               | did you mean '--control'?
2 | mcp now                                     | unexpected word 'now'
2 | doctor --jsno                               | did you mean '--json'?
2 | doctor now                                  | unexpected word 'now'
3 | doctor --hosts {tmp}/none                   | one 'host slots=N' per line, not names
5 | doctor --quick --isa avx513                 | 1 check failed
5 | doctor --quick --store {junk}               | 1 check failed
3 | runs                                        | none.db
2 | query                                       | no query given
3 | query "SELECT 1"                            | none.db
2 | train --stesp 3                             | did you mean '--steps'?
2 | train {conf}                                | conf.yaml:4
2 | train one.yaml two.yaml                     | unexpected word 'two.yaml'
3 | train {tmp}/none.yaml                       | none.yaml
2 | train --preset nanno                        | did you mean 'nano'?
2 | train --steps many                          | --steps
2 | train --steps -1                            | --steps
2 | train --set model.heads=5 --dry-run         | does not divide model.d_model 192
2 | train --set modle.heads=6 --dry-run         | did you mean 'model.heads'?
2 | train --ranks 3 --steps 1                   | use 2 or 4 ranks
2 | train --ranks 32 --steps 1                  | more data-parallel ranks (32) than sequences in a step (16
2 | train --isa avx513 --steps 1                | unknown isa 'avx513'
2 | train --name 'A b' --steps 1                | is not allowed
3 | train --hosts {tmp}/none --steps 1          | cannot read host file
3 | train --resume last                         | none.db
3 | train --resume {tmp}                        | no checkpoint in
1 | train --out /proc/none --data synth:chain --steps 1 | cannot create folder '/proc/none'
3 | train --store {tmp}2.db --data {tmp}/none.txt --steps 1 | cannot open data
6 | train --store {tmp}2.db --data {junk} --steps 1 | binary, not text
6 | train --store {junk} --data synth:chain --steps 1 | junk
2 | rank                                        | started by 'bitrain train'
2 | rank --wire                                 | started by 'bitrain train'
2 | ctl                                         | needs a run and a verb
2 | ctl last                                    | needs a run and a verb
2 | ctl last set                                | needs KEY=VALUE
2 | ctl last sample                             | needs PROMPT
2 | ctl last mixture                            | needs WEIGHTS
2 | runs rename a                               | rename needs two names
2 | ctl last pause now                          | takes no value
2 | ctl last pause now please                   | unexpected word 'please'
3 | ctl last pause                              | none.db
3 | eval                                        | none.db
3 | eval {tmp}                                  | no checkpoint in
3 | eval {tmp}/none                             | none
3 | eval last more                              | none.db
2 | eval last --tokens x                        | --tokens
2 | eval last --task arc                        | --task needs --data FILE
2 | eval last --task trivia                     | --task
2 | convert                                     | which model
3 | generate last                               | none.db
3 | generate {tmp}                              | no checkpoint in
2 | generate last --temperature hot             | --temperature
2 | generate last --top-p 2                     | --top-p
2 | generate last --chat --prompt x               | give one
2 | generate last --message x                   | need --chat
2 | generate last --min-p -1                    | --min-p
2 | generate last --stop a\\q                   | a backslash is followed by
3 | convert {tmp} -o x                          | no checkpoint in
3 | convert last -o x                           | none.db
2 | convert last --merge sideways               | --merge
2 | generate last --weight hot                  | --weight
2 | convert last -o x --to onnx                 | --to
2 | convert last -o x --type q4_k               | --type
6 | convert {junk} -o x                         | not a GGUF file
2 | data                                        | needs a verb: prepare, inspect
2 | data prepair x                              | did you mean 'prepare'?
2 | data inspect                                | no data named
3 | data inspect {tmp}/none.txt                 | none.txt
2 | data inspect {tmp}                          | contains no files
6 | data inspect {junk}                         | binary, not text
6 | data inspect {junk}.bts                     | wrong magic at byte 0
6 | data inspect {empty}.bts                    | truncated
2 | data inspect synth:chain                    | nothing to inspect
2 | data inspect {empty} --sample -1            | --sample
2 | data inspect {empty} --out x.bts            | has no option '--out'
2 | data prepare {empty}                        | no --out FILE
2 | data prepare {empty} --out {tmp}/x.txt      | does not end with .bts
1 | data prepare {empty} --out {tmp}/no/x.bts   | cannot create
4 | data prepare {empty} --out {empty}.bts      | exists already (--force replaces it)
2 | data prepare {junk}.bts --out {tmp}/x.bts   | holds tokens already
3 | data prepare {empty} --out {tmp}/x.bts --tokenizer {tmp}/t.json | does not exist
6 | data prepare {empty} --out {tmp}/x.bts --tokenizer {junk} | not valid JSON
2 | tokenizer                                   | needs a verb: train, inspect, encode, decode, import
2 | tokenizer trian                             | did you mean 'train'?
2 | tokenizer train {empty}                     | no --out FILE
2 | tokenizer train {empty} --out {tmp}/t.json  | no text to train a tokenizer on
2 | tokenizer train {conf} --vocab 9000 --out {tmp}/t.json | are requested: request fewer, or use more text
2 | tokenizer train {conf} --vocab 256 --out {tmp}/t.json | --vocab
4 | tokenizer train {conf} --out {conf}         | exists already
3 | tokenizer inspect {tmp}/t.json              | does not exist
6 | tokenizer inspect {empty}                   | not valid JSON
2 | tokenizer inspect bytes more                | unexpected word 'more'
2 | tokenizer decode bytes 256                  | outside 0..255
2 | tokenizer decode bytes 1x                   | is not a token id
6 | tokenizer import {conf} --out {tmp}/t.json  | not valid JSON
3 | tokenizer import {tmp}/t.json --out {tmp}/u.json | cannot open
END
)
bad=0
fault() { echo "$*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export BITRAIN_STORE=$tmp/none.db XDG_DATA_HOME=$tmp/data HOME=$tmp
{ printf '\177\001'; yes junk | head -c 100000 | tr '\n' '\000'; } >"$tmp/junk"
: >"$tmp/empty"
echo 'In the beginning' >"$tmp/short"
: >"$tmp/empty.bts"
cp "$tmp/junk" "$tmp/junk.bts"
mkdir "$tmp/folder"
printf 'train:\n  steps: 5\noptim:\n  lrr: 1\n' >"$tmp/conf.yaml"

seen=
while IFS='|' read -r code words part; do
    code=${code// /}
    [ -n "$code" ] || continue
    part=${part# }
    part=${part%"${part##*[! ]}"}
    words=${words//'{tmp}'/$tmp/folder}
    words=${words//'{store}'/$tmp/none.db}
    words=${words//'{junk}'/$tmp/junk}
    words=${words//'{empty}'/$tmp/empty}
    words=${words//'{short}'/$tmp/short}
    words=${words//'{conf}'/$tmp/conf.yaml}
    eval "set -- $words"
    seen="$seen $1"
    timeout -k 5 60 "$BITRAIN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ "$got" -eq "$code" ] || fault "bitrain $*: exit $got, not $code: $(head -3 "$tmp/err")"
    grep -qF -- "$part" "$tmp/err" || fault "bitrain $*: does not print \"$part\" but: $(head -3 "$tmp/err")"
    [ "$(wc -l <"$tmp/err")" -le 1 ] || fault "bitrain $*: more than one line: $(cat "$tmp/err")"
    [ "$code" -eq 5 ] || [ ! -s "$tmp/out" ] || fault "bitrain $*: wrote to standard output: $(head -3 "$tmp/out")"
done <<<"$rows"

[ ! -e "$tmp/none.db" ] && [ ! -e "$tmp/runs" ] || fault "a refused command left a database or a run behind: $(ls "$tmp" "$tmp/runs" 2>/dev/null)"
[ ! -e "$tmp/folder/new" ] || fault "a refused training left its folder behind: $(find "$tmp/folder/new")"
for c in $("$BITRAIN" help | awk '/^  [a-z]/ {print $1}'); do
    grep -qw -- "$c" <<<"$seen" || fault "no bad input is tried for 'bitrain $c': add a row"
done
exit $bad
