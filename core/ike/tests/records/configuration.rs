//! Records and configurations that do not fit, and records that are damaged.

use crate::pair::{IkePeer, Pair, connection};
use crate::{SECOND, established, ids, records, restore, successor_of};
use casemate_crypto::AeadAlg;
use casemate_ike::config::{ChildConfig, Connection, IdPattern, Identity, IkeEncryption, RemoteMethod};
use casemate_ike::{Event, IkeRecord, RecordError, RestoreError};

/// The left host restarts with another configuration.
fn restarted_with(change: impl FnOnce(&mut Connection)) -> Pair {
    let mut pair = established(Pair::with_defaults());
    let made = records(&pair.left, pair.now);
    let mut configured = connection("left", "right");
    change(&mut configured);
    let mut new = IkePeer::new(crate::pair::LEFT, 9, configured);
    restore(&mut new, made, 1, pair.now).unwrap();
    pair.left = new;
    pair.run();
    pair
}

/// Checks that the IKE SA was closed with a message to the peer.
fn check_closed(pair: &mut Pair, why: &str) {
    pair.advance(2 * SECOND);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (0, 0), "{why}");
    pair.check_children(0);
}

#[test]
fn an_ike_sa_that_is_not_configured_any_more_is_closed() {
    check_closed(&mut restarted_with(|new| new.children.clear()), "no child");
    check_closed(
        &mut restarted_with(|new| {
            new.remote.id = IdPattern::Exact(Identity::Fqdn("other".into()));
        }),
        "another peer",
    );
    check_closed(
        &mut restarted_with(|new| {
            new.local.id = Some(Identity::Fqdn("other".into()));
        }),
        "another identity of ours",
    );
    check_closed(
        &mut restarted_with(|new| {
            new.remote.method = RemoteMethod::Certificate("any".into());
        }),
        "another proof",
    );
    check_closed(
        &mut restarted_with(|new| {
            new.proposals.truncate(1);
            new.proposals[0].encryption = IkeEncryption::Combined(vec![AeadAlg::ChaCha20Poly1305]);
        }),
        "other algorithms",
    );
}

#[test]
fn a_child_sa_that_is_not_allowed_any_more_is_closed() {
    let mut pair = restarted_with(|new| {
        let mut child = (*new.children[0]).clone();
        child.remote_ts = vec![casemate_ike::TrafficSelectorTemplate::DYNAMIC];
        new.children = vec![child.into()];
    });
    pair.advance(2 * SECOND);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1));
    pair.check_children(0);
}

#[test]
fn a_record_without_connection_is_refused() {
    let pair = established(Pair::with_defaults());
    let made = records(&pair.left, pair.now);
    let mut new = IkePeer::new(crate::pair::LEFT, 9, connection("right", "left"));
    assert_eq!(restore(&mut new, made, 1, pair.now), Err(RestoreError::NoConnection));
    assert!(new.host.reserved.is_empty() && new.events.is_empty());
}

#[test]
fn an_ike_sa_is_restored_once() {
    let pair = established(Pair::with_defaults());
    let made = records(&pair.left, pair.now);
    let mut new = successor_of(&pair.left, 9);
    restore(&mut new, made.clone(), 1, pair.now).unwrap();
    assert_eq!(restore(&mut new, made.clone(), 1, pair.now), Err(RestoreError::SpiInUse));
    assert_eq!((ids(&new).len(), new.host.reserved.len(), new.children().len()), (1, 1, 1));
    // The SPI of its Child SA alone.
    let mut new = successor_of(&pair.left, 9);
    let spi = made[0].sequences().next().unwrap().spi;
    new.host.reserved.push(casemate_sa::Spi::new(spi).unwrap());
    assert_eq!(restore(&mut new, made, 1, pair.now), Err(RestoreError::SpiInUse));
    assert_eq!((new.host.reserved.len(), new.events.len()), (1, 0));
}

#[test]
fn a_refused_record_leaves_no_spi_reserved() {
    let with_two = |own, peer| {
        let connection = connection(own, peer);
        let second = ChildConfig { name: "second".into(), ..(*connection.children[0]).clone() };
        Connection { children: vec![connection.children[0].clone(), second.into()], ..connection }
    };
    let mut pair = established(Pair::new(with_two("left", "right"), with_two("right", "left")));
    let connection = pair.left.ike.connections()[0].clone();
    let now = pair.now;
    pair.left
        .with_context(now, |ike, host, context| {
            ike.initiate(&connection, Some(&connection.children[1]), None, host, context)
        })
        .unwrap();
    pair.run();
    pair.check_children(2);
    let made = records(&pair.left, now);
    let spis: Vec<u32> = made[0].sequences().map(|child| child.spi).collect();
    for spi in spis {
        let mut new = successor_of(&pair.left, 9);
        let taken = casemate_sa::Spi::new(spi).unwrap();
        new.host.reserved.push(taken);
        assert_eq!(restore(&mut new, made.clone(), 1, now), Err(RestoreError::SpiInUse));
        assert_eq!(new.host.reserved, [taken]);
    }
}

#[test]
fn restored_sas_are_reported_as_such() {
    let pair = established(Pair::with_defaults());
    let made = records(&pair.left, pair.now);
    let mut new = successor_of(&pair.left, 9);
    restore(&mut new, made, 1, pair.now).unwrap();
    assert!(matches!(new.events[0], Event::IkeUp { is_restored: true, .. }));
    assert!(matches!(&new.events[1], Event::ChildUp(up) if up.is_restored));
    assert!(pair.left.events.iter().all(|event| match event {
        Event::IkeUp { is_restored, .. } => !is_restored,
        Event::ChildUp(up) => !up.is_restored,
        _ => true,
    }));
}

#[test]
fn damaged_records_are_refused() {
    let pair = established(Pair::with_defaults());
    let made = records(&pair.left, pair.now).remove(0).encode().unwrap();
    let bytes = made.expose();
    assert!(bytes.len() < 1_400, "{} bytes", bytes.len());
    for len in 0..bytes.len() {
        assert_eq!(IkeRecord::decode(&bytes[..len]), Err(RecordError::Malformed), "{len}");
    }
    let longer = [bytes, &[0]].concat();
    assert_eq!(IkeRecord::decode(&longer), Err(RecordError::Malformed));
    assert_eq!(IkeRecord::decode(&vec![0; casemate_ike::MAX_RECORD + 1]), Err(RecordError::TooLong));
    // Whatever the bytes are, nothing panics.
    for at in 0..bytes.len() {
        for value in [0x00, 0x7f, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[at] = value;
            if let Ok(record) = IkeRecord::decode(&damaged) {
                let mut new = successor_of(&pair.left, 9);
                let _ = restore(&mut new, vec![record], 1, pair.now);
                new.handle_timeouts(pair.now.after(400 * SECOND));
            }
        }
    }
}
