#!/bin/bash
# The service under systemd, as root in a container that systemd has booted: `cargo xtask package --check` runs it.
# A peer in a network namespace counts packets that should have been protected and arrive in clear.
set -u

say() { printf 'service: %s\n' "$*"; }
fail() {
    say "FAILED: $*"
    systemctl --no-pager status casemate
    journalctl --no-pager -u casemate | tail -30
    exit 1
}

# Waits for a condition, for at most 20 seconds.
eventually() {
    local what=$1 n
    shift
    for n in $(seq 200); do
        "$@" && return
        sleep 0.1
    done
    fail "never: $what"
}

# The packets in clear that have arrived since the last reset.
clear_packets() { ip netns exec peer nft -j list counter inet wire clear | sed -E 's/.*"packets": ([0-9]+).*/\1/'; }
reset() { ip netns exec peer nft reset counter inet wire clear >/dev/null; }
sees_clear() { [ "$(clear_packets)" -gt 0 ]; }
# Traffic for a second must not arrive in clear.
protected() {
    sleep 1
    ! sees_clear || fail "$(clear_packets) packets in clear: $1"
    say "no packet in clear: $1"
}
main_pid() { systemctl show -P MainPID casemate; }
is_restarted() { systemctl is-active -q casemate && [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ]; }

ip netns add peer
ip link add wire type veth peer name wire netns peer
ip address add 192.0.2.1/24 dev wire
ip address add 10.1.0.1/32 dev lo
ip link set lo up
ip link set wire up
ip -n peer address add 192.0.2.2/24 dev wire
ip -n peer address add 10.2.0.1/32 dev lo
ip -n peer link set lo up
ip -n peer link set wire up
ip route add 10.2.0.0/16 via 192.0.2.2 src 10.1.0.1
ip netns exec peer nft -f - <<'END'
table inet wire {
  counter clear { }
  chain arrived {
    type filter hook prerouting priority -500;
    ip daddr 10.2.0.0/16 counter name clear
  }
}
END
cat >/etc/casemate/conf.d/office.conf <<'END'
connections {
  office {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.2
    local {
      auth = psk
      id = left.example.org
    }
    remote {
      auth = psk
      id = right.example.org
    }
    children {
      nets {
        local_ts = 10.1.0.0/16
        remote_ts = 10.2.0.0/16
        start_action = trap
      }
    }
  }
}
scheduler {
  least {
    dscp = cs1
  }
}
secrets {
  ike {
    secret = "a secret of the test of the service"
  }
}
END
# About a hundred packets a second.
(while :; do
    echo in clear >/dev/udp/10.2.0.1/9
    sleep 0.01
done) 2>/dev/null &
traffic=$!

# With strict filtering, the kernel would drop what Casemate delivers, so the program makes it loose.
echo 1 >/proc/sys/net/ipv4/conf/default/rp_filter
before=$(ip rule; nft list ruleset)
eventually "packets in clear without the service" sees_clear
systemctl start casemate || fail "start"
reset
protected "after the start"

[ "$(cat /proc/sys/net/ipv4/conf/casemate0/rp_filter)" = 2 ] || fail "it cannot change rp_filter"
casemate status >/dev/null || fail "casemate status as root"
[ "$(stat -c '%F %a %U' /run/casemate/metrics)" = "socket 600 casemate" ] || fail "no socket for metrics"
casemate run --dry-run --tun other0 >/dev/null 2>/tmp/warnings || fail "dry run: $(cat /tmp/warnings)"
[ ! -s /tmp/warnings ] || fail "warnings: $(cat /tmp/warnings)"
status=/proc/$(main_pid)/status
grep -q "^Uid:	$(id -u casemate)	" $status || fail "it does not run as user casemate"
# CAP_NET_ADMIN and CAP_NET_RAW.
grep -q '^CapPrm:	0000000000003000$' $status || fail "capabilities: $(grep Cap $status)"
grep -q '^Seccomp:	2$' $status || fail "no seccomp filter"
casemate status --json | grep -q 'Permission denied' && fail "it cannot read what it needs"
warnings=$(journalctl --no-pager --output=cat -u casemate | grep '^casemate: warning')
if ! (ulimit -l unlimited) 2>/dev/null; then
    say "skipped: memory is locked (the container cannot lift the limit)"
    warnings=$(grep -v 'memory cannot be locked' <<<"$warnings")
fi
[ -z "$warnings" ] || fail "warnings: $warnings"
say "user casemate, CAP_NET_ADMIN and CAP_NET_RAW, seccomp"

systemctl reload casemate || fail "reload"
echo 'connections {' >/etc/casemate/conf.d/broken.conf
systemctl reload casemate 2>/dev/null && fail "a reload of a wrong configuration succeeds"
rm /etc/casemate/conf.d/broken.conf
systemctl is-active -q casemate || fail "a failed reload ends the service"
systemctl reload casemate || fail "reload after a failed one"
protected "after reloads"

old=$(main_pid)
kill -KILL "$old"
eventually "another start after kill -9" is_restarted "$old"
protected "after kill -9"

old=$(main_pid)
systemctl restart casemate || fail "restart"
is_restarted "$old" || fail "the restart has kept the process"
protected "after a restart"

# The same version once more: for dpkg and the service, an upgrade.
if [ -e /casemate.deb ]; then
    old=$(main_pid)
    dpkg --install /casemate.deb >/dev/null || fail "upgrade"
    is_restarted "$old" || fail "the upgrade has kept the process"
    protected "after an upgrade"
fi

old=$(main_pid)
kill -STOP "$old"
eventually "another start after the watchdog" is_restarted "$old"
journalctl --no-pager -u casemate | grep -q 'Watchdog timeout' || fail "no word of the watchdog"
protected "after the watchdog"

# Neither a start nor a restart succeeds, and the guard stays.
echo 'connections {' >/etc/casemate/conf.d/broken.conf
systemctl restart casemate 2>/dev/null && fail "a restart with a wrong configuration succeeds"
[ "$(systemctl show -P NRestarts casemate)" -le 2 ] || fail "a wrong configuration is tried again"
protected "after a restart with a wrong configuration"
rm /etc/casemate/conf.d/broken.conf
systemctl start casemate || fail "start after a failed restart"

# Casemate needs no IPsec of the kernel; a host may have blacklisted these modules.
if grep -qsE '^(esp4|esp6|ah4|ah6) ' /proc/modules; then fail "modules of the kernel's IPsec are loaded"; fi
systemctl stop casemate || fail "stop"
eventually "packets in clear after the stop" sees_clear
after=$(ip rule; nft list ruleset)
[ "$before" = "$after" ] || fail "left behind: $after"
say "a stop leaves nothing behind"

kill $traffic
ip netns delete peer
say "passed"
