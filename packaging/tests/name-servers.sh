#!/bin/bash
# The service as a client with systemd-resolved, as root in a container that systemd has booted: `cargo xtask package
# --check` runs it. A gateway in a network namespace assigns a name server and a domain.
set -u

say() { printf 'name servers: %s\n' "$*"; }
fail() {
    say "FAILED: $*"
    resolvectl --no-pager status
    journalctl --no-pager -u casemate | tail -30
    cat /tmp/gateway.log
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

main_pid() { systemctl show -P MainPID casemate; }
is_restarted() { systemctl is-active -q casemate && [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ]; }
# Servers and domains of all links but the TUN interface, and of the TUN interface.
others() { { resolvectl dns; resolvectl domain; } | grep -v casemate0 | sed 's/ *$//'; }
# `Link 3 (casemate0): VALUE`
of_tunnel() { resolvectl "$1" casemate0 2>/dev/null | sed 's/.*): *//'; }
has_split_domain() { [ "$(of_tunnel dns)" = 10.2.0.1 ] && [ "$(of_tunnel domain)" = '~corp.example' ]; }
has_none() { [ -z "$(of_tunnel dns)$(of_tunnel domain)" ]; }

# Writes the configuration of the client, with more keys of its child.
client() {
    cat >/etc/casemate/conf.d/office.conf <<END
connections {
  office {
    remote_addrs = 192.0.2.2
    vips = 0.0.0.0
    local {
      auth = psk
      id = client.example.org
    }
    remote {
      auth = psk
      id = gateway.example.org
    }
    children {
      office {
        remote_ts = 10.2.0.0/16
        $1
      }
    }
  }
}
secrets {
  ike {
    secret = "a secret of the test of name servers"
  }
}
END
}

ip netns add gateway
ip link add uplink type veth peer name uplink netns gateway
ip address add 192.0.2.1/24 dev uplink
ip link set lo up
ip link set uplink up
ip -n gateway address add 192.0.2.2/24 dev uplink
ip -n gateway address add 10.2.0.1/32 dev lo
ip -n gateway link set lo up
ip -n gateway link set uplink up
cat >/tmp/gateway.conf <<'END'
connections {
  clients {
    local_addrs = 192.0.2.2
    pools = clients
    local {
      auth = psk
      id = gateway.example.org
    }
    remote {
      auth = psk
      id = %any
    }
    children {
      clients {
        local_ts = 10.2.0.0/16
      }
    }
  }
}
pools {
  clients {
    addrs = 10.9.0.0/24
    dns = 10.2.0.1
    dns_domains = corp.example
  }
}
secrets {
  ike {
    secret = "a secret of the test of name servers"
  }
}
END
chmod 600 /tmp/gateway.conf
ip netns exec gateway casemate run --config /tmp/gateway.conf >/tmp/gateway.log 2>&1 &
gateway=$!
eventually "the gateway" grep -q '^ready' /tmp/gateway.log

# A server of the local network, which stays.
resolvectl dns uplink 192.0.2.53 || fail "systemd-resolved does not answer"
resolvectl domain uplink local.example
before=$(others)
client 'start_action = start'
systemctl start casemate || fail "start"
eventually "the split domain" has_split_domain
[ "$(of_tunnel default-route)" = no ] || fail "the servers of the tunnel are asked for all names"
[ "$(others)" = "$before" ] || fail "other links: $(others)"
resolvectl --no-pager domain
say "the tunnel is up: server and split domain of casemate0, as user $(stat -c %U "/proc/$(main_pid)")"

old=$(main_pid)
kill -KILL "$old"
eventually "another start after kill -9" is_restarted "$old"
eventually "the split domain after another start" has_split_domain
say "the split domain is back after kill -9"

# The next start sets no tunnel up.
client ''
old=$(main_pid)
kill -KILL "$old"
eventually "another start after kill -9" is_restarted "$old"
has_none || fail "kill -9 has left settings"
[ "$(others)" = "$before" ] || fail "after kill -9: $(others), but before: $before"
say "the former state is back after kill -9 and a start"

casemate initiate office >/dev/null || fail "initiate"
eventually "the split domain" has_split_domain
casemate terminate office >/dev/null || fail "terminate"
eventually "no settings" has_none
systemctl stop casemate || fail "stop"
[ "$(others)" = "$before" ] || fail "after the stop: $(others)"
journalctl --no-pager --boot --output=cat -u casemate | grep 'are not used' && fail "warnings"

# Nothing but the settings of links is allowed to the user of the service.
setpriv --reuid=casemate --clear-groups --no-new-privs resolvectl dnssec uplink yes 2>/dev/null &&
    fail "the user of the service may change DNSSEC"
setpriv --reuid=nobody --clear-groups --no-new-privs resolvectl dns uplink 192.0.2.54 2>/dev/null &&
    fail "other users may change name servers"

kill $gateway
ip netns delete gateway
rm /etc/casemate/conf.d/office.conf
say "passed"
