#!/usr/bin/env bash
# cli/launch/bitrain@.service under a real systemd: process 1 of new namespaces in a folder of Debian's packages. Started, stopped (also
# with systemd's default KillMode), killed: each time the run goes on from what it had.
# Needs root, debootstrap and a network (not in CI's packages), and a kernel that lets a namespace mount systemd's group hierarchy: skips
# with a reason where they are not. DEBIAN=FOLDER: such a folder that was made before.
# soak: yes
# timeout: 1800
. "$BT_SRC/tests/cli/train_lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root (namespaces, debootstrap)"
command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
root=${DEBIAN:-$tmp/root}
if [ ! -x "$root/lib/systemd/systemd" ]; then
    # the packages of the image, and systemd
    packages=$(sed -n '/--no-install-recommends/,/&& rm/p' "$BT_SRC/cli/launch/Containerfile" | grep -oE '(lib|openmpi|openssh)[a-z0-9.-]*' | paste -sd,)
    debootstrap --variant=minbase --include="systemd,dbus,procps,$packages" bookworm "$root" >debootstrap.log 2>&1 ||
        skip "Debian's packages cannot be fetched: $(tail -n 1 debootstrap.log)"
fi
cp "$BITRAIN" "$root/usr/local/bin/bitrain.new" && mv "$root/usr/local/bin/bitrain.new" "$root/usr/local/bin/bitrain"
cp "$BT_SRC/cli/launch/bitrain@.service" "$root/etc/systemd/system/"
rm -rf "$root"/var/lib/bitrain "$root"/var/lib/private/bitrain "$root"/etc/systemd/system/bitrain@*.d
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
cat >boot.sh <<B
set -e
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
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console \
    systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1
B
setsid unshare --fork --pid --mount --uts --ipc --cgroup --kill-child bash boot.sh >boot.log 2>&1 </dev/null &
boot=$!
started+=($boot)
first() { pgrep -P "$boot" | head -n 1; }
inside() { timeout 150 nsenter -t "$(first)" -p -m -u -i -C env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin BITRAIN_STORE=/var/lib/bitrain/bitrain.db "$@"; }
for i in $(seq 100); do [ "$(inside systemctl is-system-running 2>/dev/null)" = running ] && break; sleep 0.2; done
[ "$(inside systemctl is-system-running 2>/dev/null)" = running ] || skip "systemd does not start in a namespace here: $(tail -n 1 boot.log)"
qi() { inside bitrain query --csv "$1" 2>/dev/null | tail -n +2 | tr -d '"'; }
after() { # STEP: until a later one is recorded
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
# killed: systemd starts it again (group hierarchies of version 1 do not tell that the group is empty: TimeoutStopSec)
inside systemctl start bitrain@demo
after $((last + 10))
inside systemctl kill -s KILL bitrain@demo
for i in $(seq 300); do [ "$(inside systemctl show -p NRestarts --value bitrain@demo)" = 1 ] && break; sleep 0.2; done
[ "$(inside systemctl show -p NRestarts --value bitrain@demo)" = 1 ] || fault "a killed service is not started again"
after $(($(qi "SELECT max(step) FROM steps") + 3)) && stopped "after a kill"
[ "$(qi "SELECT count(*) FROM attempts WHERE from_step > 0")" = 3 ] || fault "the attempts began at $(qi "SELECT group_concat(from_step) FROM attempts")"
finish
