#!/bin/busybox sh
# The guest's first process: devices, modules, network settings, then the agent.
export PATH=/bin:/sbin
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin 2>/dev/null

while read -r module; do
    insmod "/modules/$module" || echo "module $module does not load"
done </modules/order

waited=0
until [ -e /sys/class/net/eth0 ] && [ -e /dev/vport1p1 -o -e /dev/vport0p1 ] || [ $waited -gt 500 ]; do
    usleep 10000
    waited=$((waited + 1))
done

# What strongSwan asks for when a selector names a protocol.
printf 'icmp 1\ntcp 6\nudp 17\n' >/etc/protocols

# Forward like a gateway, answer from any address, and speak of nothing that no test asked for.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
for interface in all default eth0; do
    echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
    echo 0 >/proc/sys/net/ipv6/conf/$interface/accept_dad
    echo 0 >/proc/sys/net/ipv6/conf/$interface/accept_ra
done
# The usual fq_codel drops packets when the machine is busy and the guest slow.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
# Not busybox's own ip.
/sbin/ip link set lo up
/sbin/ip link set eth0 addrgenmode none
/sbin/ip link set eth0 up

exec /agent
