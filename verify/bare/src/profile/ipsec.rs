//! Programs that protect packets, with manual keys and with IKEv2.

use super::end;
use crate::Board;
use crate::peers::{AuthMethod, Certificates, MOON, PeerPair, SUN};
use crate::traffic::{self, Path, ah, cbc, gcm};
use casemate_crypto::{Providers, SecretBytes};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{Config, Datapath, Direction};
use casemate_ike::config::{Connection, IdPattern};
use casemate_ike::{Credentials, SharedKeys};
use casemate_rohc::{ChannelParams, ProfileSet};
use casemate_rustcrypto::{AES_128_CBC, AES_128_GCM, HMAC_SHA256, RUSTCRYPTO, SHA1, X25519};
use casemate_sa::{Instant, Limits, Mode, RohcParams, SaParams, Transform};
use core::hint::black_box;
#[cfg(feature = "multiple-kex")]
use {
    alloc::vec::Vec, casemate_crypto::KexMethod, casemate_ike::config::AdditionalKex,
    casemate_ike::config::KexRound, casemate_rustcrypto::ML_KEM_768,
};

/// Room for one pair of SAs of each kind, and three more.
const LIMITS: Limits = Limits { sas: 12, ..Limits::DEVICE };
const NOW: Instant = Instant::from_secs(1_000);

/// ESP with AES-128-GCM.
pub fn esp_gcm(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM]);
    with_pairs(board, &providers, &[gcm()]).is_some() && end(board)
}

/// ESP with AES-128-GCM, ESP with AES-128-CBC and HMAC-SHA-256, and AH.
pub fn esp_ah_cbc(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM, AES_128_CBC, HMAC_SHA256]);
    with_pairs(board, &providers, &[gcm(), cbc(), ah()]).is_some() && end(board)
}

/// [`esp_gcm`] with fragmentation and reassembly.
pub fn esp_fragments(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM]);
    let done =
        with_pairs(board, &providers, &[gcm()]).and_then(|mut datapath| fragments(board, &mut datapath));
    done.is_some() && end(board)
}

/// [`esp_gcm`] in tunnel mode, with header compression.
pub fn esp_rohc(board: &Board) -> bool {
    with_rohc(board, &Providers(&[AES_128_GCM])).is_some() && end(board)
}

/// Sends packets of one flow through a tunnel with header compression. Reports the memory of a context on
/// both sides.
fn with_rohc(board: &Board, providers: &Providers<'_>) -> Option<()> {
    let mut datapath = Datapath::new(Config { limits: LIMITS, ..Config::server(black_box(1)) });
    datapath.enable_rohc();
    let channel = ChannelParams { max_cid: 3, profiles: ProfileSet::ALL };
    let rohc = Some(RohcParams { channel, max_cid: channel.max_cid, integrity: None });
    let params = traffic::params(0, Path::TO_RIGHT, &gcm())?;
    let params = SaParams { mode: Mode::Tunnel, rohc, ..params };
    add_pair(&mut datapath, &params, providers)?;
    let policy = traffic::policy(Path::TO_RIGHT, &gcm(), Mode::Tunnel)?;
    datapath.add_policy(Direction::Outbound, policy.clone()).ok()?;
    datapath.add_policy(Direction::Inbound, policy).ok()?;
    let before = (board.heap)();
    for _ in 0..3 {
        let mut buffer = [0; size_of::<traffic::Buffer>()];
        let mut packet = traffic::packet(&mut buffer)?;
        traffic::send(&mut datapath, &mut packet, NOW)?;
        traffic::receive(&mut datapath, &mut packet, NOW)?;
    }
    board.report("heap-rohc-context", (board.heap)().saturating_sub(before));
    let sent = datapath.sas().find_map(|sa| sa.rohc.filter(|rohc| rohc.packets == 3));
    sent.map(|_| ())
}

/// Creates a data path with SAs and policies in both directions. Sends and receives a packet through
/// each. Reports the memory of each step.
fn with_pairs(board: &Board, providers: &Providers<'_>, transforms: &[Transform]) -> Option<Datapath> {
    let before = (board.heap)();
    let mut datapath = Datapath::new(Config { limits: LIMITS, ..Config::server(black_box(1)) });
    board
        .report("heap-datapath", (board.heap)().saturating_sub(before).saturating_add(size_of::<Datapath>()));
    for (number, transform) in (0_u32..).zip(transforms) {
        let before = (board.heap)();
        add_pair(&mut datapath, &traffic::params(number, Path::TO_RIGHT, transform)?, providers)?;
        let between = (board.heap)();
        add_policies(&mut datapath, transform)?;
        if number == 0 {
            board.report("heap-pair", between.saturating_sub(before));
            board.report("heap-policies", (board.heap)().saturating_sub(between));
        }
        let mut buffer = [0; size_of::<traffic::Buffer>()];
        let mut packet = traffic::packet(&mut buffer)?;
        traffic::send(&mut datapath, &mut packet, NOW)?;
        traffic::receive(&mut datapath, &mut packet, NOW)?;
        remove_policies(&mut datapath);
    }
    // Tables double their capacity when they are full, so the cost of a pair is averaged over several pairs.
    let before = (board.heap)();
    let first = transforms.first()?;
    for number in 0x10..0x13 {
        add_pair(&mut datapath, &traffic::params(number, Path::TO_RIGHT, first)?, providers)?;
    }
    board.report("heap-three-pairs", (board.heap)().saturating_sub(before));
    Some(datapath)
}

/// Adds one pair of SAs with AES-128-GCM and its policies.
pub(super) fn add_gcm(datapath: &mut Datapath, providers: &Providers<'_>) -> Option<()> {
    add_pair(datapath, &traffic::params(0, Path::TO_RIGHT, &gcm())?, providers)?;
    add_policies(datapath, &gcm())
}

/// Adds the same SA in both directions: the data path is its own peer.
fn add_pair(datapath: &mut Datapath, params: &SaParams, providers: &Providers<'_>) -> Option<()> {
    datapath.add_sa(params, Direction::Outbound, providers, NOW).ok()?;
    datapath.add_sa(params, Direction::Inbound, providers, NOW).ok()?;
    Some(())
}

fn add_policies(datapath: &mut Datapath, transform: &Transform) -> Option<()> {
    let policy = traffic::policy(Path::TO_RIGHT, transform, Mode::Transport)?;
    datapath.add_policy(Direction::Outbound, policy.clone()).ok()?;
    datapath.add_policy(Direction::Inbound, policy).ok()?;
    Some(())
}

fn remove_policies(datapath: &mut Datapath) {
    for direction in [Direction::Outbound, Direction::Inbound] {
        let first = datapath.policies(direction).next().map(|(id, _)| id);
        if let Some(id) = first {
            datapath.remove_policy(direction, id);
        }
    }
}

/// Fragments a protected packet, reassembles it and decrypts it.
fn fragments(board: &Board, datapath: &mut Datapath) -> Option<()> {
    add_policies(datapath, &gcm())?;
    let before = (board.heap)();
    let mut reassembler = Reassembler::new(LIMITS.reassemblies, LIMITS.reassembly_bytes);
    board.report("heap-reassembler", (board.heap)().saturating_sub(before));
    let mut buffer = [0; size_of::<traffic::Buffer>()];
    let mut packet = traffic::packet(&mut buffer)?;
    traffic::send(datapath, &mut packet, NOW)?;
    let mut pieces = Fragments::new(packet.data(), black_box(68), 1).ok()?;
    let mut piece = [0; 68];
    while let Some(len) = pieces.next(&mut piece) {
        match reassembler.push(NOW, piece.get(..len)?, Sender::Known) {
            Reassembly::Whole(mut packet) => return traffic::receive(datapath, &mut packet, NOW),
            Reassembly::Held => {}
            Reassembly::Dropped(_) => return None,
        }
    }
    None
}

/// Pre-shared key, X25519, AES-128-GCM and HMAC-SHA-256, and SHA-1 for NAT detection.
pub fn ike_psk(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM, HMAC_SHA256, SHA1, X25519]);
    let keys = SharedKeys::new().with(IdPattern::Any, SecretBytes::new(&black_box([7; 32])));
    sessions(board, [&keys, &keys], &providers, AuthMethod::SharedKey, |_| {}).is_some() && end(board)
}

/// [`ike_psk`] with ML-KEM-768 after X25519, which both peers require.
#[cfg(feature = "multiple-kex")]
pub fn ike_ml_kem(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM, HMAC_SHA256, SHA1, X25519, ML_KEM_768]);
    let keys = SharedKeys::new().with(IdPattern::Any, SecretBytes::new(&black_box([7; 32])));
    let require = |connection: &mut Connection| {
        for proposal in &mut connection.proposals {
            let kex = AdditionalKex { methods: Vec::from([KexMethod::MlKem768]), optional: false };
            proposal.additional.extend(KexRound::new(1).map(|round| (round, kex)));
        }
    };
    sessions(board, [&keys, &keys], &providers, AuthMethod::SharedKey, require).is_some() && end(board)
}

/// Certificates, and all algorithms.
pub fn ike_certificates(board: &Board) -> bool {
    let providers = Providers(&[&RUSTCRYPTO]);
    let load = |files| Certificates::load(black_box(files), &providers);
    let done = load(MOON)
        .zip(load(SUN))
        .and_then(|(moon, sun)| sessions(board, [&moon, &sun], &providers, AuthMethod::Certificate, |_| {}));
    done.is_some() && end(board)
}

/// Establishes IKE SAs with and without a Child SA between two endpoints. Both have the same cost, so
/// half of the memory belongs to one side. `change` changes each connection.
fn sessions(
    board: &Board,
    [left, right]: [&dyn Credentials; 2],
    providers: &Providers<'_>,
    auth: AuthMethod,
    change: impl Fn(&mut Connection),
) -> Option<()> {
    let mut used = (board.heap)();
    let mut half = |name: &str| {
        let now = (board.heap)();
        board.report(name, now.saturating_sub(used) / 2);
        used = now;
    };
    let mut pair = PeerPair::new(left, right, providers);
    half("heap-endpoint");
    pair.configure(3, auth, change)?;
    half("heap-configuration");
    pair.initiate(0, false)?;
    half("heap-first-ike-sa");
    pair.initiate(1, false)?;
    half("heap-second-ike-sa");
    pair.initiate(2, true)?;
    half("heap-ike-sa-with-child");
    let [left, right] = pair.established();
    (left.len() == 3 && right.len() == 3).then_some(())
}
