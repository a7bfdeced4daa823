//! Two hosts with mirrored SAs and policies.

use super::{Host, PROVIDERS};
use alloc::vec;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Direction, SaId, Unmatched};
use casemate_sa::{
    AddrRange, Lifetime, Limits, Mode, OuterHeader, RohcParams, SaParams, Selector, SpdId, Spi, Transform,
    UdpEncap,
};
use core::net::IpAddr;

/// Addresses of the tunnel endpoints and of the hosts behind them. In transport mode, both are the same.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Outer addresses.
    pub outer: (IpAddr, IpAddr),
    /// Inner addresses; the same as `outer` in transport mode.
    pub inner: (IpAddr, IpAddr),
}

impl Ends {
    /// Creates addresses for a tunnel with these outer and inner IP versions (4 or 6).
    pub fn tunnel(outer: u8, inner: u8) -> Self {
        let outer = if outer == 4 { ("192.0.2.1", "192.0.2.2") } else { ("2001:db8::1", "2001:db8::2") };
        let inner = if inner == 4 { ("10.1.0.1", "10.2.0.1") } else { ("fd01::1", "fd02::1") };
        Self { outer: parse(outer), inner: parse(inner) }
    }

    /// Creates addresses for transport mode between two hosts.
    pub fn transport(version: u8) -> Self {
        let ends = Self::tunnel(version, version).outer;
        Self { outer: ends, inner: ends }
    }
}

fn parse(pair: (&str, &str)) -> (IpAddr, IpAddr) {
    (pair.0.parse().unwrap(), pair.1.parse().unwrap())
}

/// Parameters of both directions of a link.
#[derive(Debug, Clone)]
pub struct LinkSpec {
    /// Addresses.
    pub ends: Ends,
    /// Modes and transforms, innermost first. Both directions use the same keys.
    pub layers: Vec<(Mode, Transform)>,
    /// Extended sequence numbers.
    pub esn: bool,
    /// UDP encapsulation of the outermost layer.
    pub encap: bool,
    /// Anti-replay window.
    pub window: u32,
    /// Last sequence number used.
    pub last_seq: u64,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Outer header.
    pub outer: OuterHeader,
    /// Traffic-flow padding.
    pub tfc_pad_to: u16,
    /// Header compression of the innermost layer.
    pub rohc: Option<RohcParams>,
    /// MTU of the link between the hosts.
    pub link_mtu: usize,
    /// Sizes of the hosts' tables.
    pub limits: Limits,
}

impl LinkSpec {
    /// Creates the parameters for one SA in each direction, with common values.
    pub fn single(ends: Ends, mode: Mode, transform: Transform) -> Self {
        Self {
            ends,
            layers: vec![(mode, transform)],
            esn: false,
            encap: false,
            window: 64,
            last_seq: 0,
            lifetime: Lifetime::UNBOUNDED,
            outer: OuterHeader::default(),
            tfc_pad_to: 0,
            rohc: None,
            link_mtu: 65_535,
            limits: Limits::SERVER,
        }
    }

    /// Returns the parameters of the SA of a layer, from `a` to `b` if `forward` is true.
    pub fn params(&self, layer: usize, forward: bool) -> SaParams {
        let (a, b) = self.ends.outer;
        let (src, dst) = if forward { (a, b) } else { (b, a) };
        let (mode, transform) = self.layers[layer].clone();
        let spi = 0x1000 + 16 * layer as u32 + u32::from(forward);
        SaParams {
            encap: (self.encap && layer + 1 == self.layers.len())
                .then_some(UdpEncap { src_port: 4500, dst_port: 4500 }),
            esn: self.esn,
            replay_window: self.window,
            last_sent: self.last_seq,
            last_received: self.last_seq,
            lifetime: self.lifetime,
            tfc_pad_to: self.tfc_pad_to,
            outer: self.outer,
            rohc: self.rohc.clone().filter(|_| layer == 0),
            ..SaParams::new(Spi::new(spi).unwrap(), src, dst, mode, transform)
        }
    }

    /// Returns the policy for packets, from `a` to `b` if `forward` is true.
    pub fn policy(&self, forward: bool) -> Policy {
        let (a, b) = self.ends.inner;
        let (src, dst) = if forward { (a, b) } else { (b, a) };
        let templates: Vec<Template> = (0..self.layers.len())
            .map(|layer| {
                let sa = self.params(layer, forward);
                let (src, dst) = (Some(sa.src), Some(sa.dst));
                Template { protocol: sa.transform.protocol(), mode: sa.mode, src, dst, reqid: 0 }
            })
            .collect();
        Policy {
            spd: SpdId::MAIN,
            selector: Selector::between(AddrRange::single(src), AddrRange::single(dst)),
            action: Action::Protect(Bundle::new(&templates).unwrap()),
            priority: 0,
        }
    }

    /// Creates both hosts with their SAs and policies.
    pub fn build(&self) -> Link {
        let (a, a_out) = self.host(true);
        let (b, b_out) = self.host(false);
        Link { a, b, a_out, b_out, ends: self.ends }
    }

    fn host(&self, is_a: bool) -> (Host, Vec<SaId>) {
        let mut host = Host::with_limits(Unmatched::Discard, self.link_mtu, self.limits);
        if self.rohc.is_some() {
            host.dp.enable_rohc();
        }
        let mut outbound = Vec::new();
        for layer in 0..self.layers.len() {
            let mut add = |direction, forward| {
                let params = self.params(layer, forward);
                host.dp.add_sa(&params, direction, &PROVIDERS, host.now).expect("SA")
            };
            let (sending, receiving) = (add(Direction::Outbound, is_a), add(Direction::Inbound, !is_a));
            host.dp.couple_rohc(receiving, sending);
            outbound.push(sending);
        }
        host.dp.add_policy(Direction::Outbound, self.policy(is_a)).unwrap();
        host.dp.add_policy(Direction::Inbound, self.policy(!is_a)).unwrap();
        (host, outbound)
    }
}

/// Two connected hosts.
pub struct Link {
    /// First host.
    pub a: Host,
    /// Second host.
    pub b: Host,
    /// Outbound SAs of `a`, innermost first.
    pub a_out: Vec<SaId>,
    /// Outbound SAs of `b`, innermost first.
    pub b_out: Vec<SaId>,
    /// Addresses.
    pub ends: Ends,
}
