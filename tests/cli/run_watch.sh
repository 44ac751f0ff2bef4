#!/usr/bin/env bash
# ctest: timeout=240
# Watching a run: a rank slowed by stopping and continuing it is reported with its phase within 20 steps; viewers that
# are killed, or stopped while they read, do not affect the training; a database that cannot be read gives one line in
# every command.
. "$BT_SRC/tests/cli/train_lib.sh"
command -v sqlite3 >/dev/null || skip "needs the sqlite3 shell"

rank_pid() { q "SELECT pid FROM ranks WHERE run='$1' AND rank=$2 ORDER BY attempt DESC LIMIT 1"; }
newest() { q "SELECT max(step) FROM steps WHERE run='$1'"; }

# A slow rank: a step takes longer than the 40 ms for which the rank may run.
"$BITRAIN" train "${slow[@]}" --batch-tokens 8192 --steps 100000 --name slowed >s.out 2>s.err &
job=$!
started+=($job)
wait_step slowed 5
victim=$(rank_pid slowed 1)
(while kill -STOP "$victim" && sleep 0.12 && kill -CONT "$victim" && sleep 0.04; do :; done) 2>/dev/null & # a quarter of its time is left
duty=$!
started+=($duty)
since=$(newest slowed)
wait_step slowed $((since + 20))
b top slowed --once --json --step $((since + 21)) >top.json
kill $duty
wait $duty 2>/dev/null
kill -CONT "$victim"
first=$(grep -o '"stragglers":\[{[^}]*' top.json)
[[ $first == *'"rank":1,'* ]] || fault "the slowed rank is not named first: $first"
[[ $first =~ \"phase\":\"(fwd|bwd)\" ]] || fault "it computes slowly, and the phase is another: $first"
ok ctl slowed stop
wait $job

# Viewers.
run=(train "${light[@]}" --steps 120)
ok "${run[@]}" --name calm
losses calm >calm.txt
BITRAIN_TEST_DELAY=10 "$BITRAIN" "${run[@]}" --name watched >w.out 2>w.err &
job=$!
started+=($job)
wait_step watched 5
"$BITRAIN" query --timeout 100 "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM steps, c" >/dev/null 2>&1 & # reads without end
reader=$!
started+=($reader)
"$BITRAIN" top watched --plain --watch 0.1 >/dev/null 2>&1 &
viewer=$!
started+=($viewer)
wait_step watched 20
kill -STOP $reader # stopped in its read transaction, which remains open until it continues
kill -9 $viewer
wait $viewer 2>/dev/null
for i in $(seq 40); do ps -o state= -p $reader | grep -q T && break; sleep 0.05; done # the signal needs some time
ps -o state= -p $reader | grep -q T || fault "the reader had ended before it was stopped: it held nothing"
wait $job || fault "the watched run failed: $(tail -n 3 w.err)"
ps -o state= -p $reader | grep -q T || fault "the reader did not last as long as the run"
losses watched >watched.txt
cmp -s calm.txt watched.txt || fault "watching changed the losses"
[ "$(q "SELECT state || ' ' || steps FROM runs WHERE run='watched'")" = "done 120" ] || fault "the watched run is $(q "SELECT state, steps FROM runs WHERE run='watched'")"
[ "$(q "SELECT dropped FROM runs WHERE run='watched'")" = 0 ] || fault "records were dropped"
kill -9 $reader
wait $reader 2>/dev/null

# Databases that cannot be read.
one_line() { # exit code, words, command
    local want=$1 words=$2 got
    shift 2
    timeout 20 "$BITRAIN" "$@" >out 2>err
    got=$?
    [ $got -eq "$want" ] || fault "exit $got, not $want, of: bitrain $*"
    [ "$(grep -c . err)" -eq 1 ] || fault "not one line of: bitrain $*: $(cat err)"
    grep -Eq -- "$words" err || fault "no '$words' from: bitrain $*: $(cat err)"
}
sqlite3 m.db "VACUUM INTO '$tmp/newer.db'"
sqlite3 newer.db "PRAGMA user_version=999" >/dev/null
sqlite3 other.db "CREATE TABLE songs(a)"
head -c 6000 m.db >cut.db
seq 5000 >text.db
for bad in "newer.db newer" "other.db another.program" "text.db not.an.SQLite" "cut.db damaged|malformed|not a"; do
    file=${bad%% *} words=${bad#* }
    for command in runs "show calm" "top calm --once" "top calm --once --json" "query SELECT/1" "export calm" "plot calm loss" "compare calm watched" dash; do
        read -ra argv <<<"$command"
        [ "$command" != dash ] || "$BITRAIN" help dash >/dev/null 2>&1 || continue # a build without the dashboard
        one_line 6 "$words" "${argv[@]//\// }" --store "$tmp/$file"
    done
done
finish
