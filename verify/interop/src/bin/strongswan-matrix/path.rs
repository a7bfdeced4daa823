//! Path between the two sides: a namespace with a router, which can translate addresses and drop packets.

use crate::peer::Side;
use crate::platform::{FAMILIES, Platform, no_dad, up};
use casemate_interop::{Error, Netns, Result, run};
use std::rc::Rc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// The router, which is removed when this value is dropped, and the two platforms that it connects.
pub(crate) struct Path {
    router: Rc<Netns>,
    ends: [Rc<dyn Platform>; 2],
}

impl Path {
    /// Connects the left and the right platform with a router that forwards all packets unchanged.
    pub(crate) fn new(ends: [Rc<dyn Platform>; 2]) -> Result<Self> {
        let path = Self { router: Rc::new(Netns::new()?), ends };
        // Forwarding starts before the addresses exist, so that the router announces none of them.
        path.run_in_router(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )?;
        for side in Side::BOTH {
            path.connect(side)?;
        }
        Ok(path)
    }

    fn connect(&self, side: Side) -> Result<()> {
        let inner = interface(side);
        self.end(side).connect_to(&self.router)?;
        let mut router = up(inner, "fe80::1");
        for (family, bits) in FAMILIES {
            router.push_str(&format!(
                "addr add {}/{bits} dev {inner}{}\n",
                side.router(family),
                no_dad(family)
            ));
        }
        self.router.ip(&router)?;
        self.end(side).bring_up()
    }

    /// Returns the platform of a side.
    pub(crate) fn end(&self, side: Side) -> &dyn Platform {
        let [left, right] = &self.ends;
        match side {
            Side::Left => left.as_ref(),
            Side::Right => right.as_ref(),
        }
    }

    /// Returns the namespace of the router.
    pub(crate) fn router(&self) -> &Netns {
        &self.router
    }

    /// Translates the source of a side to the address of the router, with source ports from `ports`.
    /// Deletes existing mappings.
    pub(crate) fn translate(&self, hidden: Side, ports: &str) -> Result<()> {
        let out = interface(hidden.other());
        self.nft(&format!(
            "table ip nat\ndelete table ip nat\ntable ip nat {{ chain out {{ type nat hook postrouting priority 100\n\
             oifname \"{out}\" ip protocol udp masquerade to :{ports}\n}}\n}}"
        ))?;
        self.run_in_router("conntrack -F")
    }

    /// Translates one source address of a side, so that the side is behind a NAT while it has that address.
    pub(crate) fn translate_address(&self, hidden: Side, source: &str, ports: &str) -> Result<()> {
        let out = interface(hidden.other());
        self.nft(&format!(
            "table ip nat {{ chain out {{ type nat hook postrouting priority 100\n\
             oifname \"{out}\" ip saddr {source} ip protocol udp masquerade to :{ports}\n}}\n}}"
        ))
    }

    /// Drops all IP fragments from now on.
    pub(crate) fn drop_fragments(&self) -> Result<()> {
        // Connection tracking reassembles fragments at priority -400.
        self.nft(
            "table inet loss { chain in { type filter hook prerouting priority -450\n\
             ip frag-off & 0x3fff != 0 drop\nexthdr frag exists drop\n}\n}",
        )
    }

    /// From now on, loses packets that are longer than `mtu` bytes, without an ICMP error.
    pub(crate) fn lose_longer_than(&self, mtu: u16) -> Result<()> {
        for side in Side::BOTH {
            self.router.ip(&format!("link set {} mtu {mtu}\n", interface(side)))?;
        }
        self.nft(
            "table inet silent { chain out { type filter hook output priority 0\n\
             icmp type destination-unreachable drop\nicmpv6 type packet-too-big drop\n}\n}",
        )
    }

    /// Drops some of the IKE messages from now on. Counts the messages of both directions together, and
    /// drops number `index` of every `count` messages.
    pub(crate) fn drop_ike(&self, index: u32, count: u32) -> Result<()> {
        self.nft(&format!(
            "table inet loss {{ chain lose {{ numgen inc mod {count} {index} drop\n}}\n\
             chain in {{ type filter hook prerouting priority -450\n\
             udp dport 500 jump lose\nudp dport 4500 @th,64,32 0 jump lose\n}}\n}}"
        ))
    }

    /// Drops all packets from now on.
    pub(crate) fn cut(&self) -> Result<()> {
        self.nft("table inet cut { chain in { type filter hook prerouting priority -450\ndrop\n}\n}")
    }

    /// Drops IKE on port 4500 from now on, which starts with four zero bytes (RFC 3948 section 2.2), but
    /// not ESP.
    pub(crate) fn cut_ike(&self) -> Result<()> {
        self.nft(
            "table inet cut { chain in { type filter hook prerouting priority -450\n\
             udp dport 4500 @th,64,32 0 drop\n}\n}",
        )
    }

    /// Ends `cut` and `cut_ike`.
    pub(crate) fn restore(&self) -> Result<()> {
        self.nft("delete table inet cut")
    }

    fn nft(&self, rules: &str) -> Result<()> {
        self.run_in_router(&format!("nft -f - <<'END'\n{rules}\nEND"))
    }

    fn run_in_router(&self, script: &str) -> Result<()> {
        let output = run(&self.router, LIMIT, "sh", &["-c", script])?;
        if output.status == 0 {
            return Ok(());
        }
        Err(Error::new(format!("the router: {} in:\n{script}", output.stdout.trim_end())))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        Side::BOTH.into_iter().for_each(|side| self.end(side).disconnect(&self.router));
    }
}

/// Returns the interface name of the router towards a side.
pub(crate) fn interface(side: Side) -> &'static str {
    match side {
        Side::Left => "to-left",
        Side::Right => "to-right",
    }
}
