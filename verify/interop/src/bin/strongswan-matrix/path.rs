//! The path between the two ends: a namespace that is a router, which can translate, lose and cut.

use crate::place::{FAMILIES, Place, no_dad, up};
use crate::side::Side;
use casemate_interop::{Error, Netns, Result, run};
use std::rc::Rc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// The router, which ends with this value, and the two ends.
pub(crate) struct Path {
    middle: Rc<Netns>,
    ends: [Rc<dyn Place>; 2],
}

impl Path {
    /// Connects both ends, left and right, by a router that forwards everything as it comes.
    pub(crate) fn new(ends: [Rc<dyn Place>; 2]) -> Result<Self> {
        let path = Self { middle: Rc::new(Netns::new()?), ends };
        // Not before the addresses are there: nothing shall be announced of them.
        path.in_middle(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )?;
        for side in Side::BOTH {
            path.connect(side)?;
        }
        Ok(path)
    }

    fn connect(&self, side: Side) -> Result<()> {
        let inner = interface(side);
        self.end(side).plug_into(&self.middle)?;
        let mut router = up(inner, "fe80::1");
        for (family, bits) in FAMILIES {
            router.push_str(&format!(
                "addr add {}/{bits} dev {inner}{}\n",
                side.router(family),
                no_dad(family)
            ));
        }
        self.middle.ip(&router)?;
        self.end(side).bring_up()
    }

    /// An end.
    pub(crate) fn end(&self, side: Side) -> &dyn Place {
        let [left, right] = &self.ends;
        match side {
            Side::Left => left.as_ref(),
            Side::Right => right.as_ref(),
        }
    }

    /// The namespace of the router.
    pub(crate) fn middle(&self) -> &Netns {
        &self.middle
    }

    /// Hides the end behind the router's address, with source ports out of `ports`. A mapping that is there is forgotten.
    pub(crate) fn translate(&self, hidden: Side, ports: &str) -> Result<()> {
        let out = interface(hidden.other());
        self.nft(&format!(
            "table ip nat\ndelete table ip nat\ntable ip nat {{ chain out {{ type nat hook postrouting priority 100\n\
             oifname \"{out}\" ip protocol udp masquerade to :{ports}\n}}\n}}"
        ))?;
        self.in_middle("conntrack -F")
    }

    /// From now on loses every IP fragment.
    pub(crate) fn lose_fragments(&self) -> Result<()> {
        // Connection tracking would put fragments together at -400.
        self.nft(
            "table inet loss { chain in { type filter hook prerouting priority -450\n\
             ip frag-off & 0x3fff != 0 drop\nexthdr frag exists drop\n}\n}",
        )
    }

    /// From now on loses some of the IKE messages, counted over both directions: of every `of` the one at `at`.
    pub(crate) fn lose_ike(&self, at: u32, of: u32) -> Result<()> {
        self.nft(&format!(
            "table inet loss {{ chain lose {{ numgen inc mod {of} {at} drop\n}}\n\
             chain in {{ type filter hook prerouting priority -450\n\
             udp dport 500 jump lose\nudp dport 4500 @th,64,32 0 jump lose\n}}\n}}"
        ))
    }

    /// From now on loses everything.
    pub(crate) fn cut(&self) -> Result<()> {
        self.nft("table inet cut { chain in { type filter hook prerouting priority -450\ndrop\n}\n}")
    }

    /// From now on loses IKE on port 4500, which begins with four bytes of zero there (RFC 3948 section 2.2), and no ESP.
    pub(crate) fn cut_ike(&self) -> Result<()> {
        self.nft(
            "table inet cut { chain in { type filter hook prerouting priority -450\n\
             udp dport 4500 @th,64,32 0 drop\n}\n}",
        )
    }

    /// Takes `cut` and `cut_ike` back.
    pub(crate) fn heal(&self) -> Result<()> {
        self.nft("delete table inet cut")
    }

    fn nft(&self, rules: &str) -> Result<()> {
        self.in_middle(&format!("nft -f - <<'END'\n{rules}\nEND"))
    }

    fn in_middle(&self, script: &str) -> Result<()> {
        let output = run(&self.middle, LIMIT, "sh", &["-c", script])?;
        if output.status == 0 {
            return Ok(());
        }
        Err(Error::new(format!("the router: {} in:\n{script}", output.stdout.trim_end())))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        Side::BOTH.into_iter().for_each(|side| self.end(side).unplug(&self.middle));
    }
}

/// The router's interface towards an end.
pub(crate) fn interface(side: Side) -> &'static str {
    match side {
        Side::Left => "to-left",
        Side::Right => "to-right",
    }
}
