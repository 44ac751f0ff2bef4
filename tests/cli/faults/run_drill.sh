#!/usr/bin/env bash
# ctest: timeout=300
# bitrain drill: every fault once, and a short proof with resizes and kills whose weights are compared; invalid
# arguments are refused.
. "$BT_SRC/tests/cli/train_lib.sh"
sleep 280 & bystander=$! # a drill must end only its own processes
started+=($bystander)
ok drill --quick
for fault in "a rank killed" "rank 0 killed" "mpirun killed" "a rank stopped" "resized up" "resized down" "checkpoints cannot be written" \
    "supervisor killed" "newest checkpoint damaged"; do
    grep -q "^$fault.* ok$" out || fault "$fault: $(grep "^$fault" out)"
done
grep -q "of the undisturbed run .*: equal" out || fault "the weights differ: $(tail -n 3 out)"
[ -z "$(ls -d "$TMPDIR"/bitrain-drill-* 2>/dev/null)" ] || fault "the drill's folder is left"

# A drill that is stopped has no result; the next one removes the files that its supervisor left in TMPDIR.
timeout --preserve-status -s TERM 3 "$BITRAIN" drill --quick >out 2>err
[ $? -eq 143 ] || { fault "a drill that was stopped did not exit with 143"; tail -n 3 out err; }
[ -z "$(ls -d "$TMPDIR"/bitrain-drill-* 2>/dev/null)" ] || fault "the folder of a stopped drill is left"

# A fast machine has done 40 steps before the first fault.
ok drill --elastic 1:4 --resizes 4 --kills 3 --steps 160 --seed 3 --json
grep -q '"ok":true,"seed":3,"steps":160,' out || fault "the proof: $(head -c 600 out)"
hash=$(grep -o '"hash":"[0-9a-f]*"' out) calm=$(grep -o '"calm_hash":"[0-9a-f]*"' out)
[ -n "$hash" ] && [ "${hash#*:}" = "${calm#*:}" ] || fault "hashes $hash, $calm"
[ "$(grep -o '"what":"resize [^"]*","ok":true' out | wc -l)" = 4 ] || fault "resizes: $(grep -o '"what":"[^"]*","ok":[a-z]*' out)"
[ "$(grep -o '"ok":true,"skipped":false' out | wc -l)" = 7 ] || fault "rows: $(head -c 900 out)"
[ "$(grep -o '"rows_lost":0' out | wc -l)" = 7 ] || fault "rows are lost"
code 2 drill --quick --elastic 1:2
code 2 drill --elastic 4
code 2 drill --elastic 1:4 --steps 30
says "need 80 steps or more"
TMPDIR=/nonexistent code 1 drill --quick
kill -0 $bystander || fault "a drill ended a process that is not its own"
finish
