# islands_lib.sh - a hub and its islands on this machine, each with its own store. Sourced after train_lib.sh, not run.
# hub_at=HOST:PORT (127.0.0.1:0) is the address that the hub listens on. overdue=SECONDS (60) is the time after which
# the hub continues without an island: a loaded machine may delay an island by seconds, and the updates that the hub
# leaves out change the bits of the result.
b hub --keys keys a b c >/dev/null 2>err || fault "no keys: $(cat err)"

declare -A process=()
hub_by=() island_by=() # words before `bitrain hub`, `bitrain train`
# One training divided over islands, 16 sequences a step.
part=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
      --seq-len 32 --micro-batch 4 --data synth:chain --set model.vocab=64 --set data.val_frac=0 --threads 1
      --batch-tokens 512 --lr 3e-3 --warmup 0 --set islands.ramp=0 --quiet)

# start_hub WORDS...: sets $address and $hub, its process id
start_hub() {
    local i
    : >address
    "${hub_by[@]}" "$BITRAIN" hub --listen "${hub_at:-127.0.0.1:0}" --keys keys --store hub.db --out hub-out --overdue "${overdue:-60}" "$@" >address 2>hub.err &
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

# start_island NAME WORDS...: starts ${ranks:-1} ranks with the key NAME and sets $island, the process id
start_island() {
    local name=$1; shift
    "${island_by[@]}" timeout ${limit:-100} "$BITRAIN" train "${part[@]}" --hub "$address" --keys "keys/$name.key" --name "isl-$name" --ranks "${ranks:-1}" \
        --store "$name.db" --out "out-$name" "$@" >"$name.out" 2>"$name.err" &
    island=$!
    started+=($island)
}

# wait_for PROCESS CODE NAME: waits for the end of the process with this exit code
wait_for() {
    wait "$1"
    local got=$?
    [ $got -eq "$2" ] || { fault "$3 ended with $got, not $2"; tail -n 5 "$3.err" hub.err 2>/dev/null; }
}

steps() { BITRAIN_STORE=$1.db q "SELECT coalesce(max(step) + 1, 0) FROM steps WHERE run='isl-$1'" 2>/dev/null; }
until_step() { # NAME N: waits until the island has done N steps (40 s)
    local i n
    for i in $(seq 400); do
        n=$(steps "$1")
        [ "${n:-0}" -ge "$2" ] 2>/dev/null && return 0
        sleep 0.1
    done
    fault "island $1 is at step '$n', not at $2: $(tail -n 3 "$1.err" hub.err)"
}
until_event() { # NAME PATTERN: waits until the island has an event with a title like the pattern of SQL (40 s)
    local i
    for i in $(seq 400); do
        [ "$(BITRAIN_STORE=$1.db q "SELECT count(*) FROM events WHERE run='isl-$1' AND title LIKE '$2'" 2>/dev/null)" -gt 0 ] 2>/dev/null && return 0
        sleep 0.1
    done
    fault "island $1 has no event like '$2': $(tail -n 3 "$1.err" hub.err)"
}
until_says() { # FILE TEXT: waits until the file contains the text (40 s)
    local i
    for i in $(seq 400); do
        grep -qF -- "$2" "$1" && return 0
        sleep 0.1
    done
    fault "'$1' does not print '$2': $(tail -n 3 "$1")"
}

# Prints the process that serves; `bitrain hub` itself waits for it.
serving() { pgrep -P $hub; }

# kill_hub kills the hub with -9. hub_again WORDS... starts another one at the same address and in the same folder.
kill_hub() {
    kill -9 $hub
    wait $hub 2>/dev/null
}
hub_again() {
    "${hub_by[@]}" "$BITRAIN" hub --listen "$address" --keys keys --store hub.db --out hub-out --overdue "${overdue:-60}" "$@" >/dev/null 2>>hub.err &
    hub=$!
    started+=($hub)
}

# Ends all islands and then the hub. Each update acknowledged to NAMES... is in the hub's state exactly once; the state
# is that of the newest checkpoint plus the log's later updates, bit for bit. These islands were not restarted, so their
# process has seen all of its updates.
end_and_count() {
    local i told applied_tokens k left of manifest
    kill "${process[@]}" 2>/dev/null
    wait "${process[@]}"
    rm -rf hub-copy
    cp -r hub-out hub-copy # the state that a crash of the hub would leave
    kill $hub
    wait $hub
    manifest=$(ls -d hub-out/step-* | tail -n 1)
    for i in "$@"; do
        told=$(BITRAIN_STORE=$i.db q "SELECT title FROM events WHERE run='isl-$i' AND title LIKE 'hub % has applied %' ORDER BY rowid DESC LIMIT 1")
        left=$(grep -o '[0-9]* left out' <<<"$told" | cut -d' ' -f1)
        of=$(grep -o '[0-9]* updates' <<<"$told" | cut -d' ' -f1)
        told=$(grep -o '[0-9]* tokens' <<<"$told" | cut -d' ' -f1)
        k=$(tr -d '\n ' <"$manifest/manifest.json" | grep -o '"names":"[^"]*"' | grep -o 'isl-[a-z]*' | grep -nx "isl-$i" | cut -d: -f1)
        applied_tokens=$(tr -d '\n ' <"$manifest/manifest.json" | grep -o '"member_tokens":\[[^]]*' | cut -d'[' -f2 | cut -d, -f"$k")
        # If the hub died before it replied, the update is in the hub's tokens, and the island counts it as left out.
        awk -v told="${told:-x}" -v n="$of" -v left="${left:-x}" -v hub="${applied_tokens:-x}" 'BEGIN {
            each = n > 0 ? told / n : 0
            exit !(told != "x" && hub != "x" && n > 0 && hub >= told && hub <= told + (left + 1) * each) }' ||
            fault "island $i has acknowledgements of $of updates of $told tokens ($left left out), the hub has $applied_tokens"
        echo "island $i: $of updates, $told tokens, $left left out; the hub has $applied_tokens"
    done
    BITRAIN_STORE=copy.db "$BITRAIN" hub --listen 127.0.0.1:0 --keys keys --store copy.db --out hub-copy >copy.address 2>copy.err &
    local copy=$!
    started+=($copy)
    until_says copy.err 'the hub continues'
    kill $copy
    wait $copy
    # The head of 64 bytes contains the time and is not compared.
    cmp -s <(cat "$manifest"/data-* | tail -c +65) <(cat "hub-copy/${manifest#hub-out/}"/data-* | tail -c +65) ||
        fault "the log's replay is not the hub's state: $manifest, $(echo hub-copy/step-*)"
}
