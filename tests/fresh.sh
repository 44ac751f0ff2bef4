#!/usr/bin/env bash
# Builds and tests bitrain in a bare Debian: makes a chroot of the given release and runs the commands of README.md in it.
#
#   tests/fresh.sh 12|13|sid [build]         ./bootstrap build, bitrain doctor --quick
#   tests/fresh.sh 12|13|sid train [...]     the same, then ./bootstrap train [...] (20 steps without words)
#   tests/fresh.sh 12|13|sid test [...]      ./bootstrap test [...]
#   tests/fresh.sh 12|13|sid deb             builds the .deb, checks it with lintian, then 'install'
#   tests/fresh.sh 12|13|sid install FILE    installs a .deb in a bare chroot, trains 3 steps and removes it
#   tests/fresh.sh 12|13|sid archive FILE    builds an archive of the sources without git and npm, and trains 3 steps
#   tests/fresh.sh 12|13|sid sh COMMAND      a command in the chroot, in the copy of the tree
#
# Needs root, debootstrap (a package of Debian) and a package server: MIRROR, or else that of this machine or of debootstrap. The chroot
# stays in $FRESH (default: ~/.cache/bitrain-fresh), 1 to 2 GB a release, and is used again: the second run copies the
# files that have changed and installs nothing. FRESH_ARCH=arm64 makes one of that architecture, for which
# qemu-user-static and binfmt-support must be installed. The chroot has its own mounts, process ids and /dev/shm.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '4,10s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
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
case $goal in build | train | test | deb) ;; sh) [ $# -gt 0 ] || usage ;; install | archive) [ $# -eq 1 ] && [ -f "$1" ] || usage ;; *) usage ;; esac
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
make_chroot() {                                  # FOLDER
    local folder=$1
    [ ! -e "$folder/root/.fresh" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    debootstrap --variant=minbase --arch="$arch" "$suite" "$folder" ${mirror:+"$mirror"} >"$folder.log" 2>&1 || { tail -n 5 "$folder.log" >&2; die "debootstrap failed ($folder.log)"; }
    # The chroot uses the proxy, the certificates and the name servers of this machine.
    cp /etc/apt/apt.conf.d/*proxy* "$folder/etc/apt/apt.conf.d/" 2>/dev/null || true
    mkdir -p "$folder/etc/ssl"
    cp -rL /etc/ssl/certs "$folder/etc/ssl/" 2>/dev/null || true
    cp /etc/resolv.conf /etc/hosts "$folder/etc/" 2>/dev/null || true
    touch "$folder/root/.fresh"
}
mapfile -t proxies < <(env | grep -iE '^(http|https|no)_proxy=|^npm_config_|^SSL_CERT|^NODE_EXTRA|^DEB(EMAIL|FULLNAME)=' || true)
# enter FOLDER SCRATCH COMMAND...: runs the command in the chroot FOLDER. If SCRATCH is not empty, it receives all writes, and FOLDER does not change.
enter() {
    unshare -m -p -f bash -c '
        root=$1 scratch=$2 n=$3; shift 3
        proxies=("${@:1:n}"); shift "$n"
        mount --make-rprivate / || exit 1
        if [ -n "$scratch" ]; then
            mkdir -p "$scratch/upper" "$scratch/work" "$scratch/root"
            mount -t overlay overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root" || exit 1
            root=$scratch/root
        else
            mount --bind "$root" "$root" || exit 1
        fi
        cd "$root" && mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs -o mode=1777 tmpfs dev/shm && mount -t sysfs sys sys || exit 1
        mkdir -p run/netns root/bitrain
        exec chroot . env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" LANG=C.UTF-8 \
            "${proxies[@]}" bash -c "cd /root/bitrain && $1" fresh "${@:2}"' _ "$1" "$2" "${#proxies[@]}" "${proxies[@]}" "${@:3}"
}
three_steps='set -o pipefail; bitrain --version && bitrain doctor --quick | tail -n 1 && bitrain train --data synth:chain --steps 3 --set train.eval_tokens=16384 --name three | tail -n 12 && bitrain runs'

# This script installs the package, runs its program and removes it.
installed='set -e; began=$(date +%s); before=$(du -sxm / | cut -f1); apt-get update -qq && apt-get install -y --no-install-recommends ./bitrain.deb >install.log 2>&1 || { tail -n 5 install.log; exit 1; }
    echo "installed in $(($(date +%s) - began)) s, $(($(du -sxm / | cut -f1) - before)) MB on disk, $(grep -c "^Setting up" install.log) packages"
    dpkg -s bitrain | grep -E "^(Version|Maintainer|Architecture)"; '$three_steps'
    for f in man/man1/bitrain.1.gz doc/bitrain/copyright doc/bitrain/README.md bash-completion/completions/bitrain; do
        [ -e "/usr/share/$f" ] || grep -rqs path-exclude /etc/dpkg/dpkg.cfg.d || { echo "not installed: $f"; exit 1; }
    done
    dpkg -r bitrain >/dev/null; [ ! -e /usr/bin/bitrain ]'
install_deb() {                                  # FILE
    make_chroot "$folder-bare"
    rm -rf "$folder-scratch"
    mkdir -p "$folder-scratch/upper/root/bitrain"
    cp "$1" "$folder-scratch/upper/root/bitrain/bitrain.deb"
    enter "$folder-bare" "$folder-scratch" "$installed" || status=$?
    rm -rf "$folder-scratch"
}
report() { echo "fresh: $suite $arch, $goal: exit $status after $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s, $(du -sxm "$1" | cut -f1) MB in '$1'" >&2; }

began=$SECONDS
status=0
if [ "$goal" = install ]; then
    install_deb "$1"
    report "$folder-bare"
    exit "$status"
fi
make_chroot "$folder"

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
deb)
    # Without DEBEMAIL the maintainer is the user of this machine, an address that lintian refuses.
    local_address=
    [ -n "${DEBEMAIL-}" ] || local_address='--suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact'
    run='./bootstrap build &&
        { command -v lintian >/dev/null || apt-get install -y --no-install-recommends lintian dpkg-dev file >/dev/null; } &&
        rm -f build/*.deb && { cmake --build build --target deb >build/package.log 2>&1 || { tail -n 5 build/package.log; exit 1; }; } && ls -l build/*.deb &&
        { lintian --no-cfg --allow-root --fail-on error '$local_address' build/*.deb || { echo "lintian: exit $?"; exit 1; }; }'
    ;;
archive)
    rm -rf "$folder/root/archive"
    mkdir "$folder/root/archive"
    tar -xz --strip-components=1 -C "$folder/root/archive" <"$1"
    run='cd ../archive && { for p in git npm; do ! command -v $p || { echo "archive: this chroot has $p"; exit 1; }; done; } && ./bootstrap build && bitrain --help >/dev/null &&
        { [ ! -e build/web/node_modules ] && bitrain dash --help >/dev/null || { echo "archive: the chart library is not that of the archive"; exit 1; }; } && '$three_steps
    ;;
sh) run=$1 && shift ;;
esac

enter "$folder" "" "$run" "$@" || status=$?
if [ "$goal" = deb ] && [ "$status" = 0 ]; then install_deb "$folder"/root/bitrain/build/*.deb; fi
report "$folder"
exit "$status"
