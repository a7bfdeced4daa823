//! What both ends agree on, and lwIP's half of it as orders.

use casemate::housekeeping;
use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::spd::Policy;
use casemate_datapath::{Datapath, Direction};
use casemate_datapath_tests::{Ends, LinkSpec, suites};
use casemate_sa::{Limits, Mode, Protocol, Transform};
use casemate_wire::ip::proto;
use std::fmt::Write;

/// Tables of a small host, with room for datagrams of all lengths.
pub(crate) const LIMITS: Limits = Limits { reassembly_bytes: 65_535, policies: 32, ..Limits::DEVICE };

/// The priority of policies that stand behind housekeeping's.
const BEHIND: u32 = 10;

/// A way to protect packets, and how it shows.
pub(crate) struct Case {
    pub(crate) spec: LinkSpec,
    /// The suite, as lwIP's end is told of it.
    suite: &'static str,
    /// The protocol that is seen on the wire.
    pub(crate) protocol: u8,
    /// Whether the policies that protect stand before those that let hosts find each other. These name ports, which hold up
    /// fragments.
    pub(crate) is_first: bool,
}

impl Case {
    fn new(ends: Ends, mode: Mode, suite: &'static str, transform: Transform) -> Self {
        let protocol = transform.protocol().number();
        let mut spec = LinkSpec::single(ends, mode, transform);
        spec.limits = LIMITS;
        Self { spec, suite, protocol, is_first: false }
    }

    pub(crate) fn esp(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "aes128gcm16", suites::esp(suites::gcm(), 1))
    }

    fn cbc(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "aes128-sha1", suites::esp(suites::cbc_sha1(), 1))
    }

    pub(crate) fn ah(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "sha256", suites::ah(MacAlg::standard(MacKind::HmacSha256), 1))
    }

    fn in_udp(mut self) -> Self {
        self.spec.encap = true;
        self.protocol = proto::UDP;
        self
    }

    /// What tells tests apart when one fails.
    pub(crate) fn name(&self) -> String {
        format!("{} {:?} {:?}", self.suite, self.spec.layers[0].0, self.spec.ends)
    }

    /// The first end's data path, with housekeeping.
    pub(crate) fn datapath(&self) -> Datapath {
        let mut datapath = self.spec.build().a.dp;
        housekeeping(&mut datapath).unwrap();
        if self.is_first {
            return datapath;
        }
        for direction in [Direction::Outbound, Direction::Inbound] {
            let (id, policy) = datapath.policies(direction).next().unwrap();
            let policy = Policy { priority: BEHIND, ..policy.clone() };
            datapath.remove_policy(direction, id).unwrap();
            datapath.add_policy(direction, policy).unwrap();
        }
        datapath
    }

    /// The orders that give lwIP its addresses, SAs and policies: the second end of the two.
    pub(crate) fn orders(&self) -> Vec<String> {
        let (outer, inner) = (self.spec.ends.outer.1, self.spec.ends.inner.1);
        let mut orders = Vec::new();
        for (direction, forward) in [("in", true), ("out", false)] {
            orders.push(self.sa(direction, forward));
            orders.push(self.policy(direction, forward));
        }
        orders.push("housekeeping".into());
        // Neighbours of IPv4; lwIP takes 64 bits for the link of IPv6.
        orders.push(format!("address {outer}/{}", if outer.is_ipv4() { 24 } else { 64 }));
        if inner.is_ipv4() == outer.is_ipv4() {
            if inner != outer {
                orders.push(format!("address {inner}"));
            }
            // Below IP the way into the tunnel has to lead to the same neighbour as the way around it.
            orders.push(format!("gateway {}", self.spec.ends.outer.0));
        } else {
            // As if the other end's inner address were on the link.
            orders.push(format!("address {inner}/{}", if inner.is_ipv4() { 8 } else { 64 }));
        }
        orders
    }

    fn sa(&self, direction: &str, forward: bool) -> String {
        let sa = self.spec.params(0, forward);
        let (encryption, integrity) = match &sa.transform {
            Transform::Esp { encr, integ, .. } => (hex(encr.expose()), hex(integ.expose())),
            Transform::Ah { integ, .. } => (String::new(), hex(integ.expose())),
        };
        let key =
            |name: &str, key: &str| if key.is_empty() { String::new() } else { format!(" {name} {key}") };
        let port = sa.encap.map_or(String::new(), |encap| format!(" udp {}", encap.dst_port));
        format!(
            "sa {direction} {} {} src {} dst {} spi {} suite {}{}{}{port}{} window {}",
            protocol(sa.transform.protocol()),
            mode(sa.mode),
            sa.src,
            sa.dst,
            sa.spi.get(),
            self.suite,
            key("encryption-key", &encryption),
            key("integrity-key", &integrity),
            if sa.esn { " esn" } else { "" },
            sa.replay_window,
        )
    }

    fn policy(&self, direction: &str, forward: bool) -> String {
        let sa = self.spec.params(0, forward);
        let (a, b) = self.spec.ends.inner;
        let (src, dst) = if forward { (a, b) } else { (b, a) };
        let (protocol, mode) = (protocol(sa.transform.protocol()), mode(sa.mode));
        let priority = if self.is_first { 0 } else { BEHIND };
        format!(
            "policy {direction} src {src} dst {dst} priority {priority} protect {protocol} {mode} from {} to {}",
            sa.src, sa.dst
        )
    }
}

/// Both protocols, both modes, both versions of IP outside and inside.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::esp(Ends::transport(4), Mode::Transport),
        Case::esp(Ends::transport(6), Mode::Transport),
        Case::esp(Ends::tunnel(4, 4), Mode::Tunnel),
        Case::esp(Ends::tunnel(6, 6), Mode::Tunnel),
        Case::cbc(Ends::tunnel(6, 4), Mode::Tunnel),
        Case::cbc(on_one_link(Ends::tunnel(4, 6)), Mode::Tunnel),
        Case::cbc(Ends::transport(4), Mode::Transport),
        Case::ah(Ends::transport(4), Mode::Transport),
        Case::ah(Ends::transport(6), Mode::Transport),
        Case::ah(Ends::tunnel(4, 4), Mode::Tunnel),
        Case::ah(Ends::tunnel(6, 6), Mode::Tunnel),
        Case::esp(Ends::tunnel(4, 4), Mode::Tunnel).in_udp(),
    ]
}

/// The inner addresses as neighbours: lwIP finds out who is one by the first 64 bits.
fn on_one_link(ends: Ends) -> Ends {
    Ends { inner: ("fd01::1".parse().unwrap(), "fd01::2".parse().unwrap()), ..ends }
}

const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Esp => "esp",
        Protocol::Ah => "ah",
    }
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Transport => "transport",
        Mode::Tunnel => "tunnel",
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text
}
