//! SAs, policies and connections from the configuration.

use crate::config::{IkeKeys, ManualKeys, ManualSa};
use alloc::sync::Arc;
use alloc::vec;
use casemate::{Datapath, Endpoint};
use casemate_crypto::{AesBits, CipherAlg, EspSuite, MacAlg, MacKind, Provider, Providers};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{AddSaError, Direction};
use casemate_ike::SharedKeys;
use casemate_ike::config::{AddrPattern, Child, ChildMode, Connection, IdPattern, OnClose, Start};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Lifetime, Mode, OuterHeader, Protocol, SaParams, Selector, Transform};
use casemate_wire::ah::Align;
use core::net::IpAddr;
use core::time::Duration;

/// Whose algorithms are used.
pub(crate) const PROVIDERS: [&dyn Provider; 1] = [&RUSTCRYPTO];

/// Anti-replay window in packets.
const REPLAY_WINDOW: u32 = 256;
/// After how long a silence the peer is asked whether it lives.
const DPD_DELAY: Duration = Duration::from_secs(30);
/// Rank of policies with manual keys, behind those of the house.
const RANK: u32 = 100;

/// Two SAs and the policies that lead to them. All traffic between the two ends is protected.
pub(crate) fn add_manual(
    endpoint: &mut Endpoint,
    own: IpAddr,
    keys: &ManualKeys,
    now: Instant,
) -> Result<(), AddSaError> {
    let ways = [
        (Direction::Inbound, keys.peer, own, &keys.inbound),
        (Direction::Outbound, own, keys.peer, &keys.outbound),
    ];
    for (direction, src, dst, sa) in ways {
        endpoint.add_sa(&params(src, dst, keys.mode, sa), direction, &Providers(&PROVIDERS), now)?;
        add_policy(endpoint.datapath_mut(), direction, (src, dst), keys.mode);
    }
    Ok(())
}

fn params(src: IpAddr, dst: IpAddr, mode: Mode, sa: &ManualSa) -> SaParams {
    // Of the ciphers, CBC: its IVs are random. The machine has nowhere to keep a counter, and one that began anew after a
    // restart would repeat an IV, which AES-GCM does not survive (RFC 4106 section 3.1).
    let suite = EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha256));
    SaParams {
        spi: sa.spi,
        src,
        dst,
        transform: Transform::Esp { suite, encr: sa.encr.clone(), integ: sa.integ.clone() },
        mode,
        encap: None,
        esn: false,
        replay_window: REPLAY_WINDOW,
        last_sent: 0,
        last_received: 0,
        selector: None,
        lifetime: Lifetime::UNBOUNDED,
        reqid: 0,
        tfc_pad_to: 0,
        outer: OuterHeader::default(),
        ah_align: Align::Four,
    }
}

fn add_policy(datapath: &mut Datapath, direction: Direction, (src, dst): (IpAddr, IpAddr), mode: Mode) {
    let template = Template { protocol: Protocol::Esp, mode, src: Some(src), dst: Some(dst), reqid: 0 };
    let policy = Policy {
        selector: Selector::between(AddrRange::single(src), AddrRange::single(dst)),
        action: Action::Protect(Bundle::single(template)),
        priority: RANK,
    };
    // The tables are empty but for the policies of the house. Without this one nothing would pass.
    let _ = datapath.add_policy(direction, policy);
}

/// The connection to the peer, which protects all traffic between the two ends.
pub(crate) fn connection(own: IpAddr, keys: &IkeKeys) -> Connection {
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let mut connection = Connection::with_shared_key("peer", keys.id.clone(), keys.peer_id.clone());
    (connection.local_addrs, connection.remote_addrs) = (only(own), only(keys.peer));
    connection.dpd_delay = Some(DPD_DELAY);
    let mut child = Child::new("all");
    child.mode = match keys.mode {
        Mode::Tunnel => ChildMode::Tunnel,
        Mode::Transport => ChildMode::Transport,
    };
    child.replay_window = REPLAY_WINDOW;
    // Whoever begins also begins again, by the next packet that needs it; the other one waits.
    child.start = Start { at_once: keys.initiates, on_traffic: keys.initiates };
    child.on_dead_peer = if keys.initiates { OnClose::Restart } else { OnClose::Clear };
    connection.children = vec![Arc::new(child)];
    connection
}

/// The peer's pre-shared key.
pub(crate) fn credentials(keys: &IkeKeys) -> SharedKeys {
    SharedKeys::new().with(IdPattern::Exactly(keys.peer_id.clone()), keys.secret.clone())
}
