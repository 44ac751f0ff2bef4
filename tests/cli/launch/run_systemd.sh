#!/usr/bin/env bash
# ctest: timeout=1800 soak
# The units of cli/launch under a real systemd, which is process 1 of new namespaces in a folder of Debian's packages. A
# run is started, stopped (also with systemd's default KillMode) and killed: each time it continues from its state, also
# beside another run. A hub with three islands: killing or stopping an island, and killing or aborting the hub, has no
# effect on the other islands. The test needs root, debootstrap and a network (not in CI's packages), and a kernel that
# lets a namespace mount systemd's group hierarchy; otherwise it is skipped with a reason. DEBIAN=FOLDER: an existing
# folder of this kind.
. "$BT_SRC/tests/cli/train_lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root (namespaces, debootstrap)"
command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
root=${DEBIAN:-$tmp/root}
if [ ! -x "$root/lib/systemd/systemd" ]; then
    # the packages of the image, and systemd
    cpack --config "$BT_BIN/CPackConfig.cmake" -B "$tmp" >package.out 2>&1 || fault "no package: $(tail -n 2 package.out)"
    packages=$(dpkg-deb -f "$tmp"/bitrain_*.deb Depends | sed 's/([^)]*)//g; s/ //g')
    [[ $packages == *libopenmpi* ]] || fault "the packages that ours needs are '$packages'"
    if ! debootstrap --variant=minbase --include="systemd,dbus,procps,$packages" bookworm "$root" >debootstrap.log 2>&1; then
        ! grep "Couldn't find these debs" debootstrap.log || { fault "a package of the image is none of Debian's"; exit 1; }
        skip "Debian's packages cannot be fetched: $(tail -n 1 debootstrap.log)"
    fi
fi
cp "$BITRAIN" "$root/usr/local/bin/bitrain.new" && mv "$root/usr/local/bin/bitrain.new" "$root/usr/local/bin/bitrain"
cp "$BT_SRC"/cli/launch/bitrain*.service "$root/etc/systemd/system/"
rm -rf "$root"/var/lib/bitrain* "$root"/var/lib/private/bitrain* "$root"/etc/systemd/system/bitrain*.d "$root"/etc/bitrain
mkdir -p "$root/etc/bitrain"
printf '[Unit]\nRequires=dbus.service\nAfter=dbus.service\nAllowIsolate=yes\n' >"$root/etc/systemd/system/test.target"
ln -sfn /etc/systemd/system/test.target "$root/etc/systemd/system/default.target"
cat >"$root/etc/bitrain/demo.yaml" <<'Y'
model: {preset: nano, layers: 2, d_model: 128, heads: 2, kv_heads: 2, d_ff: 256, seq_len: 64}
data: {path: 'synth:chain'}
train: {batch_tokens: 1024, eval_tokens: 256, eval_every: 1000000, steps: 100000}
launch: {threads: 1, ranks: 2}
ckpt: {minutes: 0}
Y
cp "$root/etc/bitrain/demo.yaml" "$root/etc/bitrain/other.yaml"
for i in a b c; do
    sed "s/ranks: 2/ranks: 1/; \$ a islands: {hub: '127.0.0.1:8160'}" "$root/etc/bitrain/demo.yaml" >"$root/etc/bitrain/$i.yaml"
done
"$BITRAIN" hub --keys keys a b c >/dev/null 2>&1 || fault "no keys"
install -m 600 keys/hub.key keys/[abc].key "$root/etc/bitrain/"
cp -r keys/allowed "$root/etc/bitrain/allowed"
cat >boot.sh <<B
set -e
ip link set lo up
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t sysfs -o ro sysfs sys || mount --rbind /sys sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mount --rbind /dev dev
mkdir -p old
pivot_root . old
umount -l /old
# A container manager does the same; otherwise LoadCredential= would leave an empty folder.
mount --make-rshared /
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console \
    systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1
B
setsid unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child bash boot.sh >boot.log 2>&1 </dev/null &
boot=$!
started+=($boot)
first() { pgrep -P "$boot" | head -n 1; }
inside() { timeout 150 nsenter -t "$(first)" -p -m -u -i -n -C env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin BITRAIN_STORE=/var/lib/bitrain/bitrain.db "$@"; }
for i in $(seq 100); do [ "$(inside systemctl is-system-running 2>/dev/null)" = running ] && break; sleep 0.2; done
[ "$(inside systemctl is-system-running 2>/dev/null)" = running ] || skip "systemd does not start in a namespace here: $(tail -n 1 boot.log)"
qi() { inside bitrain query --csv "$1" 2>/dev/null | tail -n +2 | tr -d '"'; }
after() { # STEP: waits until a later step is recorded
    local i
    for i in $(seq 300); do [ "$(qi "SELECT max(step) FROM steps")" -gt "$1" ] 2>/dev/null && return 0; sleep 0.1; done
    fault "no step after $1: $(inside journalctl -u bitrain@demo --no-pager -n 3 2>&1 | tail -n 3)"
    return 1
}
stopped() { # WHAT
    local t=$(date +%s.%N)
    inside systemctl stop bitrain@demo
    echo "$1: systemctl stop took $(awk -v a="$t" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}') s"
    [ "$(inside systemctl show -p Result --value bitrain@demo)" = success ] || fault "$1: result $(inside systemctl show -p Result --value bitrain@demo)"
    last=$(qi "SELECT max(step) FROM steps")
    inside test -f "/var/lib/bitrain/runs/demo/step-$(printf %012d $((last + 1)))/manifest.json" || fault "$1: no checkpoint of step $last"
}

last=-1
inside systemctl start bitrain@demo || fault "the service does not start"
after 10 && stopped "KillMode=mixed"
inside sh -c 'mkdir -p /etc/systemd/system/bitrain@demo.service.d; printf "[Service]\nKillMode=control-group\nTimeoutStopSec=5\nRestartSec=1\n" >/etc/systemd/system/bitrain@demo.service.d/k.conf; systemctl daemon-reload'
inside systemctl start bitrain@demo
after $((last + 10)) && stopped "KillMode=control-group"
# The service is killed and systemd restarts it. (Version 1 of the group hierarchy does not signal that the group is
# empty: TimeoutStopSec.)
inside systemctl start bitrain@demo
after $((last + 10))
inside systemctl kill -s KILL bitrain@demo
for i in $(seq 300); do [ "$(inside systemctl show -p NRestarts --value bitrain@demo)" = 1 ] && break; sleep 0.2; done
[ "$(inside systemctl show -p NRestarts --value bitrain@demo)" = 1 ] || fault "a killed service is not started again"
after $(($(qi "SELECT max(step) FROM steps") + 3)) && stopped "after a kill"
[ "$(qi "SELECT count(*) FROM attempts WHERE from_step > 0")" = 3 ] || fault "the attempts began at $(qi "SELECT group_concat(from_step) FROM attempts")"

# Two concurrent runs share the folder and the database.
inside systemctl start bitrain@demo bitrain@other || fault "two services do not start"
after $((last + 10))
last=$(qi "SELECT max(step) FROM steps WHERE run='demo'")
steps_of() { qi "SELECT coalesce(max(step) + 1, 0) FROM steps WHERE run='$1'"; }
until_run() { # RUN STEPS
    local i
    for i in $(seq 400); do [ "$(steps_of "$1")" -ge "$2" ] 2>/dev/null && return 0; sleep 0.1; done
    fault "run $1 has $(steps_of "$1") steps, not $2: $(inside journalctl -u "$3" --no-pager -n 3 2>&1 | tail -n 3)"
    return 1
}
until_run other 10 bitrain@other
until_run demo $((last + 10)) bitrain@demo
inside systemctl stop bitrain@demo bitrain@other
for i in demo other; do [ "$(inside systemctl show -p Result --value bitrain@$i)" = success ] || fault "$i: result $(inside systemctl show -p Result --value bitrain@$i)"; done

# A hub and three islands.
qh() { inside env BITRAIN_STORE=/var/lib/bitrain-hub/hub.db bitrain query --csv "$1" 2>/dev/null | tail -n +2 | tr -d '"'; }
restarts() { inside systemctl show -p NRestarts --value "$1"; }
until_restarts() { # UNIT N
    local i
    for i in $(seq 300); do [ "$(restarts "$1")" = "$2" ] && return 0; sleep 0.2; done
    fault "$1 was started again $(restarts "$1") times, not $2"
}
inside sh -c 'for u in bitrain-hub.service bitrain-island@.service; do mkdir -p /etc/systemd/system/$u.d; printf "[Service]\nTimeoutStopSec=5\nRestartSec=1\n" >/etc/systemd/system/$u.d/k.conf; done; systemctl daemon-reload'
inside systemctl start bitrain-hub || fault "the hub's service does not start"
inside systemctl start bitrain-island@a bitrain-island@b bitrain-island@c || fault "the islands' services do not start"
until_run a 10 bitrain-island@a && until_run b 10 bitrain-island@b && until_run c 10 bitrain-island@c
inside systemctl kill -s KILL bitrain-island@a
until_restarts bitrain-island@a 1
until_run a $(($(steps_of b) + 20)) bitrain-island@a
# libzmq aborts: the hub's first process starts another one, and systemd does not intervene.
inside sh -c 'kill -ABRT $(pgrep -P $(systemctl show -p MainPID --value bitrain-hub))'
until_run a $(($(steps_of a) + 20)) bitrain-island@a
[ "$(restarts bitrain-hub)" = 0 ] || fault "the hub's service was started again after an abort"
[ "$(qh "SELECT count(*) FROM events WHERE kind='restarted'")" = 1 ] || fault "the abort is not recorded: $(qh "SELECT title FROM events")"
# The whole service is killed.
inside systemctl kill -s KILL bitrain-hub
until_restarts bitrain-hub 1
until_run a $(($(steps_of a) + 20)) bitrain-island@a
for i in b c; do [ "$(restarts bitrain-island@$i)" = 0 ] || fault "island $i was started again"; done
[ "$(qh "SELECT count(*) - max(step) - 1 FROM steps WHERE run='hub'")" -le 0 ] || fault "the hub has steps twice"
# A notice to an island: it saves and exits, and the other islands continue.
inside systemctl stop bitrain-island@b
[ "$(inside systemctl show -p Result --value bitrain-island@b)" = success ] || fault "island b: result $(inside systemctl show -p Result --value bitrain-island@b)"
inside sh -c 'ls /var/lib/bitrain/runs/b/step-*/manifest.json' >/dev/null 2>&1 || fault "island b left no checkpoint"
[ "$(qh "SELECT count(*) FROM events WHERE kind='island_left' AND title LIKE '%''b''%'")" = 1 ] || fault "the hub does not know that island b left: $(qh "SELECT title FROM events")"
n=$(steps_of a)
until_run a $((n + 20)) bitrain-island@a
inside systemctl start bitrain-island@b
until_run b $((n + 30)) bitrain-island@b
t=$(date +%s.%N)
inside systemctl stop bitrain-island@a bitrain-island@b bitrain-island@c bitrain-hub
echo "a hub and three islands: systemctl stop took $(awk -v a="$t" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}') s"
[ "$(inside systemctl show -p Result --value bitrain-hub)" = success ] || fault "the hub: result $(inside systemctl show -p Result --value bitrain-hub)"
[ "$(inside stat -c %u /var/lib/bitrain-hub/hub.db)" != "$(inside stat -c %u /var/lib/bitrain/bitrain.db)" ] || fault "hub and islands are one user"
finish
