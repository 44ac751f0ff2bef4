#!/usr/bin/env bash
# ctest: timeout=120 labels=mpi
# Sources by weight: the contribution of each is counted and reported, the losses have the same bits on one rank, on two
# and after a resume; the weights change at a step; compressed files train like plain ones. Impossible mixtures are
# refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 400; i++) printf "the light of day %d was upon the face of the waters\n", i }' >a.txt
awk 'BEGIN { for (i = 0; i < 300; i++) printf "%d is %d and %d makes %d;\n", 2 * i, i, i, 2 * i }' >b.txt
gzip -c a.txt >a.txt.gz
base=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 64
     --batch-tokens 512 --threads 1 --eval-every 1000000 --set train.reproducible=true --set train.unit=1)
mix=("${base[@]}" --steps 8)
ok train "${mix[@]}" --ranks 1 --data a.txt b.txt --set data.mixture=3:1,6=1:3 --name one
losses one >want
told() { q "SELECT title FROM events WHERE run='$1' AND kind='data' ORDER BY seq" >told; grep -qF -- "$2" told || fault "$1 does not report \"$2\": $(cat told)"; }
# 6 steps of 8 sequences 3:1, 2 steps 1:3.
told one "a.txt': 40 sequences so far, 62.5 % of all"
told one "b.txt': 24 sequences so far, 37.5 % of all"
ok train "${mix[@]}" --ranks 2 --data a.txt b.txt --set data.mixture=3:1,6=1:3 --name two
losses two | cmp -s - want || fault "two ranks differ: $(losses two | head -3)"
ok train "${mix[@]}" --ranks 1 --data a.txt b.txt --set data.mixture=3:1,6=1:3 --stop-after 5 --name halves
ok train --resume halves
losses halves | cmp -s - want || fault "a resumed run differs: $(losses halves | head -3)"
ok train "${mix[@]}" --ranks 1 --data a.txt.gz b.txt --set data.mixture=3:1,6=1:3 --name compressed
losses compressed | cmp -s - want || fault "compressed data differ: $(losses compressed | head -3)"
ok train "${mix[@]}" --ranks 1 --data a.txt b.txt --set data.mixture=1:3 --name other
losses other | cmp -s - want && fault "other weights give the same losses"

# The weights are changed during the run, on two ranks: a stage begins at the step at which the request arrived, and
# checkpoints contain it.
BITRAIN_TEST_SLOW=0:60 "$BITRAIN" train "${base[@]}" --steps 2000 --lr-schedule constant --warmup 2 --ranks 2 --data a.txt b.txt --set data.mixture=3:1 --name live >live.out 2>&1 &
started+=($!)
wait_step live 3
ok ctl live mixture 1:3
# The later of two requests between two steps counts.
for i in $(seq 600); do [ "$(q "SELECT count(*) FROM events WHERE run='live' AND title LIKE 'sources weigh%'")" = 1 ] && break; sleep 0.05; done
code 2 ctl live mixture 1,3
says "mixture takes one weight for each source"
ok ctl live mixture 1:2:3
for i in $(seq 600); do [ "$(q "SELECT count(*) FROM events WHERE run='live' AND kind='refused'")" = 1 ] && break; sleep 0.05; done
q "SELECT title FROM events WHERE run='live' AND kind='refused'" | grep -q "the mixture stays: data.mixture: 3 weights in '1:2:3" || fault "three weights for two sources: $(tail -3 live.out)"
ok ctl live stop --wait
changed=$(q "SELECT title FROM events WHERE run='live' AND title LIKE 'sources weigh%'" | sed -n 's/.*data.mixture=\(.*\))$/\1/p')
case $changed in 3:1,*=1:3) ;; *) fault "the mixture became '$changed'" ;; esac
did=$(q "SELECT max(step) + 1 FROM steps WHERE run='live'")
ok train --resume live --ranks 1 --steps $((did + 4))
ok train "${base[@]}" --steps $((did + 4)) --lr-schedule constant --warmup 2 --ranks 1 --data a.txt b.txt --set data.mixture="$changed" --name calm
[ "$(losses live | wc -l)" = $((did + 4)) ] || fault "live has $(losses live | wc -l) steps of $((did + 4))"
losses live | cmp -s - <(losses calm) || fault "changed on the way, from $changed: $(losses live | tail -2) | $(losses calm | tail -2)"

code 2 train "${mix[@]}" --ranks 1 --data a.txt b.txt --set data.mixture=1:2:3
says "data.mixture: 3 weights in '1:2:3' for 2 sources"
code 2 train "${mix[@]}" --ranks 1 --data a.txt b.txt --set data.mixture=0:0
says "data.mixture: all sources have the weight 0"
code 2 train "${mix[@]}" --ranks 1 --data synth:chain --set data.mixture=1
says "is a single source of unlimited length"
head -c 700 a.txt.gz >cut.txt.gz
code 6 train "${mix[@]}" --ranks 1 --data cut.txt.gz
says "ends in the middle of its gzip data"

[ $faults -eq 0 ] && echo "sources are mixed as they should"
exit $faults
