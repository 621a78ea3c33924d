# The first process of a machine, in new namespaces: makes its file system and network, then only reaps.
# machine.sh NAME DIRECTORY PAUSE [CONTROLLERS-OF-A-CGROUP-V1-HIERARCHY...]
set -eu
name=$1 directory=$2 pause=$3
shift 3
hostname "$name"

# /var/lib/kubelet cannot be moved, so every machine has a /var and an /etc of its own
for top in var etc; do
    mount -t overlay -o "lowerdir=/$top,upperdir=$directory/$top,workdir=$directory/$top.work" overlay "/$top"
done
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# containerd stacks overlays, which an overlay cannot carry: its files lie on the real disk
mkdir -p /var/lib/containerd /run/lock
mount --bind "$directory/containerd" /var/lib/containerd

# the cgroup namespace's root is this machine's own cgroup: mounted anew, that is all there is to see
if [ $# = 0 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controllers; do
        case $controllers in
        name=*) folder=${controllers#name=} options=none,$controllers ;;
        *) folder=$controllers options=$controllers ;;
        esac
        mkdir "/sys/fs/cgroup/$folder"
        mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$folder"
    done
fi
mount --make-rshared / # the kubelet's mounts must reach containers

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$directory/up"
exec "$pause"
