#!/bin/sh
# The portable layer and the unit tests on arm64: Debian's packages for arm64, their programs run by qemu-aarch64.
#
#     sh tests/architectures/run.sh [portable|unit|all] [PYTEST_ARGUMENT...]
#     sh tests/architectures/run.sh shell [COMMAND...]
#
# Needs the network the first time, apt of a Debian and a kernel from 6.7 on, where a user namespace has programs'
# interpreters of its own: nothing is registered for the rest of the machine, and no superuser is needed where ordinary
# users may make namespaces. Everything is kept in .cache/architectures (600 MB).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
cache=${CACHE:-$source/.cache/architectures}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
. "$here/debian.sh"
root=$cache/root-arm64
triple=aarch64-linux-gnu
packages="base-files coreutils dash util-linux ca-certificates python3 python3-alembic python3-click python3-docker
  python3-hypothesis python3-numpy python3-onnx python3-onnxruntime python3-packaging python3-pil python3-psutil
  python3-pydantic python3-pytest python3-requests python3-rich python3-sqlalchemy python3-yaml"

prepare_emulator() {
  [ -x "$cache/qemu/usr/bin/qemu-aarch64" ] && return
  # from the same release as the packages: before version 8.1 programs see the /proc/cpuinfo of this machine
  mkdir -p "$cache/qemu"
  dpkg-deb --fsys-tarfile "$(file_of "$(dpkg --print-architecture)" qemu-user)" |
    tar -x -C "$cache/qemu" ./usr/bin/qemu-aarch64
}

prepare_root() {
  [ -e "$root/ready" ] && return
  prepare_apt arm64
  # shellcheck disable=SC2086
  apt_for arm64 apt-get -qq install -y --download-only $packages
  rm -rf "$root"
  mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/source"
  for folder in bin sbin lib; do ln -s "usr/$folder" "$root/$folder"; done
  for file in "$cache"/apt-arm64/archives/*.deb; do
    case $file in */linux-image-* | */busybox-static_*) continue ;; esac # record.sh's
    dpkg-deb -x "$file" "$root"
  done
  # what scripts of the packages would have done
  ln -s blas/libblas.so.3 "$root/usr/lib/$triple/libblas.so.3"
  ln -s lapack/liblapack.so.3 "$root/usr/lib/$triple/liblapack.so.3"
  cat "$root"/usr/share/ca-certificates/mozilla/*.crt > "$root/etc/ssl/certs/ca-certificates.crt"
  touch "$root/ready"
}

# in_root COMMAND...: as the superuser of namespaces of its own; the sources are at /source, read-only
in_root() {
  nice -n 10 unshare --user --map-root-user --mount --pid --fork sh -eu -c '
    root=$1 emulator=$2 source=$3 && shift 3
    if ! mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; then
      echo "this kernel has no interpreters of programs per user namespace: Linux 6.7 or later is needed" >&2
      exit 1
    fi
    magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    printf "%s" ":arm64:M::$magic:$mask:$emulator:F" > /proc/sys/fs/binfmt_misc/register
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/tmp"
    mount --bind "$source" "$root/source"
    mount -o remount,bind,ro "$root/source"
    # neoverse-n1 is a processor that exists, and twice as quick to emulate as the richest one
    exec chroot "$root" /usr/bin/env -i -C /source PATH=/usr/bin:/usr/sbin HOME=/tmp LANG=C.UTF-8 \
      QEMU_CPU=neoverse-n1 ORT_DISABLE_TELEMETRY=1 PYTHONPATH=/source/src PYTHONPYCACHEPREFIX=/tmp/bytecode "$@"
  ' sh "$root" "$cache/qemu/usr/bin/qemu-aarch64" "$source" "$@"
}

test_portable() {
  in_root python3 -m pytest -q tests/architectures/portable.py "$@"
}

test_units() {
  # python3-opencv brings 400 packages and 1.2 GB; python3-protobuf is 3.21, and ours needs 5;
  # python3-pydantic is 2.10, which generates another text of the JSON schema
  in_root python3 -m pytest -q tests/unit --ignore tests/unit/rpc --ignore tests/unit/process/test_decoders.py \
    --ignore tests/unit/process/test_input.py \
    --deselect tests/unit/manifest/test_schema.py::test_shipped_schemas_are_current \
    -k 'not (test_geometry and opencv) and not test_what_is_no_image_has_no_size' "$@"
}

what=${1:-all}
[ $# -eq 0 ] || shift
[ -d "$source/src/mlmodelscope.egg-info" ] || { echo "the package's entry points are missing: make test" >&2; exit 1; }
prepare_emulator
prepare_root
case $what in
  portable) test_portable "$@" ;;
  unit) test_units "$@" ;;
  all) test_portable "$@" && test_units "$@" ;;
  shell) in_root "${@:-sh}" ;;
  *) echo "run.sh [portable|unit|all|shell]" >&2 && exit 2 ;;
esac
