//! Counter synchronization (RFC 6311): this host as the peer of a cluster, and as the next owner of an
//! IKE SA.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

#[path = "../hostile/forge.rs"]
mod forge;
#[path = "../pair/mod.rs"]
mod pair;

mod announcement;
mod message_ids;
mod owner;
mod policies;
mod restarted_exchanges;

use casemate_ike::config::Connection;
use casemate_ike::{Event, IkeRecord, IkeSaId, Path, Restoration, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, NotifyType};
use forge::{Attack, MessageForger, Raw, notifies, without};
use pair::{IkePeer, Pair};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const SUPPORTS_IDS: NotifyType = NotifyType(16420);
const SUPPORTS_NUMBERS: NotifyType = NotifyType(16421);
const IDS: NotifyType = NotifyType(16422);
const NUMBERS: NotifyType = NotifyType(16423);

/// Two hosts that keep records.
fn keeping(mut pair: Pair) -> Pair {
    pair.left.ike.keep_records(true);
    pair.right.ike.keep_records(true);
    pair
}

/// The same, with an IKE SA and one Child SA.
fn established(pair: Pair) -> Pair {
    let mut pair = keeping(pair);
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

/// An established pair whose left host has announced the support that `keeps` keeps.
fn announcing(pair: Pair, keeps: impl Fn(NotifyType) -> bool) -> Attack {
    let (mut attack, payloads) = Attack::half_open(keeping(pair));
    let is_omitted = |kind: &NotifyType| [SUPPORTS_IDS, SUPPORTS_NUMBERS].contains(kind) && !keeps(*kind);
    let omitted: Vec<_> = notifies(&payloads).into_iter().map(|(kind, _)| kind).filter(is_omitted).collect();
    let payloads: Vec<Raw> = payloads
        .into_iter()
        .filter(|raw| {
            let kind = notifies(std::slice::from_ref(raw)).first().map(|(kind, _)| *kind);
            kind.is_none_or(|kind| !omitted.contains(&kind))
        })
        .collect();
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let request = attack.forger.seal(&header, &payloads);
    for message in attack.give(&request) {
        let transmit = from_right(&attack.pair, message);
        pair::deliver(&mut attack.pair.left, transmit, attack.pair.now);
    }
    attack.pair.check_children(1);
    attack.next = 2;
    attack
}

fn from_right(pair: &Pair, message: Vec<u8>) -> Transmit {
    let path = Path { local: (pair.right.addr, 500).into(), remote: (pair.left.addr, 500).into() };
    Transmit { path, non_esp_marker: false, probe_len: None, message }
}

fn ids(peer: &IkePeer) -> Vec<IkeSaId> {
    peer.ike.status().map(|status| status.id).collect()
}

fn records(peer: &IkePeer, now: Instant) -> Vec<IkeRecord> {
    let records = ids(peer).into_iter().filter_map(|id| peer.ike.record(id, now));
    records.map(|record| IkeRecord::decode(record.encode().unwrap().expose()).unwrap()).collect()
}

/// The next owner of these records, with the configuration of `old` after a change.
fn next_owner(
    old: &IkePeer,
    records: Vec<IkeRecord>,
    owners: u16,
    now: Instant,
    change: impl FnOnce(&mut Connection),
) -> IkePeer {
    let mut connection = (*old.ike.connections()[0]).clone();
    change(&mut connection);
    let mut new = IkePeer::new(&old.addr.to_string(), 1_000 + u64::from(owners), connection);
    new.ike.keep_records(true);
    new.host.last = 1_000 * u32::from(owners);
    new.with_context(now, |ike, host, context| {
        let mut restoration = Restoration::new(ike.connections());
        for record in records {
            let restored = ike.restore(record, owners, &mut restoration, host, context).unwrap();
            ike.begin_restored(restored, &BTreeMap::new(), host, context);
        }
    });
    new
}

/// Numbers that a host was asked to leave out, one for each request.
fn skipped(peer: &IkePeer) -> Vec<u64> {
    let count = |event: &Event| match event {
        Event::NumbersSkipped { children, count, .. } => {
            assert!(!children.is_empty());
            Some(*count)
        }
        _ => None,
    };
    peer.events.iter().filter_map(count).collect()
}

fn spis(peer: &IkePeer) -> Vec<u32> {
    peer.children().iter().map(|child| child.inbound.spi.get()).collect()
}
