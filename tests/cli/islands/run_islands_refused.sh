# ctest: timeout=120 waits
# run_islands_refused.sh - an island that may not join gets one line, and the hub continues: no key, a wrong key, a key
# that is not listed, a file that other users may read, a key of another hub, another model, an address without a
# listener. A hub closes connections that use too much memory.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_TEST_DELAY=10 # the delay keeps a fast machine from ending before it is disturbed

refuse() { # refuse CODE TEXT WORDS...: `train` exits with CODE and prints TEXT in one line
    local want=$1 text=$2; shift 2
    b train "${part[@]}" --ranks 1 --steps 2000 --lr 1e-5 --name other --store other.db --out "other-$RANDOM" "$@" >out 2>err
    local got=$?
    [ $got -eq "$want" ] || { fault "exit $got, not $want: $*"; tail -n 4 out err; }
    [ "$(grep -cF -- "$text" err)" -ge 1 ] || { fault "no message contains '$text': $*"; tail -n 4 out err; }
    rm -f other.db*
}

[ "$(stat -c %a keys/a.key keys/hub.key | sort -u)" = 600 ] || fault "a secret key is not of mode 600"
code 2 hub
says '--listen HOST:PORT'
code 2 hub --listen 127.0.0.1:0
says '--keys DIR'
code 2 train "${part[@]}" --ranks 1 --mode ps
says "--mode is a setting of an island: give its hub as well (--hub HOST:PORT"
code 2 train "${part[@]}" --ranks 1 --keys keys/a.key
says "--keys is a setting of an island"
code 2 hub --listen 127.0.0.1:0 --keys keys --islands 2 --quorum 3
says '--quorum 3 is more than the 2 of --islands'
code 2 hub --listen 127.0.0.1:0,127.0.0.1:0 --keys keys
says 'a hub has one address'
mpirun -n 2 --bind-to none "$BITRAIN" hub --listen 127.0.0.1:0 --keys keys 2>err && fault "two processes are a hub"
grep -q 'a hub is one process' err || fault "no message states that a hub is one process: $(cat err)"
code 3 hub --listen :0 --keys nowhere/hub.key
says 'nowhere/hub.key'

# The address is a port without a host, which means this machine.
hub_at=0
start_hub --islands 1 --name hub
[[ $address == 127.0.0.1:* ]] || fault "a port alone listens at '$address'"
grep -q '(this machine only)' hub.err || fault "no message states who reaches the hub: $(cat hub.err)"
start_island a --steps 2000 --lr 1e-5; a=$island
refuse 2 "--hub needs this island's keys" --hub "$address"
refuse 2 'a hub has a single address' --hub "$address,$address" --keys keys/a.key
refuse 3 'nothing.key' --hub "$address" --keys nothing.key
cp keys/b.key open.key; chmod 644 open.key
refuse 2 'is readable by other users' --hub "$address" --keys open.key
mv keys/allowed/b.pub b.pub
refuse 4 "does not accept this island's key" --hub "$address" --keys keys/b.key
mv b.pub keys/allowed/b.pub
b hub --keys else b >/dev/null 2>err
refuse 4 "is not the hub with the key" --hub "$address" --keys else/b.key
refuse 4 'the model (by hash) is' --hub "$address" --keys keys/b.key --set model.d_ff=96
refuse 4 'run.seed is' --hub "$address" --keys keys/b.key --seed 5
refuse 4 'belongs to an island with another key' --hub "$address" --keys keys/b.key --name isl-a
# An address without a listener is reported while the island retries.
nobody=${address%:*}:1
timeout 60 "$BITRAIN" train "${part[@]}" --ranks 1 --steps 5 --hub "$nobody" --keys keys/b.key --name away --store away.db --out away >away.out 2>away.err &
away=$!
started+=($away)
until_says away.err "nothing accepts connections at the hub's address"
kill $away
wait $away
[ $? -ne 0 ] || fault "an island without a hub ended well"
kill -0 $a $hub || fault "the island or its hub have ended"

# Secret keys are only in their files: on no command line and in no environment, record, log or checkpoint.
sed -n 's/^secret = //p' keys/*.key >secrets
[ "$(wc -l <secrets)" = 4 ] || fault "$(wc -l <secrets) secret keys, not 4"
for p in $hub $(serving) $a $(pgrep -f -- "rank .*$tmp"); do
    ! tr '\0' '\n' <"/proc/$p/cmdline" | grep -qFf secrets || fault "a secret key is on the command line of $p"
    ! tr '\0' '\n' <"/proc/$p/environ" | grep -qFf secrets || fault "a secret key is in the environment of $p"
done
kept=$(grep -rlaFf secrets . | grep -v '^./\(keys/[a-z]*.key\|secrets\|open.key\|else/.*\)$')
[ -z "$kept" ] || fault "secret keys are in $kept"
grep -q 'is not listed' hub.err || fault "the hub does not report the key"
kill $a $hub
wait $a $hub

# A hub without memory for messages closes its connections, and its island continues over a new one.
rm -rf out-a hub-out ./a.db* ./hub.db*
start_hub --islands 1 --memory 1
start_island a --steps 40
wait_for $island 0 a
wait_for $hub 0 hub
says_memory=$(grep -c 'more than 1 (--memory): all connections are closed' hub.err)
[ "$says_memory" -ge 1 ] || fault "the hub does not print that it closed connections: $(cat hub.err)"
exit $((faults > 0))
