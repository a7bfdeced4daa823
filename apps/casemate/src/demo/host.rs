//! The two hosts, the cable between them, and their configurations: a fresh pre-shared key, and one
//! connection for each IP version.

use crate::failure::Failure;
use casemate_crypto::Rng;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Netns, add_route};
use casemate_linux::process::SystemRng;
use casemate_linux::route::Prefix;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// Name of the interface at both ends of the cable.
pub(super) const WIRE: &str = "wire0";
const MTU: usize = 1500;

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The client.
    Left,
    /// The server.
    Right,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// The address on the cable.
    pub(super) fn outer(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [192, 0, 2, n].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()].into() }
    }

    /// The address in the private network behind the host.
    pub(super) fn inner(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [10, n, 0, 1].into() } else { [0xfd00 | u16::from(n), 0, 0, 0, 0, 0, 0, 1].into() }
    }

    /// The private network behind the host.
    pub(super) fn network(self, v4: bool) -> Prefix {
        let n = self.number();
        if v4 {
            Prefix { addr: [10, n, 0, 0].into(), len: 16 }
        } else {
            Prefix { addr: [0xfd00 | u16::from(n), 0, 0, 0, 0, 0, 0, 0].into(), len: 64 }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::Right => "right",
        })
    }
}

/// A host: a network namespace with Linux's own IP stack.
pub(super) struct Host {
    pub(super) side: Side,
    pub(super) netns: Netns,
}

impl Host {
    /// Runs `work` in the network namespace of this host.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        self.netns.run(work).map_err(Failure::failed)
    }

    fn switch_on(&self) -> Result<(), casemate_linux::Error> {
        let mut netlink = Netlink::open()?;
        let wire = netlink.link(WIRE)?.index;
        netlink.set_up(wire, MTU)
    }

    fn configure(&self) -> Result<(), casemate_linux::Error> {
        let mut netlink = Netlink::open()?;
        let (lo, wire) = (netlink.link("lo")?.index, netlink.link(WIRE)?.index);
        // Neighbour discovery needs a link-local address, and the kernel's own is usable only after a
        // second of duplicate address detection.
        netlink.add_address(wire, [0xfe80, 0, 0, 0, 0, 0, 0, self.side.number().into()].into(), 64)?;
        for v4 in [true, false] {
            netlink.add_address(wire, self.side.outer(v4), if v4 { 24 } else { 64 })?;
            netlink.add_address(lo, self.side.inner(v4), if v4 { 32 } else { 128 })?;
            let far = self.side.other();
            add_route(&mut netlink, far.network(v4), far.outer(v4), self.side.inner(v4))?;
        }
        Ok(())
    }
}

/// Both hosts.
pub(super) struct HostPair {
    pub(super) left: Host,
    pub(super) right: Host,
}

/// Makes both hosts, connected by a cable, with routes to each other's private networks in clear.
pub(super) fn two_hosts() -> Result<HostPair, Failure> {
    let build = || {
        let left = Host { side: Side::Left, netns: Netns::new()? };
        let right = Host { side: Side::Right, netns: Netns::new()? };
        let lay_cable = || Netlink::open()?.add_veth(WIRE, WIRE, right.netns.as_fd());
        left.netns.run(lay_cable)??;
        // The kernel does not use IPv6 on a cable until both ends are up.
        left.netns.run(|| left.switch_on())??;
        right.netns.run(|| right.switch_on())??;
        left.netns.run(|| left.configure())??;
        right.netns.run(|| right.configure())??;
        Ok(HostPair { left, right })
    };
    build().map_err(|error: casemate_linux::Error| Failure::failed(format!("demo: two hosts: {error}")))
}

/// Length of the pre-shared key in bytes, as strong as the strongest suite.
const SECRET_LEN: usize = 32;

/// Parameters that both configurations share.
pub(super) struct SharedConfig {
    secret: String,
}

/// Names of the connections.
pub(super) const CONNECTIONS: [&str; 2] = ["over-ipv4", "over-ipv6"];

impl SharedConfig {
    /// Generates the pre-shared key.
    pub(super) fn fresh() -> Result<Self, Failure> {
        let mut rng = SystemRng::new().map_err(Failure::failed)?;
        let mut secret = [0; SECRET_LEN];
        rng.secret(&mut secret);
        Ok(Self { secret: secret.iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    /// The swanctl.conf of one host, with this value of `encap`. Both hosts have traps, so that protected
    /// traffic never leaves in clear; the right host also initiates at start.
    pub(super) fn conf_for(&self, host: Side, encap: &str) -> String {
        let far = host.other();
        let start = match host {
            Side::Left => "trap",
            Side::Right => "trap|start",
        };
        let connection = |name: &str, v4: bool| {
            format!(
                "  {name} {{\n    local_addrs = {}\n    remote_addrs = {}\n    encap = {encap}\n    \
                 local {{\n      auth = psk\n      id = {host}.demo\n    }}\n    \
                 remote {{\n      auth = psk\n      id = {far}.demo\n    }}\n    \
                 children {{\n      {name} {{\n        local_ts = {}\n        remote_ts = {}\n        \
                 esp_proposals = aes256gcm16-x25519-esn\n        start_action = {start}\n      }}\n    }}\n  }}\n",
                host.outer(v4),
                far.outer(v4),
                host.network(v4),
                far.network(v4),
            )
        };
        let [v4, v6] = CONNECTIONS;
        format!(
            "# the {host} host; the key is for one run of `casemate demo`\nconnections {{\n{}{}}}\n\
             secrets {{\n  ike {{\n    secret = 0x{}\n  }}\n}}\n",
            connection(v4, true),
            connection(v6, false),
            self.secret
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::{Config, SystemEnvironment};
    use std::path::Path;

    #[test]
    fn both_files_are_valid_and_keys_are_unique() {
        let (one, other) = (SharedConfig::fresh().unwrap(), SharedConfig::fresh().unwrap());
        for side in [Side::Left, Side::Right] {
            let text = one.conf_for(side, "auto");
            let config =
                Config::parse(Path::new("/nowhere/a.conf"), text.as_bytes(), &SystemEnvironment).unwrap();
            assert_eq!((config.connections.len(), config.shared_keys.len()), (2, 1));
            assert!(config.warnings.is_empty());
        }
        assert_ne!(one.secret, other.secret);
    }
}
