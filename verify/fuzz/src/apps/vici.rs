//! Streams of vici packets, and the sections of the configuration in their messages.

use crate::Target;
use casemate_app::swanctl::Known;
use casemate_app::vici::convert::convert;
use casemate_app::vici::message::{MessageWriter, Section};
use casemate_app::vici::packet::{ClientPacket, PacketReader};

pub(crate) const TARGET: Target = Target {
    name: "vici",
    about: "vici packets in parts of any length: messages have one encoding, and a loaded section is refused with a reason or has one connection for each name",
    max_len: 4_096,
    run,
    seeds,
    dictionary: DICTIONARY,
};

/// The first byte is the length of the parts in which the rest arrives.
fn run(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    let mut reader = PacketReader::default();
    for part in stream.chunks(usize::from(*step).max(1)) {
        reader.push(part);
        loop {
            match reader.next_packet() {
                Ok(Some(packet)) => check_packet(&packet),
                Ok(None) => break,
                Err(fault) => {
                    assert!(!fault.to_string().is_empty());
                    return;
                }
            }
        }
    }
}

fn check_packet(packet: &ClientPacket) {
    let ClientPacket::Command(name, message) = packet else { return };
    let encoded = MessageWriter::message(|writer| writer.elements(message));
    assert_eq!(Section::decode(&encoded).as_ref(), Ok(message));
    let kind = match name.as_str() {
        "load-conn" => "connections",
        "load-pool" => "pools",
        "load-authority" => "authorities",
        "load-shared" => "secrets",
        _ => return,
    };
    let known = Known { pools: &[], has_scheduler: false, has_groups: false, has_all_secrets: true };
    match convert(kind, message, &[]).map(|converted| converted.sections.read(&known)) {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(Err(reasons)) => assert!(reasons.iter().all(|reason| !reason.is_empty()) && !reasons.is_empty()),
        Ok(Ok(config)) => {
            assert_eq!(config.own_signatures.len(), config.connections.len());
            assert_eq!(config.peer_conditions.len(), config.connections.len());
            assert_eq!(config.scripts.len(), config.connections.len());
            assert!(config.connections.len() <= message.0.len());
        }
    }
}

const DICTIONARY: &[&str] = &[
    "load-conn",
    "load-pool",
    "load-shared",
    "load-authority",
    "\\x01\\x08children",
    "\\x01\\x05local",
    "\\x01\\x06remote",
    "\\x03\\x04auth\\x00\\x03psk",
    "\\x04\\x08local_ts\\x05\\x00\\x07dynamic\\x06",
    "\\x04\\x0cremote_addrs\\x05\\x00\\x091.2.3.4/8\\x06",
    "\\x02",
    "\\x06",
];

fn seeds() -> Vec<Vec<u8>> {
    let packet = |name: &str, message: Vec<u8>| {
        let body = [&[0, name.len() as u8][..], name.as_bytes(), &message].concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    };
    let connection = MessageWriter::message(|message| {
        message.section("home", |section| {
            section.list("remote_addrs", ["192.0.2.2"]);
            section.section("local", |section| section.value("auth", "psk"));
            section.section("remote", |section| section.value("auth", "psk"));
            section.section("children", |section| {
                section.section("net", |child| child.list("remote_ts", ["10.2.0.0/16", "dynamic"]));
            });
        });
    });
    let pool = MessageWriter::message(|message| {
        message.section("guests", |section| section.value("addrs", "10.3.0.0/24"));
    });
    let registration = [&[0, 0, 0, 5, 3, 3][..], b"log"].concat();
    let stream = [packet("load-conn", connection), registration, packet("load-pool", pool)].concat();
    vec![[&[255][..], &stream].concat(), [&[1][..], &stream].concat(), vec![4, 0, 0, 0, 0]]
}
