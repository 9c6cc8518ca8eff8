#!/bin/sh
# What Debian's kernels write about the machines that QEMU emulates -> tests/unit/measure/machines/*.txt.
#
# Each line of a recording is `PATH:LINE` for a line of a file below the root. Boots a real kernel of each architecture
# (TCG, no KVM, about half a minute each) whose first process prints the files and switches the machine off. Needs the
# network, apt of a Debian, qemu-system-arm, qemu-system-ppc and qemu-system-x86.
#
#     sh tests/architectures/record.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${CACHE:-$here/../../.cache/architectures}
mkdir -p "$cache" "${1:-$here/../unit/measure/machines}"
cache=$(cd "$cache" && pwd)
target=$(cd "${1:-$here/../unit/measure/machines}" && pwd)
. "$here/debian.sh"

first_process() {
  cat <<'END'
#!/bin/busybox sh
busybox=/bin/busybox
$busybox mkdir -p /proc /sys
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sysfs /sys
cpu=sys/devices/system/cpu
echo "# begin"
for file in proc/cpuinfo proc/meminfo $cpu/online \
  $cpu/cpu[0-9]*/topology/thread_siblings_list $cpu/cpu[0-9]*/topology/core_siblings_list \
  $cpu/cpu[0-9]*/topology/physical_package_id \
  $cpu/cpu[0-9]*/cache/index*/level $cpu/cpu[0-9]*/cache/index*/type \
  $cpu/cpu[0-9]*/cache/index*/size $cpu/cpu[0-9]*/cache/index*/shared_cpu_list \
  $cpu/cpufreq/policy*/cpuinfo_max_freq $cpu/cpufreq/boost sys/devices/system/node/online \
  sys/devices/system/clocksource/clocksource0/available_clocksource \
  sys/class/dmi/id/sys_vendor sys/class/dmi/id/product_name \
  sys/firmware/devicetree/base/compatible sys/firmware/devicetree/base/hypervisor/compatible
do
  [ ! -e "/$file" ] || $busybox tr '\0' '\n' < "/$file" | $busybox sed "s|^|$file:|"
done
echo "# end Linux $($busybox uname -r) $($busybox uname -m)"
$busybox poweroff -f
END
}

# record ARCHITECTURE KERNEL_PACKAGE CONSOLE EMULATOR ARGUMENT...
record() {
  architecture=$1 kernel=$2 console=$3
  shift 3
  folder=$cache/boot-$architecture
  mkdir -p "$folder/root/bin"
  prepare_apt "$architecture"
  # the package without a version names the newest kernel
  kernel=$(apt_for "$architecture" apt-cache depends "$kernel" | sed -n 's/^ *Depends: \(linux-image-\)/\1/p' | head -n 1)
  dpkg-deb --fsys-tarfile "$(file_of "$architecture" "$kernel")" | tar -x -C "$folder" --wildcards './boot/vmlinu*'
  busybox=./usr/bin/busybox
  dpkg-deb --fsys-tarfile "$(file_of "$architecture" busybox-static)" | tar -x -O $busybox > "$folder/root/bin/busybox"
  first_process > "$folder/root/init"
  chmod +x "$folder/root/init" "$folder/root/bin/busybox"
  "$here/archive.py" "$folder/root" > "$folder/initrd"
  nice -n 10 timeout 180 "$@" -m 512 -nographic -nodefaults -serial stdio -no-reboot \
    -kernel "$folder"/boot/vmlinu* -initrd "$folder/initrd" -append "console=$console quiet panic=-1" < /dev/null > "$folder/log" 2> "$folder/warnings"
  tr -d '\r' < "$folder/log" | sed -n '/# begin$/,/^# end /p' > "$folder/text"
  grep -q '^# end ' "$folder/text" || { tail "$folder/log" >&2; echo "$architecture: the machine did not finish" >&2; exit 1; }
  {
    echo "# recorded by tests/architectures/record.sh, $(sed -n 's/^# end //p' "$folder/text"), in $*"
    sed "1d;\$d" "$folder/text"
  } > "$target/$architecture.txt"
  echo "$target/$architecture.txt"
}

record arm64 linux-image-cloud-arm64 ttyAMA0 \
  qemu-system-aarch64 -M virt,gic-version=3 -cpu neoverse-n1 -smp 4,sockets=2,cores=2
record ppc64el linux-image-powerpc64le hvc0 \
  qemu-system-ppc64 -M pseries -cpu power9 -smp 4,sockets=2,cores=2,threads=1
record amd64 linux-image-cloud-amd64 ttyS0 \
  qemu-system-x86_64 -M q35 -accel tcg -cpu Haswell-noTSX -smp 4,sockets=1,cores=2,threads=2
