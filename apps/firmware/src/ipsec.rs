//! Creates SAs, policies and connections from the configuration.

use crate::config::{AhSa, EspSa, IkeKeys, ManualKeys, Ppk, Protocols};
use crate::runtime::SetupError;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Datapath, Endpoint};
use casemate_crypto::{AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, Provider, Providers};
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_ike::SharedKeys;
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, CloseAction, Connection, IdPattern, PpkId, PpkPolicy, RohcConfig,
    StartAction,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Mode, SaParams, Selector, SpdId, Spi, Transform};
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;
use core::time::Duration;

/// Providers of algorithms.
pub(crate) const PROVIDERS: [&dyn Provider; 1] = [&RUSTCRYPTO];

/// Anti-replay window in packets.
const REPLAY_WINDOW: u32 = 256;
/// Largest context number of header compression. All TCP connections with the peer have one context.
pub(crate) const MAX_CID: u16 = 3;
/// Idle time after which dead peer detection starts.
const DPD_DELAY: Duration = Duration::from_secs(30);
/// Priority of policies with manual keys, after those of `bypass_control_plane`.
const POLICY_PRIORITY: u32 = 100;

/// Adds the SAs with manual keys, and policies that protect all traffic between the two hosts.
pub(crate) fn add_manual(
    endpoint: &mut Endpoint,
    own: IpAddr,
    keys: &ManualKeys,
    now: Instant,
) -> Result<(), SetupError> {
    let (esp, ah) = match &keys.protocols {
        Protocols::Esp(esp) => (Some(esp), None),
        Protocols::Ah(ah) => (None, Some(ah)),
        Protocols::Both(esp, ah) => (Some(esp), Some(ah)),
    };
    let inbound = (esp.map(|esp| &esp.inbound), ah.map(|ah| &ah.inbound));
    let outbound = (esp.map(|esp| &esp.outbound), ah.map(|ah| &ah.outbound));
    for (direction, src, dst, (esp, ah)) in
        [(Direction::Inbound, keys.peer, own, inbound), (Direction::Outbound, own, keys.peer, outbound)]
    {
        // With ESP inside, AH uses transport mode.
        let ah_mode = if esp.is_some() { Mode::Transport } else { keys.mode };
        let esp = esp.map(|sa| params(sa.spi, src, dst, keys.mode, esp_transform(sa)));
        let ah = ah.map(|sa| params(sa.spi, src, dst, ah_mode, ah_transform(sa)));
        let mut templates = Vec::new();
        for sa in [esp, ah].into_iter().flatten() {
            templates.push(template(&sa));
            endpoint.add_sa(&sa, direction, &Providers(&PROVIDERS), now)?;
        }
        add_policy(endpoint.datapath_mut(), direction, src, dst, &templates)?;
    }
    Ok(())
}

const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha256);

fn esp_transform(sa: &EspSa) -> Transform {
    // CBC, because its IVs are random. A counter mode would need a counter that survives restarts, and
    // the machine has no storage: a repeated IV breaks AES-GCM (RFC 4106 section 3.1).
    let suite = EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MAC);
    Transform::Esp { suite, encr: sa.encr.clone(), integ: sa.integ.clone() }
}

fn ah_transform(sa: &AhSa) -> Transform {
    Transform::Ah { suite: AhSuite(MAC), integ: sa.integ.clone() }
}

fn params(spi: Spi, src: IpAddr, dst: IpAddr, mode: Mode, transform: Transform) -> SaParams {
    SaParams { replay_window: REPLAY_WINDOW, ..SaParams::new(spi, src, dst, mode, transform) }
}

const fn template(sa: &SaParams) -> Template {
    let SaParams { mode, src, dst, reqid, .. } = *sa;
    Template { protocol: sa.transform.protocol(), mode, src: Some(src), dst: Some(dst), reqid }
}

fn add_policy(
    datapath: &mut Datapath,
    direction: Direction,
    src: IpAddr,
    dst: IpAddr,
    templates: &[Template],
) -> Result<(), SetupError> {
    let bundle = Bundle::new(templates).or_report("one or two templates are a valid bundle");
    let bundle = bundle.ok_or(SetupError::Policies)?;
    let policy = Policy {
        spd: SpdId::MAIN,
        selector: Selector::between(AddrRange::single(src), AddrRange::single(dst)),
        action: Action::Protect(bundle),
        priority: POLICY_PRIORITY,
    };
    datapath.add_policy(direction, policy).map(drop).map_err(|_| SetupError::Policies)
}

/// Creates the connection to the peer, which protects all traffic between the two hosts.
pub(crate) fn connection(own: IpAddr, keys: &IkeKeys) -> Connection {
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let mut connection = Connection::with_shared_key("peer", keys.id.clone(), keys.peer_id.clone());
    (connection.local_addrs, connection.remote_addrs) = (only(own), only(keys.peer));
    connection.dpd_delay = Some(DPD_DELAY);
    connection.proposals.clone_from(&keys.ike);
    if let Some(Ppk { id, required, .. }) = &keys.ppk {
        connection.ppk = PpkPolicy { id: Some(PpkId::new(id)), required: *required };
    }
    let mut child = ChildConfig::new("all");
    child.proposals.clone_from(&keys.esp);
    child.mode = match keys.mode {
        Mode::Tunnel => ChildMode::Tunnel,
        Mode::Transport => ChildMode::Transport,
    };
    child.replay_window = REPLAY_WINDOW;
    child.rohc = keys.rohc.then(|| RohcConfig { max_cid: MAX_CID, ..RohcConfig::default() });
    // The initiator restarts the connection with the next packet that needs it; the responder waits.
    child.start_action = StartAction { at_once: keys.initiates, on_traffic: keys.initiates };
    child.dpd_action = if keys.initiates { CloseAction::Restart } else { CloseAction::Clear };
    connection.children = vec![Arc::new(child)];
    connection
}

/// Creates the credentials with the pre-shared keys.
pub(crate) fn credentials(keys: &IkeKeys) -> SharedKeys {
    let shared = SharedKeys::new().with(IdPattern::Exact(keys.peer_id.clone()), keys.secret.clone());
    match &keys.ppk {
        Some(ppk) => shared.with_ppk(&ppk.id, ppk.key.clone()),
        None => shared,
    }
}
