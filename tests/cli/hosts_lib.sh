# hosts_lib.sh - two hosts made of network namespaces: own network, own host name, a script in place of ssh. Sourced
# after train_lib.sh; needs root. With FAR_SHM=1 the second host also has its own /dev/shm: the folder $far_shm, which
# remains when its ranks end. `hosts N M` writes hosts.txt with this many slots on each host; `here...` runs a command
# on the first host.
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no 'ip' (iproute2)"

id=$((RANDOM % 200 + 20))
ns=btt$$
hn=n$$- # host names: ${hn}1, ${hn}2
cleanup() {
    [ "$BASHPID" = $$ ] || return # only the test itself cleans up, not its children
    local k p
    for k in 1 2; do
        for p in $(ip netns pids $ns$k 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
        ip netns del $ns$k 2>/dev/null
        rm -rf /etc/netns/$ns$k
    done
    [ -n "$far_shm" ] && rm -rf "$far_shm"
    end
}
trap cleanup EXIT
far_shm=
[ -z "${FAR_SHM:-}" ] || { far_shm=/dev/shm/btfar$$; mkdir "$far_shm" && chmod 1777 "$far_shm" || skip "no /dev/shm"; }
for k in 1 2; do ip netns add $ns$k 2>/dev/null || skip "cannot make a network namespace here"; done
ip netns exec ${ns}1 true 2>err || skip "cannot enter a network namespace here ($(tail -n 1 err))"
ip link add v1$$ netns ${ns}1 type veth peer name v2$$ netns ${ns}2 2>/dev/null || skip "cannot make a veth pair here"
for k in 1 2; do
    ip -n $ns$k addr add 10.77.$id.$k/24 dev v$k$$
    ip -n $ns$k link set v$k$$ up
    ip -n $ns$k link set lo up
done
mkdir bin
cat >bin/ssh <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do case \$1 in -x|-n|-q|-f) shift;; *) shift 2;; esac; done
host=\$1; shift
k=\${host##*.} # 10.77.x.2, or node2.lab.test: no other name is known here
case \$host in *[!0-9.]*) k=\${host#node}; k=\${k%%.*}; [ "\$host" = "node\$k.lab.test" ] || { echo "ssh: Could not resolve hostname \$host" >&2; exit 255; } ;; esac
exec ip netns exec "$ns\$k" unshare -um sh -c "hostname $hn\$k; [ -z '$far_shm' ] || mount --bind '$far_shm' /dev/shm; mount -t tmpfs none '$TMPDIR'; \$*"
END
chmod +x bin/ssh
hosts() { printf '10.77.%d.1 slots=%d\n10.77.%d.2 slots=%d\n' $id $1 $id $2 >hosts.txt; }
# The same hosts by full names, which both resolve.
named_hosts() {
    local k
    printf 'node1.lab.test slots=%d\nnode2.lab.test slots=%d\n' $1 $2 >hosts.txt
    for k in 1 2; do
        mkdir -p /etc/netns/$ns$k || return
        printf '127.0.0.1 localhost\n10.77.%d.1 node1.lab.test\n10.77.%d.2 node2.lab.test\n' $id $id >/etc/netns/$ns$k/hosts
    done
}
export OMPI_MCA_plm_rsh_agent="$tmp/bin/ssh"
unset OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy
here=(ip netns exec ${ns}1 unshare -u sh -c "hostname ${hn}1; exec \"\$@\"" sh)
# lists segments of these hosts' ranks that remain in /dev/shm
left() { ls /dev/shm/ $far_shm | grep "^\(vader\|sm\)_segment.$hn[12]\."; }
no_segments() {
    local i
    for i in $(seq 150); do [ -z "$(left)" ] && return; sleep 0.1; done
    fault "left on a far host: $(left)"
    rm -f /dev/shm/{vader,sm}_segment."$hn"[12].*
    [ -z "$far_shm" ] || rm -f "$far_shm"/{vader,sm}_segment.*
}
