use super::*;
use alloc::vec;
use proptest::prelude::*;

/// Feeds packets until a message is complete.
fn reassemble(packets: &[&[u8]]) -> Result<Option<Vec<u8>>, EapFault> {
    let mut reassembly = Reassembly::new(MAX_MESSAGE);
    let mut message = None;
    for packet in packets {
        assert!(message.is_none(), "the message was complete before the last packet");
        message = reassembly.add(&Fragment::parse(packet)?)?;
    }
    Ok(message.map(|message| message.to_vec()))
}

#[test]
fn fragments_make_a_message() {
    for (packets, message) in [
        (&[&[0, 1, 2][..]][..], &[1, 2][..]),
        (&[&[0x80, 0, 0, 0, 2, 1, 2]], &[1, 2]),
        (&[&[0xC0, 0, 0, 0, 3, 1, 2], &[0, 3]], &[1, 2, 3]),
        (&[&[0xC0, 0, 0, 0, 3, 1], &[0xC0, 0, 0, 0, 3, 2], &[0x80, 0, 0, 0, 3, 3]], &[1, 2, 3]),
        // Reserved bits are ignored.
        (&[&[0x1F, 1]], &[1]),
    ] {
        assert_eq!(reassemble(packets), Ok(Some(message.to_vec())), "{packets:?}");
    }
}

#[test]
fn a_length_flag_without_a_length_is_malformed() {
    for packet in [&[][..], &[0x80], &[0x80, 0, 0, 0], &[0xC0, 0, 0]] {
        assert_eq!(Fragment::parse(packet), Err(EapFault::Malformed), "{packet:?}");
    }
}

/// hostapd wrote fragments beyond the announced length into memory.
#[test]
fn cve_2012_4445_fragments_beyond_the_announced_length_are_malformed() {
    for packets in [
        &[&[0xC0, 0, 0, 0, 2, 1][..], &[0, 2, 3][..]][..],
        &[&[0xC0, 0, 0, 0, 1, 1, 2]],
        &[&[0x80, 0, 0, 0, 1, 1, 2]],
        // With more to come, the announced length is already reached.
        &[&[0xC0, 0, 0, 0, 1, 1]],
        &[&[0xC0, 0, 0, 0, 3, 1], &[0x40, 2, 3]],
        &[&[0xC0, 0, 0, 0, 0, 1]],
    ] {
        assert_eq!(reassemble(packets), Err(EapFault::Malformed), "{packets:?}");
    }
}

#[test]
fn a_message_shorter_than_announced_is_malformed() {
    for packets in [&[&[0x80, 0, 0, 0, 3, 1, 2][..]][..], &[&[0xC0, 0, 0, 0, 4, 1, 2], &[0, 3]]] {
        assert_eq!(reassemble(packets), Err(EapFault::Malformed), "{packets:?}");
    }
}

#[test]
fn the_announced_length_does_not_change() {
    let packets = [&[0xC0, 0, 0, 0, 3, 1][..], &[0x80, 0, 0, 0, 2, 2]];
    assert_eq!(reassemble(&packets), Err(EapFault::Malformed));
}

#[test]
fn the_first_of_several_fragments_announces_the_length() {
    assert_eq!(reassemble(&[&[0x40, 1]]), Err(EapFault::Malformed));
}

/// Otherwise a peer prolongs the conversation without data.
#[test]
fn an_empty_fragment_is_malformed() {
    for packets in [
        &[&[0xC0, 0, 0, 0, 3][..]][..],
        &[&[0xC0, 0, 0, 0, 3, 1], &[0x40]],
        &[&[0xC0, 0, 0, 0, 3, 1], &[0]],
        &[&[0x80, 0, 0, 0, 0]],
    ] {
        assert_eq!(reassemble(packets), Err(EapFault::Malformed), "{packets:?}");
    }
}

#[test]
fn a_message_above_the_bound_is_refused_before_its_data() {
    let announce = |total: u32| [&[0xC0][..], &total.to_be_bytes(), &[1]].concat();
    let bound = u32::try_from(MAX_MESSAGE).unwrap();
    assert_eq!(reassemble(&[&announce(bound)]), Ok(None));
    for total in [bound + 1, u32::MAX] {
        assert_eq!(reassemble(&[&announce(total)]), Err(EapFault::TooLong));
    }
    let whole = |len: usize| [vec![0], vec![7; len]].concat();
    assert!(reassemble(&[&whole(MAX_MESSAGE)]).is_ok());
    assert_eq!(reassemble(&[&whole(MAX_MESSAGE + 1)]), Err(EapFault::TooLong));
}

#[test]
fn acknowledgements_have_neither_data_nor_flags() {
    let is_acknowledgement = |packet: &[u8]| Fragment::parse(packet).unwrap().is_acknowledgement();
    assert!(is_acknowledgement(&[0]) && is_acknowledgement(&acknowledgement()));
    for packet in [&[0, 1][..], &[0x40], &[0x20], &[0x80, 0, 0, 0, 0]] {
        assert!(!is_acknowledgement(packet), "{packet:?}");
    }
}

proptest! {
    #[test]
    fn what_is_sent_in_fragments_is_received(message in prop::collection::vec(any::<u8>(), 1..5000)) {
        let mut outgoing = Outgoing::new(message.clone());
        let mut reassembly = Reassembly::new(MAX_MESSAGE);
        let mut received = None;
        while outgoing.is_pending() {
            let packet = outgoing.next();
            prop_assert!(packet.len() <= MAX_FRAGMENT + 5);
            received = reassembly.add(&Fragment::parse(&packet).unwrap()).unwrap();
            prop_assert_eq!(received.is_none(), outgoing.is_pending());
        }
        prop_assert_eq!(received.map(|message| message.to_vec()), Some(message));
    }

    #[test]
    fn no_packet_panics_or_exceeds_the_bound(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
    ) {
        let mut reassembly = Reassembly::new(MAX_MESSAGE);
        for packet in packets {
            let Ok(fragment) = Fragment::parse(&packet) else { continue };
            if let Ok(Some(message)) = reassembly.add(&fragment) {
                prop_assert!(message.len() <= MAX_MESSAGE);
            }
        }
    }
}
