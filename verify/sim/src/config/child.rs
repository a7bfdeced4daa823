//! The Child SAs of a connection, and the traffic beside them.

use super::{Variant, lifespan, methods};
use crate::places::{self, HostKind};
use crate::plan::{Plan, Shape};
use crate::style::{Layout, Protection, Style, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_ike::TrafficTemplate;
use casemate_ike::config::{
    Child, ChildAlgorithms, ChildMode, ChildProposal, EspCombined, OnClose, Sequence, Shunt, Start,
};
use casemate_sa::{AddrRange, DscpSet, OuterHeader, PortRange};
use casemate_wire::ip::proto;

/// The child `at` of the connection from `own` to `peer`.
pub(super) fn child(plan: &Plan, (own, peer): (usize, usize), at: usize, variant: Variant) -> Child {
    let style = &plan.style;
    let begins = match plan.shape {
        Shape::Sites => true,
        Shape::Clients(_) => own > 0,
    };
    // Only one of two sites begins at once; both may begin when a packet comes.
    let at_once = begins && !style.traps && (own > 0 || variant.ike % 2 == 1);
    let again = match (begins, style.traps) {
        (false, _) => OnClose::Clear,
        (true, true) => OnClose::Trap,
        (true, false) => OnClose::Restart,
    };
    let again = style.close.unwrap_or(again);
    Child {
        name: format!("net{at}"),
        proposals: vec![proposal(style, own)],
        local_ts: vec![traffic(style, own, own, at)],
        remote_ts: vec![traffic(style, own, peer, at)],
        mode: if style.layout == Layout::Ports { ChildMode::Transport } else { ChildMode::Tunnel },
        lifespan: lifespan(style.child_life, variant.child),
        rekey_bytes: None,
        rekey_packets: style.rekey_packets,
        life_bytes: None,
        life_packets: None,
        start: Start { at_once, on_traffic: begins && style.traps },
        on_close: again,
        on_dead_peer: again,
        reqid: None,
        replay_window: 64,
        dscp: DscpSet::NONE,
        tfc_pad_to: 0,
        outer: OuterHeader::default(),
        priority: None,
        policies: true,
    }
}

fn proposal(style: &Style, own: usize) -> ChildProposal {
    let mac = || vec![MacAlg::standard(MacKind::HmacSha256)];
    let algorithms = match style.protection {
        Protection::Combined => {
            let gcm = EspCombined::Aead(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
            ChildAlgorithms::EspCombined(vec![gcm])
        }
        Protection::Separate => ChildAlgorithms::EspSeparate(vec![CipherAlg::AesCbc(AesBits::B128)], mac()),
        Protection::Ah => ChildAlgorithms::Ah(mac()),
    };
    let kex = if style.pfs { methods(style, own) } else { vec![] };
    let sequence = if style.extended { Sequence::PreferExtended } else { Sequence::PreferPlain };
    ChildProposal { algorithms, kex, sequence }
}

/// What node `of` protects, as node `says` has it in its configuration.
fn traffic(style: &Style, says: usize, of: usize, child: usize) -> TrafficTemplate {
    match style.layout {
        Layout::Ports => {
            // The wider one holds no port of another child.
            let port = places::port(child);
            let wide = style.narrowed && says > 0 && child == 0;
            let ports = PortRange::new(if wide { 1_990 } else { port }, port).unwrap();
            TrafficTemplate { addrs: None, proto: Some(proto::UDP), ports }
        }
        Layout::Networks | Layout::Nested if style.virtual_addrs != VirtualAddrs::No && of > 0 => {
            TrafficTemplate::DYNAMIC
        }
        layout => {
            // The wider one stays within the network of this child.
            let wider = u8::from(style.narrowed && says > 0);
            let bits = if layout == Layout::Nested && child == 0 { 10 } else { 7 };
            let range = places::range(places::host(style, of, child, 0), bits + wider);
            TrafficTemplate { addrs: Some(range), proto: None, ports: PortRange::ANY }
        }
    }
}

/// Traffic within what the first child protects: some passes in clear, some not at all.
pub(super) fn shunts(style: &Style, (own, peer): (usize, usize)) -> Vec<Shunt> {
    let template = |node, kind: HostKind| {
        let addrs = AddrRange::single(places::host(style, node, 0, kind as u8));
        vec![TrafficTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
    };
    let shunt = |name: &str, passes, kind| Shunt {
        name: name.into(),
        passes,
        local_ts: template(own, kind),
        remote_ts: template(peer, kind),
        priority: None,
    };
    vec![shunt("clear", true, HostKind::Clear), shunt("barred", false, HostKind::Barred)]
}
