#!/usr/bin/env bash
# This script builds bitrain for another processor on this machine and tests it under emulation.
#
#   tests/cross.sh arm64|riscv64 sysroot    fetches the libraries of that processor into a folder, from packages of Debian
#   tests/cross.sh arm64|riscv64 build      builds build-arm64/bitrain or build-riscv64/bitrain
#   tests/cross.sh arm64|riscv64 deb        the same, then its .deb, and whether apt finds all that it depends on
#   tests/cross.sh arm64|riscv64 rows       builds the kernels alone and runs their test without products under qemu-user
#   tests/cross.sh arm64|riscv64 kernels    runs all tests of the kernels under qemu-user
#   tests/cross.sh arm64|riscv64 train      compares the losses of three steps with those of this machine
#   tests/cross.sh arm64|riscv64 [all]      runs build, kernels and train
#
# It needs a cross compiler, qemu-user (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static), apt and a
# package server: that of this machine, or MIRROR. If a program is missing, it prints its name and exits with 77. The
# folder is $CROSS/ARCH (default: ~/.cache/bitrain-cross), 0.6 GB, and is used again. The script needs no root and
# installs nothing. CROSS_SUITE names the release of Debian (default: this machine's; riscv64: trixie). Emulation tests
# values, not times.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '4,10s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
die() { echo "cross: $*" >&2; exit 1; }

arch=${1-}
goal=${2:-all}
case $arch in arm64) cpu=aarch64 ;; riscv64) cpu=riscv64 ;; *) usage ;; esac
case $goal in sysroot | build | deb | rows | kernels | train | all) ;; *) usage ;; esac
triple=$cpu-linux-gnu
root=${CROSS:-$HOME/.cache/bitrain-cross}/$arch
build=$top/build-$arch

missing=
for program in "$triple-gcc" dpkg-deb apt-get cmake ninja; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
qemu=$(command -v "qemu-$cpu-static" || command -v "qemu-$cpu" || true)
[ -n "$qemu" ] || missing="$missing qemu-$cpu"
if [ -n "$missing" ]; then
    echo "SKIP: a cross build for $arch needs$missing (Debian: apt-get install gcc-$triple libc6-dev-$arch-cross qemu-user-static)"
    exit 77
fi

# ---- the libraries ---------------------------------------------------------------------------------------------
use_apt() {
    suite=${CROSS_SUITE-} mirror=${MIRROR-} apt=$root.apt
    [ -n "$suite" ] || [ "$arch" != riscv64 ] || suite=trixie
    [ -n "$suite" ] || suite=$(. /etc/os-release && [ "${ID-}" = debian ] && echo "${VERSION_CODENAME-}" || true)
    [ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk '($1 == "URIs:" || $1 == "deb") && $2 ~ /\/debian\/?$/ && !found {print $2; found = 1}' || true)
    [ -n "$mirror" ] || die "no package server is known: name one with MIRROR=http://..."
    rm -rf "$apt"
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,parts}
    echo "deb $mirror ${suite:-trixie} main" >"$apt/sources.list"
    : >"$apt/status"
    options=(-o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o "Dir::State=$apt/state"
        -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o "Dir::Etc::sourcelist=$apt/sources.list"
        -o "Dir::Etc::sourceparts=$apt/parts" -o APT::Install-Recommends=false -o APT::Sandbox::User= -o Debug::NoLocking=1)
    apt-get "${options[@]}" update >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; die "the package lists of $arch could not be fetched ($root.log)"; }
}

make_sysroot() {
    [ ! -e "$root/.complete" ] || [ ! -e "$root/DEBIAN/shlibs" ] || return 0
    local suite mirror apt options packages deb link target up
    use_apt
    rm -rf "$root"
    mkdir -p "$root"/usr/{lib,bin,sbin} "$root/DEBIAN"     # dpkg-shlibdeps looks in DEBIAN for the packages of the libraries
    # ./bootstrap lists the libraries of the build and of the unit tests.
    packages="base-files $(grep -oE '^(lib[a-z0-9.+-]+|zlib1g)-dev ' "$top/bootstrap")"  # base-files: the release, for the package
    # shellcheck disable=SC2086
    apt-get "${options[@]}" install -y --download-only $packages >"$root.log" 2>&1 ||
        { tail -n 5 "$root.log" >&2; die "the packages of $arch could not be fetched ($root.log)"; }
    # An installed system has links into /usr: packages use both paths.
    for link in lib bin sbin lib64; do ln -s "usr/${link%64}" "$root/$link"; done
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink
        dpkg-deb --info "$deb" shlibs >>"$root/DEBIAN/shlibs" 2>/dev/null || true
    done
    # An absolute link would lead out of the folder.
    (cd "$root" && find . -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
        target=$(readlink "$link")
        up=$(dirname "${link#./}" | sed 's|[^/]\+|..|g')
        ln -sfn "$up$target" "$link"
    done)
    # update-alternatives makes this link on an installed system.
    ln -s openblas-pthread/libopenblas.so.0 "$root/usr/lib/$triple/libopenblas.so.0" 2>/dev/null || true
    rm -rf "$apt"
    touch "$root/.complete"
    echo "cross: $(du -sm "$root" | cut -f1) MB of ${suite:-trixie} for $arch in '$root'"
}

configure() {
    [ -e "$build/build.ninja" ] ||
        cmake -S "$top" --preset "$arch" -DBITRAIN_SYSROOT="$root" ${CROSS_CMAKE-} >"$root.cmake.log" 2>&1 ||
        { tail -n 10 "$root.cmake.log" >&2; die "cmake failed ($root.cmake.log)"; }
}

build_targets() {
    cmake --build "$build" --target "$@" >"$root.build.log" 2>&1 ||
        { grep -E -m 10 'error|FAILED|undefined' "$root.build.log" >&2 || tail -n 10 "$root.build.log" >&2; die "the build failed ($root.build.log)"; }
}

# The package, and what apt would install with it on a machine of that processor
build_deb() {
    local suite mirror apt options package
    rm -f "$build"/*.deb
    build_targets deb
    package=$(echo "$build"/*.deb)
    echo "cross: $package: $(dpkg-deb -f "$package" Depends)"
    use_apt
    apt-get "${options[@]}" -s install "$package" >"$root.log" 2>&1 || { tail -n 8 "$root.log" >&2; die "apt does not find what '$package' depends on ($root.log)"; }
    echo "cross: apt would install it with $(($(grep -c '^Inst ' "$root.log") - 1)) packages of ${suite:-trixie} $arch"
    rm -rf "$apt"
}

emulated() { "$qemu" -L "$root" "$@"; }

# ---- the kernels' tests ----------------------------------------------------------------------------------------
# The products take most of the time, and the loops of generic most of that: where this machine has the test built, its
# generic writes the expected results, and each emulated set is compared with these.
kernel_tests=(isa attention_int8 stats ops exact ternary auto_isa)
# The processors of QEMU on which products run, and the set that they choose: an instruction that a core lacks ends the test.
own=generic product_rows=("max generic")
[ "$arch" != arm64 ] || { own=neon product_rows=("max neon" "cortex-a76 neon" "cortex-a72 neon"); }

# run_test NAME PROGRAM runs a test under emulation in $work.
run_test() {
    local rc=0
    (cd "$work" && emulated "$2") >"$work/out" 2>&1 || rc=$?
    if [ $rc -eq 0 ] && grep -q '^\[       OK' "$work/out" && ! grep -q "^skipped: no $own " "$work/out"; then
        echo "cross: $arch: $1: $(grep -c '^\[       OK' "$work/out") cases pass"
    else
        failed=1
        grep -vE '^\[ RUN|^\[       OK' "$work/out" | tail -n 12
        echo "FAIL: $1 on $arch: $rc"
    fi
}

run_rows() {
    local failed=0 work
    work=$(mktemp -d)
    run_test engine.kernels.isa "$build/tests/kernels_alone"
    rm -rf "$work"
    [ $failed -eq 0 ]
}

run_kernels() {
    local test row core failed=0 work native=$top/build/tests/t.engine.kernels.products
    build_targets "${kernel_tests[@]/#/t.engine.kernels.}" t.engine.kernels.products
    work=$(mktemp -d)
    for test in "${kernel_tests[@]}"; do
        run_test "engine.kernels.$test" "$build/tests/t.engine.kernels.$test"
    done
    export BT_TEST_ORACLE=$work/oracle BT_TEST_SET=generic
    [ ! -x "$native" ] || [ "$arch" = riscv64 ] || "$native" >"$work/out" 2>&1 || rm -f "$BT_TEST_ORACLE"
    for row in "${product_rows[@]}"; do
        read -r core BT_TEST_SET <<<"$row"
        [ "$core" = max ] || export QEMU_CPU=$core
        run_test "engine.kernels.products of $BT_TEST_SET on $core" "$build/tests/t.engine.kernels.products"
    done
    unset BT_TEST_ORACLE BT_TEST_SET QEMU_CPU
    rm -rf "$work"
    [ $failed -eq 0 ]
}

# ---- three steps -----------------------------------------------------------------------------------------------
# This stands for mpirun, which cannot start programs of another processor. MPI of a rank alone starts no daemon
# (singleton_isolated).
stand_in() {
    mkdir -p "$1/bin"
    cat >"$1/bin/mpirun" <<END
#!/usr/bin/env bash
case " \$* " in *' --version '*) echo 'mpirun (Open MPI) 4.1.4'; exit 0 ;; esac
while [ \$# -gt 0 ] && [ "\$(basename -- "\$1")" != bitrain ]; do shift; done
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
export OMPI_MCA_ess_singleton_isolated=1
exec '$qemu' -L '$root' "\$@"
END
    chmod +x "$1/bin/mpirun"
}

# losses NAME ISA PROGRAM... prints the losses of three steps, one a line.
losses() {
    local name=$1 isa=$2 folder=$work
    shift 2
    "$@" train --name "$name" --store "$folder/s.db" --out "$folder/$name" --data "$top/README.md" --preset nano \
        --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=192 --set model.seq_len=64 \
        --batch-tokens 512 --micro-batch 8 --steps 3 --ranks 1 --threads 1 --seed 5 --isa "$isa" --set train.grad=int8 \
        --set train.attention=int8 --quiet </dev/null >"$folder/out" 2>&1 || { tail -n 5 "$folder/out" >&2; return 1; }
    "$@" query --csv --store "$folder/s.db" "select printf('%.17g', loss) as loss from steps where run = '$name' order by step" |
        grep '^[0-9]'
}

# same_losses GOT WANT: equal bits; on RISC-V within 1e-12, because the logarithm of its C library (trixie's) differs in the last bit
same_losses() {
    [ "$(wc -l <"$1")" = 3 ] || return 1
    cmp -s "$1" "$2" && return 0
    [ "$arch" = riscv64 ] && paste "$1" "$2" | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 1e-12) exit 1}'
}

run_train() {
    local work failed=0 row isa like here=${BITRAIN:-$top/build/bitrain}
    local rows=("generic generic")
    # NEON computes in the order of AVX2, with every form of the dot product.
    [ "$arch" != arm64 ] || rows+=("neon avx2" "neon-dotprod avx2" "neon-plain avx2")
    work=$(mktemp -d)
    stand_in "$work"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for row in "${rows[@]}"; do
        read -r isa like <<<"$row"
        PATH="$work/bin:$PATH" losses "$arch-$isa" "$isa" "$qemu" -L "$root" "$build/bitrain" >"$work/$isa.got" || { echo "FAIL: no training with --isa $isa"; failed=1; continue; }
        if [ ! -x "$here" ] || { [ "$like" = avx2 ] && ! grep -qw avx2 /proc/cpuinfo; }; then
            echo "cross: $arch: --isa $isa trains; '$like' of this machine is not there to compare"
            continue
        fi
        [ -e "$work/$like.want" ] || losses "here-$like" "$like" "$here" >"$work/$like.want"
        if same_losses "$work/$isa.got" "$work/$like.want"; then
            echo "cross: $arch: three steps with --isa $isa: the losses of $like here ($(tr '\n' ' ' <"$work/$isa.got"))"
        else
            echo "FAIL: --isa $isa on $arch and $like here differ:"
            paste -d '|' "$work/$isa.got" "$work/$like.want"
            failed=1
        fi
    done
    rm -rf "$work"
    [ $failed -eq 0 ]
}

make_sysroot
[ "$goal" = sysroot ] && exit 0
configure
case $goal in
build) build_targets bitrain ;;
deb) build_deb ;;
rows)
    build_targets kernels_alone
    run_rows
    ;;
kernels) run_kernels ;;
train)
    build_targets bitrain
    run_train
    ;;
all)
    build_targets bitrain
    run_kernels
    run_train
    ;;
esac
