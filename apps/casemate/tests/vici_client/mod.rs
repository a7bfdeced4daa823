//! A client of vici that sees packets.

use casemate_app::vici::message::{MessageWriter, Section};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(180);

/// Types of packets.
pub(crate) const COMMAND: u8 = 0;
pub(crate) const RESPONSE: u8 = 1;
pub(crate) const UNKNOWN_COMMAND: u8 = 2;
pub(crate) const REGISTER: u8 = 3;
pub(crate) const UNREGISTER: u8 = 4;
pub(crate) const CONFIRM: u8 = 5;
pub(crate) const UNKNOWN_EVENT: u8 = 6;
pub(crate) const EVENT: u8 = 7;

/// A packet of the server: its type, its name if it is an event, and its message.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) kind: u8,
    pub(crate) name: String,
    pub(crate) message: Section,
}

pub(crate) struct Client(pub(crate) UnixStream);

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Sends a packet with this type, name and message.
    pub(crate) fn send(&mut self, kind: u8, name: &str, message: &[u8]) {
        self.0.write_all(&packet(kind, name, message)).unwrap();
    }

    /// Receives a packet.
    pub(crate) fn receive(&mut self) -> io::Result<Packet> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut bytes)?;
        let (kind, rest) = bytes.split_first().unwrap();
        let (name, message) = match *kind {
            EVENT => rest[1..].split_at(rest[0].into()),
            _ => (&[][..], rest),
        };
        let name = String::from_utf8(name.to_vec()).unwrap();
        Ok(Packet { kind: *kind, name, message: Section::decode(message).unwrap() })
    }

    /// The response to a command, without events before it.
    pub(crate) fn command(&mut self, name: &str, fill: impl FnOnce(&mut MessageWriter)) -> Packet {
        self.send(COMMAND, name, &MessageWriter::message(fill));
        loop {
            let packet = self.receive().unwrap();
            if packet.kind != EVENT {
                return packet;
            }
        }
    }

    /// The response to a command that must succeed.
    pub(crate) fn succeed(&mut self, name: &str, fill: impl FnOnce(&mut MessageWriter)) -> Section {
        let packet = self.command(name, fill);
        let message = packet.message;
        assert_eq!(
            (packet.kind, message.text("success")),
            (RESPONSE, Some("yes")),
            "{:?}",
            message.text("errmsg")
        );
        message
    }

    /// Registers for an event.
    pub(crate) fn register(&mut self, name: &str) {
        self.send(REGISTER, name, &[]);
        assert_eq!(self.receive().unwrap().kind, CONFIRM);
    }

    /// Waits for an event with this name.
    pub(crate) fn event(&mut self, name: &str) -> Section {
        loop {
            let packet = self.receive().unwrap();
            if packet.kind == EVENT && packet.name == name {
                return packet.message;
            }
        }
    }
}

/// A packet with its length.
pub(crate) fn packet(kind: u8, name: &str, message: &[u8]) -> Vec<u8> {
    let body = [&[kind, name.len() as u8][..], name.as_bytes(), message].concat();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// Writes the connection `home` between the two hosts, with the child `net`.
pub(crate) fn peer_connection(message: &mut MessageWriter, is_mirrored: bool) {
    let ends =
        [("192.0.2.1", "left.example.org", "10.1.0.0/16"), ("192.0.2.2", "right.example.org", "10.2.0.0/16")];
    let [own, peer] = if is_mirrored { [ends[1], ends[0]] } else { ends };
    message.section("home", |section| {
        section.list("local_addrs", [own.0]);
        section.list("remote_addrs", [peer.0]);
        for (side, id) in [("local", own.1), ("remote", peer.1)] {
            section.section(side, |section| {
                section.value("auth", "psk");
                section.value("id", id);
            });
        }
        section.section("children", |children| {
            children.section("net", |child| {
                child.list("local_ts", [own.2]);
                child.list("remote_ts", [peer.2]);
            });
        });
    });
}

/// Writes a connection with a pre-shared key between 192.0.2.1 and 192.0.2.2, whose child is a trap for the
/// traffic to `remote_ts` or starts at once.
pub(crate) fn connection(message: &mut MessageWriter, name: &str, remote_ts: &str, start_action: &str) {
    message.section(name, |section| {
        section.list("local_addrs", ["192.0.2.1"]);
        section.list("remote_addrs", ["192.0.2.2"]);
        for side in ["local", "remote"] {
            section.section(side, |section| {
                section.value("auth", "psk");
                section.value("id", format!("{side}.example.org"));
            });
        }
        section.section("children", |children| {
            children.section("net", |child| {
                child.list("local_ts", ["10.1.0.0/16"]);
                child.list("remote_ts", [remote_ts]);
                child.value("start_action", start_action);
            });
        });
    });
}
