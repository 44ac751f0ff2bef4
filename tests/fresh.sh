#!/usr/bin/env bash
# Builds and tests bitrain in a bare Debian: makes a chroot of the given release and runs the commands of README.md in it.
#
#   tests/fresh.sh 12|13|sid [build]         ./bootstrap build, bitrain doctor --quick
#   tests/fresh.sh 12|13|sid train [...]     the same, then ./bootstrap train [...] (20 steps without words)
#   tests/fresh.sh 12|13|sid test [...]      ./bootstrap test [...]
#   tests/fresh.sh 12|13|sid sh COMMAND      a command in the chroot, in the copy of the tree
#
# Needs root, debootstrap (a package of Debian) and a package server: MIRROR, or else that of this machine or of debootstrap. The chroot
# stays in $FRESH (default: ~/.cache/bitrain-fresh), 1 to 2 GB a release, and is used again: the second run copies the
# files that have changed and installs nothing. FRESH_ARCH=arm64 makes one of that architecture, for which
# qemu-user-static and binfmt-support must be installed. The chroot has its own mounts, process ids and /dev/shm.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '4,7s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
die() { echo "fresh: $*" >&2; exit 1; }

case ${1-} in
12) suite=bookworm ;;
13) suite=trixie ;;
sid) suite=sid ;;
*) usage ;;
esac
goal=${2:-build}
shift
[ $# -eq 0 ] || shift
case $goal in build | train | test) ;; sh) [ $# -gt 0 ] || usage ;; *) usage ;; esac
[ "$(id -u)" = 0 ] || die "a chroot needs root"
command -v debootstrap >/dev/null || die "there is no debootstrap (Debian: debootstrap)"
unshare -m -p -f true 2>/dev/null || die "no permission for mount and process namespaces"

here=$(dpkg --print-architecture)
arch=${FRESH_ARCH:-$here}
folder=${FRESH:-$HOME/.cache/bitrain-fresh}/$suite-$arch
mirror=${MIRROR-}
[ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    awk '($1 == "URIs:" || $1 == "deb") && $2 ~ /\/debian\/?$/ && !found {print $2; found = 1}' || true)

# A folder without the mark is one whose making was interrupted.
if [ ! -e "$folder/root/.fresh" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    debootstrap --variant=minbase --arch="$arch" "$suite" "$folder" ${mirror:+"$mirror"} >"$folder.log" 2>&1 || { tail -n 5 "$folder.log" >&2; die "debootstrap failed ($folder.log)"; }
    # how this machine reaches the network: a proxy, its certificates, its names
    cp /etc/apt/apt.conf.d/*proxy* "$folder/etc/apt/apt.conf.d/" 2>/dev/null || true
    mkdir -p "$folder/etc/ssl"
    cp -rL /etc/ssl/certs "$folder/etc/ssl/" 2>/dev/null || true
    cp /etc/resolv.conf /etc/hosts "$folder/etc/" 2>/dev/null || true
    touch "$folder/root/.fresh"
fi

# The files of the working tree that git does not ignore; the build folder in the chroot is kept. An unchanged file keeps
# its time, so that it is not compiled again.
mkdir -p "$folder/root/bitrain"
(cd "$top" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
    [ ! -e "$f" ] || cmp -s "$f" "$folder/root/bitrain/$f" || printf '%s\0' "$f"
done | tar -c --null -T - | tar -x -m --no-same-owner -C "$folder/root/bitrain")
# files that are gone from the tree
(cd "$folder/root/bitrain" && find . -path ./build -prune -o -type f -print | sed 's|^\./||' | while IFS= read -r f; do
    [ -e "$top/$f" ] || rm -f "$f"
done)

# the chart library of the dashboard, where this tree has it: a machine without a way to its author builds the dashboard too
for part in node_modules/uplot uplot; do
    [ -e "$top/build/web/$part/dist" ] && [ ! -e "$folder/root/bitrain/build/web/$part" ] || continue
    mkdir -p "$folder/root/bitrain/build/web/${part%uplot}"
    cp -r "$top/build/web/$part" "$folder/root/bitrain/build/web/$part"
done

case $goal in
build) run='./bootstrap build && bitrain doctor --quick' ;;
train)
    [ $# -gt 0 ] || set -- --steps 20
    run='./bootstrap build && bitrain doctor --quick && ./bootstrap train "$@"'
    ;;
test) run='./bootstrap test "$@"' ;;
sh) run=$1 && shift ;;
esac

began=$SECONDS
status=0
mapfile -t proxies < <(env | grep -iE '^(http|https|no)_proxy=|^npm_config_|^SSL_CERT|^NODE_EXTRA' || true)
unshare -m -p -f bash -c '
    root=$1 n=$2; shift 2
    proxies=("${@:1:n}"); shift "$n"
    mount --make-rprivate / && mount --bind "$root" "$root" && cd "$root" || exit 1
    mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs -o mode=1777 tmpfs dev/shm && mount -t sysfs sys sys || exit 1
    mkdir -p run/netns
    exec chroot . env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" LANG=C.UTF-8 \
        "${proxies[@]}" bash -c "cd /root/bitrain && $1" fresh "${@:2}"' _ "$folder" "${#proxies[@]}" "${proxies[@]}" "$run" "$@" || status=$?
echo "fresh: $suite $arch, $goal: exit $status after $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s, $(du -sxm "$folder" | cut -f1) MB in '$folder'" >&2
exit "$status"
