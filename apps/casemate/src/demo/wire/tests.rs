use super::*;

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, (20 + payload.len()) as u8, 0, 1, 0, 0, 64, protocol, 0, 0];
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend(payload);
    packet
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    packet.extend([0xfd; 32]);
    packet.extend(payload);
    packet
}

fn kind(ethertype: u16, packet: &[u8]) -> Kind {
    let mut frame = vec![0; 12];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    Kind::of(&frame)
}

#[test]
fn only_what_tells_nothing_is_not_clear() {
    let (four, six) = (0x0800, 0x86dd);
    let quoting = |kind: u8, quoted: Vec<u8>| [vec![kind, 2, 0, 0, 0, 0, 0, 0], quoted].concat();
    assert_eq!(kind(0x0806, &[0; 28]), Kind::Arp);
    assert_eq!(kind(four, &v4(50, &[1; 40])), Kind::Esp);
    assert_eq!(kind(six, &v6(50, &[1; 40])), Kind::Esp);
    let ike = [1, 244, 1, 244, 0, 16, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    assert_eq!([kind(four, &v4(17, &ike)), kind(six, &v6(17, &ike))], [Kind::Ike; 2]);
    assert_eq!(kind(six, &v6(58, &[135, 0, 0, 0])), Kind::Neighbour);
    assert_eq!(kind(six, &v6(0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0])), Kind::Listener);
    assert_eq!(kind(four, &v4(1, &quoting(3, v4(50, &[0; 8])))), Kind::Refused);
    assert_eq!(kind(six, &v6(58, &quoting(4, v6(50, &[0; 8])))), Kind::Refused);
    for protocol in [1, 4, 6, 17, 41, 47, 51, 58] {
        assert_eq!(kind(four, &v4(protocol, &[8; 40])), Kind::Clear, "{protocol}");
        assert_eq!(kind(six, &v6(protocol, &[128; 40])), Kind::Clear, "{protocol}");
    }
    assert_eq!(kind(four, &v4(1, &quoting(3, v4(6, &[0; 8])))), Kind::Clear);
    assert_eq!(kind(six, &v6(58, &quoting(1, v6(6, &[0; 8])))), Kind::Clear);
    assert_eq!(kind(six, &v6(0, &[6, 0, 5, 2, 0, 0, 1, 0, 143, 0])), Kind::Clear);
    assert_eq!(kind(0x88cc, &[0; 40]), Kind::Clear);
    assert_eq!(Kind::of(&[]), Kind::Clear);
}

#[test]
fn text_is_found_wherever_it_stands() {
    let frames = vec![(0, b"...midnight".to_vec()), (1, b"midnight".to_vec()), (2, b"midnigh".to_vec())];
    let recording = Recording { frames, lost: 0 };
    assert_eq!(recording.holding("midnight"), 2);
    assert_eq!(recording.summary(), "3 packets: 3 in clear");
}
