# ctest: timeout=400 labels=mpi waits
# run_islands_cut.sh - a link between a hub and an island is cut without a message, in both directions and in one
# (network namespaces), and machines are switched off: both sides detect it. The hub declares the island dead and
# assigns its data again, and the other island continues; the island reports it, waits or continues with its own steps,
# and joins again when the link works. No update is lost or applied twice.
. "$BT_SRC/tests/cli/train_lib.sh"
. "$BT_SRC/tests/cli/hosts_lib.sh"
hub_at=10.77.$id.1:0
. "$BT_SRC/tests/cli/islands/islands_lib.sh"
export BITRAIN_STORE=hub.db
command -v ss >/dev/null || skip "no 'ss' (iproute2)"
near=(ip netns exec ${ns}1) far=(ip netns exec ${ns}2)
hub_by=("${near[@]}")
times=(--set islands.link_timeout=1)

begin() { # GRACE WORDS...: starts the hub and island a on one host, island b on another
    local grace=$1; shift
    rm -rf out-* hub-out ./*.db* ./*.err
    start_hub --islands 2 --name hub --grace "$grace" --link-timeout 1
    island_by=("${near[@]}")
    start_island a "${times[@]}" --steps 100000000 "$@"; process[a]=$island
    island_by=("${far[@]}")
    start_island b "${times[@]}" --steps 100000000 "$@"; process[b]=$island
    until_step a 10
    until_step b 10
}
# mute K: packets from host K are lost, because their link address belongs to no machine.
mute() { ip -n $ns$1 neigh replace 10.77.$id.$((3 - $1)) lladdr 02:00:00:00:00:01 dev v$1$$ nud permanent; }
cut_link() {
    case $1 in
    down) ip -n ${ns}2 link set v2$$ down ;;
    near) mute 1 ;; # packets of the hub are lost
    far) mute 2 ;; # packets of the island are lost
    esac
}
mend_link() {
    case $1 in
    down) ip -n ${ns}2 link set v2$$ up ;;
    near) ip -n ${ns}1 neigh del 10.77.$id.2 dev v1$$ ;;
    far) ip -n ${ns}2 neigh del 10.77.$id.1 dev v2$$ ;;
    esac
}
# Prints the number of connections of host K with the other host that its system considers established.
whole() { ip netns exec $ns$1 ss -Htn state established dst 10.77.$id.$((3 - $1)) | wc -l; }
until_broken() { # K: waits until host K has no established connection (40 s)
    local i
    for i in $(seq 400); do
        [ "$(whole $1)" = 0 ] && return 0
        sleep 0.1
    done
    fault "host $1 takes its connection for whole: $(ip netns exec $ns$1 ss -tnoi dst 10.77.$id.$((3 - $1)))"
}
until_count() { # N FILE TEXT: waits until N lines contain the text (40 s)
    local i
    for i in $(seq 400); do
        [ "$(grep -c -- "$3" "$2")" -ge "$1" ] && return 0
        sleep 0.1
    done
    fault "'$2' does not print '$3' $1 times: $(tail -n 3 "$2")"
}

# All islands make each step together: b is missed, a continues without it, b returns.
begin 1 --mode sync
[ "$(whole 1)" -ge 1 ] && [ "$(whole 2)" -ge 1 ] || fault "no connection is seen: $(whole 1), $(whole 2)"
k=0
for how in down far; do
    k=$((k + 1))
    cut_link $how
    until_broken 1
    until_broken 2
    until_count $k hub.err "island 'isl-b' is declared dead after step [0-9]* (its connection is gone)"
    n=$(steps a)
    until_step a $((n + 20))
    until_count $k b.err "the hub does not respond; still trying\|nothing accepts connections at the hub's address"
    m=$(steps b)
    mend_link $how
    until_step b $((m + 20))
    n=$(BITRAIN_STORE=b.db q "SELECT count(*) FROM events WHERE run='isl-b' AND title LIKE '%the hub responds again'")
    [ "$n" = $k ] || fault "island b prints $n times that the hub responds again, not $k"
done
[ "$(grep -c 'is declared dead' hub.err)" = 2 ] || fault "other ones were lost as well: $(grep 'declared dead' hub.err)"
grep 'is declared dead' hub.err | grep -qv ' 0 sequences come back' || fault "no data was returned: $(grep 'declared dead' hub.err)"

# A machine that is switched off does not close its connections: first the island's, then the hub's.
cut_link down
kill -9 $(ip netns pids ${ns}2) 2>/dev/null
wait "${process[b]}" 2>/dev/null
until_count 3 hub.err "island 'isl-b' is declared dead after step [0-9]* (its connection is gone)"
n=$(steps a)
until_step a $((n + 20))
mend_link down
start_island b "${times[@]}" --steps 100000000 --mode sync --continue; process[b]=$island
until_step b $((n + 20))
cut_link down
kill_hub
until_broken 2
hub_again --islands 2 --name hub --grace 1 --link-timeout 1
n=$(steps a)
until_step a $((n + 20))
mend_link down
until_step b $((n + 20))
[ "$(q "SELECT count(*) - max(step) - 1 FROM steps WHERE run='hub'")" -le 0 ] || fault "the hub has steps twice"
end_and_count a # b was restarted, so it has no record of its earlier updates

# Islands make own steps: b continues with them, the hub waits for the updates that b has sent or sends again, and b
# never has to join again.
begin 100 --mode diloco --inner 200 --batch-tokens 128 --set islands.warmup=0 --set islands.outer_momentum=0 --codec int8 --set islands.away=150
until_step b 210
cut_link near
until_says b.err 'training continues without it for at most 150 steps'
until_broken 1
until_broken 2
n=$(($(steps b) / 200 * 200))
until_step b $((n + 20))
mend_link near
until_step b $((n + 420))
title="$(BITRAIN_STORE=b.db q "SELECT title FROM events WHERE run='isl-b' AND title LIKE '%done meanwhile%' LIMIT 1")"
[[ $title == *"has this island's update; "*" are part of the next one"* ]] || fault "island b does not print that its steps are kept: '$title'"
[ "$(grep -c "island 'isl-b' on .* joined" hub.err)" = 1 ] || fault "island b joined $(grep -c "island 'isl-b' on .* joined" hub.err) times"
! grep -q 'declared dead' hub.err || fault "an island was lost: $(grep 'declared dead' hub.err)"
end_and_count a b
BITRAIN_STORE=b.db q "SELECT title FROM events WHERE run='isl-b' AND title LIKE 'hub % has applied %' ORDER BY rowid DESC LIMIT 1" | grep -q ' 0 left out' ||
    fault "an update of island b was left out"
exit $((faults > 0))
