#!/usr/bin/env bash
# ctest: timeout=180
# A run that is interrupted after k steps and resumed equals an uninterrupted run, bit for bit, at the level of the
# command; options of the new command replace those of the record if that is permitted.
. "$BT_SRC/tests/cli/train_lib.sh"

ok train "${tiny[@]}" --steps 10 --name whole
losses whole >whole.txt
[ "$(wc -l <whole.txt)" = 10 ] || fault "the whole run has $(wc -l <whole.txt) steps"

for k in 1 5 9; do
    ok train "${tiny[@]}" --steps 10 --stop-after $k --name part$k
    says "stopped after step $k"
    [ "$(q "SELECT state FROM runs WHERE run='part$k'")" = stopped ] || fault "part$k is not 'stopped'"
    ok train --resume last --threads 1 --ranks 2
    says "run part$k done after step 10"
    losses part$k | cmp -s - whole.txt || { fault "$k + resume differs from 10"; losses part$k | diff - whole.txt | head -4; }
    [ "$(q "SELECT group_concat(from_step) FROM attempts WHERE run='part$k'")" = "0,$k" ] || fault "attempts of part$k are not recorded"
done

# --isa belongs to one start: a model and its run work on a processor that lacks the kernel set of that start.
if grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo; then
    ok train "${tiny[@]}" --steps 10 --stop-after 5 --name pinned --isa avx2
    for words in "eval pinned --tokens 256" "generate pinned --tokens 2 --prompt a"; do
        BITRAIN_TEST_CPU=westmere ok $words
    done
    BITRAIN_TEST_CPU=westmere code 1 eval pinned --tokens 256 --isa avx2
    says "(--isa auto takes the fastest that does)"
    BITRAIN_TEST_CPU=westmere ok train --resume pinned --threads 1 --ranks 2
    says "run pinned done after step 10"
fi

# --continue: the same command starts a run, continues it, and does nothing when it is finished.
again=(train "${tiny[@]}" --steps 10 --stop-after 4 --continue --name again)
ok "${again[@]}"
ok "${again[@]}"
says "resume after step 4"
ok "${again[@]}"
says "run again done after step 10"
ok "${again[@]}"
says "run again has done its 10 steps already"
losses again | cmp -s - whole.txt || fault "three parts by --continue differ from 10"
code 4 "${again[@]}" --set model.d_ff=128
says "model.d_ff is 64 in run 'again'"
# The checkpoints exist and the record does not, because the database is another one or was lost.
ok train "${tiny[@]}" --steps 12 --continue --name again --out runs/again --store other.db
says "after step 10"

# Three attempts, resumed by folder, which has another path.
ok train "${tiny[@]}" --steps 10 --stop-after 4 --name hop --out "$tmp/else where"
ok train --resume hop --stop-after 3 --threads 1 --ranks 2
says "after step 7"
ok train --resume "$tmp/else where" --threads 1 --ranks 2
losses hop | cmp -s - whole.txt || fault "4 + 3 + 3 differs from 10"

# A branch under another name begins from this folder; its parent does not change.
ok train --resume "$tmp/runs/part5/step-000000000010" --steps 14 --name branch --threads 1 --ranks 2
[ "$(q "SELECT min(step), max(step), count(*) FROM steps WHERE run='branch'")" = 10,13,4 ] || fault "the branch has other steps"
[ "$(q "SELECT max(step) FROM steps WHERE run='part5'")" = 9 ] || fault "the branch wrote into its parent"

# Another number of ranks gives the same curve within rounding.
ok train "${tiny[@]}" --steps 10 --stop-after 5 --name lone
ok train --resume lone --ranks 1 --threads 1
losses lone | awk -F, 'NR == FNR { a[$1] = $2; next } { d = a[$1] - $2; if (d < 0) d = -d; if (d > 2e-3) exit 1 }' whole.txt - || fault "1 rank after 2 gives another curve"

# The record contains numbers of ranks and threads, which a resumed run uses and prints. The number of ranks is dropped
# if the new command gives a layout, and the number of threads if it gives the ranks.
ok train "${tiny[@]}" --steps 10 --stop-after 2 --name placed --ranks 4
ok train --resume placed --stop-after 2
says "as the run was started: --ranks 4 --threads 1 (give another to change it)"
ok train --resume placed --dry-run
says "as the run was started: --ranks 4 --threads 1"
says "mpirun -np 4"
ok train --resume placed --stop-after 2 --ranks 1 --threads 1
if grep -q "as the run was started" out err; then fault "reports settings as changed"; fi
BITRAIN_THREADS=1 BITRAIN_RANKS=2 ok train --resume placed --stop-after 1
ok train --resume placed --stop-after 1 --tp 2 --dp-replicate 1
says "as the run was started: --threads 1 (give"
[ "$(q "SELECT group_concat(world_size) FROM attempts WHERE run='placed'")" = "4,4,1,2,2" ] || fault "placed ran on $(q "SELECT group_concat(world_size) FROM attempts WHERE run='placed'") ranks"
# Files are recorded by absolute paths: a run that is resumed from another folder finds its data and its tokenizer.
printf 'the light and the darkness %s\n' $(seq 1 4000) >words.txt
ok tokenizer train words.txt --vocab 300 --out words.json
ok train "${tiny[@]/synth:chain/words.txt}" --tokenizer words.json --steps 6 --stop-after 2 --name away
# A resume that the ranks refuse leaves the record and its settings unchanged.
recorded() { q "SELECT * FROM configs WHERE run='away'" && q "SELECT run, state, exit_kind, attempts, out_dir, note FROM runs WHERE run='away'" && q "SELECT * FROM attempts WHERE run='away'"; }
recorded >before.txt
cp words.txt words.kept
echo more >>words.txt
code 2 train --resume away --set optim.lr=9e-3 --note tried
says "the data are not those of the checkpoint"
says "run 'away' did not complete a step: its record and settings are as before this command"
recorded | cmp -s - before.txt || fault "a refused resume changes the record: $(recorded | diff - before.txt)"
mv words.kept words.txt
# Another tokenizer is refused separately and permitted by another option; the checkpoint contains a copy of the file.
mv words.json kept.json
printf 'kan der Vogel am Fluss %s\n' $(seq 1 4000) >other.txt
ok tokenizer train other.txt --vocab 280 --out words.json
code 2 train --resume away --other-data
says "the tokenizer '$tmp/words.json' is not that of the checkpoint"
code 2 train "${tiny[@]/synth:chain/words.txt}" --init-from away --tokenizer words.json --steps 2 --dry-run
says "the tokenizer 'words.json' is not that of model.init_from"
recorded | cmp -s - before.txt || fault "a refused tokenizer changes the record"
mv kept.json words.json
ok train "${tiny[@]/synth:chain/words.txt}" --init-from away --tokenizer words.json --preset small --steps 2 --dry-run
says "the model keeps the shape of 'away' (preset nano): --preset small gives only the settings of training"
# The folder is not mounted, or an older copy: the run does not begin at step 0.
mv runs/away gone
code 3 train --resume away
says "the checkpoint after step 2 of run 'away' is gone: there is none in '$tmp/runs/away'"
code 3 train "${tiny[@]/synth:chain/words.txt}" --tokenizer words.json --steps 6 --continue --name away
says "the checkpoint after step 2 of run 'away' is gone"
[ ! -e runs/away ] || fault "a folder is made where the checkpoints were"
mv gone runs/away
# A folder with the name of a run does not hide the run.
mkdir away
ok train --resume away --dry-run
says "'away' is taken as the run of that name, not as the folder here (write './away')"
ok eval away --tokens 64
# Any text of two tokens can be evaluated.
printf 'the light and' >short.txt
ok eval away --data short.txt
says "tokens of the data given"
: >short.txt
code 2 eval away --data short.txt
says "--data has fewer than two tokens"
code 2 train --resume away@best
says "a new run starts from the best: --init-from away@best"
code 3 generate away@2
says "run 'away' has no '@2': its checkpoints are 'away' (the newest), and by path '$tmp/runs/away/step-000000000002'"
rmdir away
mkdir -p elsewhere
(cd elsewhere && timeout 100 "$BITRAIN" train --resume away >../out 2>../err) || fault "the data is not found from another folder: $(cat err)"
says "run away done after step 6"
# An extended run returns to its loss curve.
ok train --resume away --steps 9 --dry-run
says "the schedule has changed (train.steps 6 -> 9): the learning rate goes from 0.0004 at step 6 to"
# A tokenizer learned from the data is in the checkpoint: without the cache, the bits equal those of an uninterrupted
# run.
text=("${tiny[@]/synth:chain/words.txt}" --tokenizer bpe:300 --steps 6)
ok train "${text[@]}" --name learned
ok train "${text[@]}" --stop-after 3 --name emptied
rm cache/tokenizer-*.json
touch words.txt # changes the key of the cache
ok train --resume emptied
says "run emptied done after step 6"
[ "$(losses emptied)" = "$(losses learned)" ] || fault "another tokenizer after the cache was emptied"
# --hosts is recorded as an absolute path; the error for a missing host file contains the remedy.
printf 'localhost slots=2\n' >hosts.txt
ok train "${tiny[@]}" --hosts hosts.txt --steps 10 --stop-after 2 --name hosted
(cd elsewhere && timeout 100 "$BITRAIN" train --resume hosted --dry-run >../out 2>../err) || fault "the host file is not found from another folder: $(cat err)"
says "--hosts $tmp/hosts.txt"
rm hosts.txt
code 3 train --resume hosted
says "which run 'hosted' was started with (give another --hosts FILE, or --hosts '' to continue here)"
ok train --resume hosted --hosts ''

# Reproducible training gives the same bits on any ranks, however often they change.
exact=("${tiny[@]}" --steps 10 --set train.reproducible=true --set train.unit=1)
ok train "${exact[@]}" --ranks 1 --name exact
ok train "${exact[@]}" --stop-after 3 --name moved
ok train --resume moved --threads 1 --ranks 1 --stop-after 3
ok train --resume moved --threads 1 --ranks 4 --tp 2 --dp-shard 2 --zero 3
says "run moved done after step 10"
[ "$(losses moved)" = "$(losses exact)" ] || fault "2, 1 and 4 ranks one after another differ from one rank"
[ "$(q "SELECT group_concat(world_size) FROM attempts WHERE run='moved'")" = "2,1,4" ] || fault "moved ran on $(q "SELECT group_concat(world_size) FROM attempts WHERE run='moved'") ranks"

# The newest checkpoint is damaged: the older one is used, which is reported.
ok train "${tiny[@]}" --steps 10 --stop-after 8 --ckpt-every 4 --name hurt
f=$(ls runs/hurt/step-000000000008/data-00001-*)
printf 'X' | dd of="$f" bs=1 seek=900 conv=notrunc status=none
for command in "eval hurt --tokens 64 --json" "generate hurt --prompt a --tokens 1 --json" "convert hurt --to bitrain -o mended --allow-older --json"; do
    ok $command
    says '"passed_over":["step-000000000008 passed over: '
    says "warning: step-000000000008 passed over"
done
for command in "convert hurt --to bitrain -o refused" "serve hurt --port 0"; do
    code 6 $command
    says "--allow-older"
done
ok train --resume hurt --threads 1 --ranks 2
says "step-000000000008 passed over"
[ "$(q "SELECT count(*) FROM events WHERE run='hurt' AND kind='ckpt_damaged' AND title LIKE 'step-000000000008 passed over%'")" = 1 ] || fault "a checkpoint that is passed over is no event"
says "resume after step 4"
losses hurt | cmp -s - whole.txt || fault "after the fallback the losses differ"

# All checkpoints are damaged: resuming is refused, and nothing begins.
ok train "${tiny[@]}" --steps 10 --stop-after 4 --name dead
for f in runs/dead/step-*/manifest.json; do printf '{' | dd of="$f" bs=1 seek=100 conv=notrunc status=none; done
code 6 train --resume dead
says "no checkpoint in"
[ "$(q "SELECT count(*) FROM attempts WHERE run='dead'")" = 1 ] || fault "a refused resume is recorded as an attempt"

# A run stopped before its first checkpoint resumes from the beginning.
code 1 train "${tiny[@]}" --steps 10 --name early --set launch.mpirun_args=--no-such-option
ok train --resume early --threads 1 --ranks 2
losses early | cmp -s - whole.txt || fault "a run that never began does not begin"
# A failed start leaves neither its name nor its settings to the next one.
code 1 train "${tiny[@]}" --steps 10 --name anew --lr 9e-2 --set launch.mpirun_args=--no-such-option
ok train "${tiny[@]}" --steps 10 --continue --name anew
losses anew | cmp -s - whole.txt || fault "a failed start leaves its settings to the next"
# The database may be removed, empty or damaged: a run is resumed from its folder, and the records in a backup are
# restored.
for harm in 'rm $db $db-wal $db-shm' 'rm $db-wal $db-shm; : > $db' 'rm $db-wal $db-shm; head -c 90000 /dev/urandom > $db'; do
    db=$tmp/harmed.db
    rm -rf "$tmp/harmed" "$db"*
    ok train "${tiny[@]}" --steps 6 --stop-after 3 --name harmed --store "$db" --out "$tmp/harmed"
    eval "$harm"
    ok train --resume "$tmp/harmed" --store "$db"
    says "run harmed done after step 6"
    [ "$(sqlite3 "$db" "SELECT max(step) FROM steps WHERE run = 'harmed'")" = 5 ] || fault "nothing is recorded after: $harm"
done
says "metrics database was damaged: moved to '$db.corrupt-"
[ "$(sqlite3 "$db" "SELECT count(*) FROM steps WHERE run = 'harmed'")" = 6 ] || fault "the backup's rows are not in the new database"
code 6 train "${tiny[@]}" --steps 2 --store "$BITRAIN"

finish
