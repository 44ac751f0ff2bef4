# islands_lib.sh - a hub and its islands on this machine, each with a store of its own. Sourced, not run; after train_lib.sh.
b hub --keys keys a b c >/dev/null 2>err || fault "no keys: $(cat err)"

# one run is islands of 16 sequences a step
part=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
      --seq-len 32 --micro-batch 4 --data synth:chain --set model.vocab=64 --set data.val_frac=0 --isa generic --threads 1
      --batch-tokens 512 --lr 3e-3 --warmup 0 --quiet)

# start_hub WORDS...: $address is its address, $hub its process
start_hub() {
    local i
    : >address
    "$BITRAIN" hub --listen 127.0.0.1:0 --keys keys --store hub.db --out hub-out "$@" >address 2>hub.err &
    hub=$!
    started+=($hub)
    for i in $(seq 400); do
        [ -s address ] && break
        kill -0 $hub 2>/dev/null || break
        sleep 0.05
    done
    address=$(cat address)
    [ -n "$address" ] || fault "the hub does not start: $(cat hub.err)"
}

# start_island NAME WORDS...: with the key NAME and ${ranks:-1} ranks; its process is $island
start_island() {
    local name=$1; shift
    timeout 100 "$BITRAIN" train "${part[@]}" --hub "$address" --keys "keys/$name.key" --name "isl-$name" --ranks "${ranks:-1}" \
        --store "$name.db" --out "out-$name" "$@" >"$name.out" 2>"$name.err" &
    island=$!
    started+=($island)
}

# wait_for PROCESS CODE NAME: it ends with this exit code
wait_for() {
    wait "$1"
    local got=$?
    [ $got -eq "$2" ] || { fault "$3 ended with $got, not $2"; tail -n 5 "$3.err" hub.err 2>/dev/null; }
}
