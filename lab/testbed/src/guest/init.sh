#!/bin/busybox sh
# First process of the guest: sets up devices, modules and the network, then runs the agent.
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

# strongSwan looks protocols up here if a selector names one.
printf 'icmp 1\ntcp 6\nudp 17\n' >/etc/protocols

# Forward like a gateway, without source validation, and send no packets that no test expects.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
for interface in all default eth0; do
    echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
    echo 0 >/proc/sys/net/ipv6/conf/$interface/accept_dad
    echo 0 >/proc/sys/net/ipv6/conf/$interface/accept_ra
done
# The default fq_codel drops packets if the host is busy and the guest is slow.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
# Use iproute2, not the ip of busybox.
/sbin/ip link set lo up
/sbin/ip link set eth0 addrgenmode none
/sbin/ip link set eth0 up

exec /agent
