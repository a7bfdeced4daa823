//! Child SAs and shunts of a connection.

use super::{Variant, lifespan, methods};
use crate::addresses::{self, HostKind};
use crate::plan::{Plan, Topology};
use crate::setup::{Layout, Protection, Setup, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{
    ChildAlgorithms, ChildConfig, ChildMode, ChildProposal, CloseAction, EsnPolicy, EspCombined, Shunt,
    StartAction,
};
use casemate_sa::{AddrRange, DscpSet, OuterHeader, PortRange};
use casemate_wire::ip::proto;

/// Child number `index` of the connection from `own` to `peer`.
pub(super) fn child(plan: &Plan, (own, peer): (usize, usize), index: usize, variant: Variant) -> ChildConfig {
    let setup = &plan.setup;
    let begins = match plan.topology {
        Topology::Sites => true,
        Topology::Clients(_) => own > 0,
    };
    // Of two sites, only one initiates at once. With traps, either may initiate when a packet arrives.
    let at_once = begins && !setup.traps && (own > 0 || variant.ike % 2 == 1);
    let again = match (begins, setup.traps) {
        (false, _) => CloseAction::Clear,
        (true, true) => CloseAction::Trap,
        (true, false) => CloseAction::Restart,
    };
    let again = setup.on_close.unwrap_or(again);
    ChildConfig {
        name: format!("net{index}"),
        proposals: vec![proposal(setup, own)],
        local_ts: vec![traffic(setup, own, own, index)],
        remote_ts: vec![traffic(setup, own, peer, index)],
        mode: if setup.layout == Layout::Ports { ChildMode::Transport } else { ChildMode::Tunnel },
        lifespan: lifespan(setup.child_life, variant.child),
        rekey_bytes: None,
        rekey_packets: setup.rekey_packets,
        life_bytes: None,
        life_packets: None,
        start_action: StartAction { at_once, on_traffic: begins && setup.traps },
        close_action: again,
        dpd_action: again,
        reqid: None,
        replay_window: 64,
        dscp: DscpSet::NONE,
        tfc_pad_to: 0,
        outer: OuterHeader::default(),
        priority: None,
        policies: true,
    }
}

fn proposal(setup: &Setup, own: usize) -> ChildProposal {
    let mac = || vec![MacAlg::standard(MacKind::HmacSha256)];
    let algorithms = match setup.protection {
        Protection::Combined => {
            let gcm = EspCombined::Aead(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
            ChildAlgorithms::EspCombined(vec![gcm])
        }
        Protection::Separate => ChildAlgorithms::EspSeparate(vec![CipherAlg::AesCbc(AesBits::B128)], mac()),
        Protection::Ah => ChildAlgorithms::Ah(mac()),
    };
    let kex = if setup.pfs { methods(setup, own) } else { vec![] };
    let sequence = if setup.esn { EsnPolicy::Preferred } else { EsnPolicy::Allowed };
    ChildProposal { algorithms, kex, esn: sequence }
}

/// Traffic selector for the networks of node `of`, in the configuration of node `says`.
fn traffic(setup: &Setup, says: usize, of: usize, child: usize) -> TrafficSelectorTemplate {
    match setup.layout {
        Layout::Ports => {
            // The wider selector contains no port of another child.
            let port = addresses::port(child);
            let wide = setup.narrowed && says > 0 && child == 0;
            let ports = PortRange::new(if wide { 1_990 } else { port }, port).unwrap();
            TrafficSelectorTemplate { addrs: None, proto: Some(proto::UDP), ports }
        }
        Layout::Networks | Layout::Nested if setup.virtual_addrs != VirtualAddrs::No && of > 0 => {
            TrafficSelectorTemplate::DYNAMIC
        }
        layout => {
            // The wider selector stays within the network of this child.
            let wider = u8::from(setup.narrowed && says > 0);
            let bits = if layout == Layout::Nested && child == 0 { 10 } else { 7 };
            let range = addresses::range(addresses::host(setup, of, child, 0), bits + wider);
            TrafficSelectorTemplate { addrs: Some(range), proto: None, ports: PortRange::ANY }
        }
    }
}

/// Shunts within the traffic of the first child: one passes traffic in clear, one drops it.
pub(super) fn shunts(setup: &Setup, (own, peer): (usize, usize)) -> Vec<Shunt> {
    let template = |node, kind: HostKind| {
        let addrs = AddrRange::single(addresses::host(setup, node, 0, kind as u8));
        vec![TrafficSelectorTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
    };
    let shunt = |name: &str, passes, kind| Shunt {
        name: name.into(),
        passes,
        local_ts: template(own, kind),
        remote_ts: template(peer, kind),
        priority: None,
    };
    vec![shunt("clear", true, HostKind::Clear), shunt("barred", false, HostKind::Blocked)]
}
