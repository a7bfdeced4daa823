//! Packets of vici: a length of four bytes, a type, for some types a name, and a message.
//!
//! The format is that of strongSwan's vici plugin (README.md there, "Transport protocol" and "Packet
//! layer"). Clients send three of the eight types.

use super::message::{MessageFault, Section};
use std::fmt;
use zeroize::Zeroizing;

/// Maximum length of a packet without its length field, as in strongSwan.
pub const MAX_PACKET: usize = 512 << 10;

const CMD_REQUEST: u8 = 0;
const CMD_RESPONSE: u8 = 1;
const CMD_UNKNOWN: u8 = 2;
const EVENT_REGISTER: u8 = 3;
const EVENT_UNREGISTER: u8 = 4;
const EVENT_CONFIRM: u8 = 5;
const EVENT_UNKNOWN: u8 = 6;
const EVENT: u8 = 7;

/// A packet of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientPacket {
    /// CMD_REQUEST: a command with its arguments.
    Command(String, Section),
    /// EVENT_REGISTER: events of this name are requested.
    Register(String),
    /// EVENT_UNREGISTER: events of this name are no longer requested.
    Unregister(String),
}

/// A packet to a client. Messages are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerPacket {
    /// CMD_RESPONSE: the response to a command.
    Response(Vec<u8>),
    /// CMD_UNKNOWN: there is no such command.
    UnknownCommand,
    /// EVENT_CONFIRM: the registration has changed.
    Confirm,
    /// EVENT_UNKNOWN: there is no such event.
    UnknownEvent,
    /// EVENT: an event with its name.
    Event(&'static str, Vec<u8>),
}

/// Why bytes are not a packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFault {
    /// The length is 0 or more than [`MAX_PACKET`].
    Length(u32),
    /// The type is unknown, or clients do not send it.
    Type(u8),
    /// The name ends after the packet, or is not UTF-8.
    Name,
    /// The message is malformed.
    Message(MessageFault),
}

impl fmt::Display for PacketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "a packet of {len} bytes: 1 to {MAX_PACKET} were expected"),
            Self::Type(kind) => write!(f, "a packet of type {kind}: 0, 3 or 4 was expected"),
            Self::Name => f.write_str("the name of a packet is too long or not UTF-8"),
            Self::Message(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for PacketFault {}

impl ClientPacket {
    /// Decodes a packet without its length field.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketFault> {
        let (kind, rest) = bytes.split_first().ok_or(PacketFault::Length(0))?;
        let name = || {
            let (len, rest) = rest.split_first().ok_or(PacketFault::Name)?;
            let (name, message) = rest.split_at_checked((*len).into()).ok_or(PacketFault::Name)?;
            let name = str::from_utf8(name).map_err(|_| PacketFault::Name)?;
            Ok((name.to_owned(), message))
        };
        match *kind {
            CMD_REQUEST => {
                let (name, message) = name()?;
                Ok(Self::Command(name, Section::decode(message).map_err(PacketFault::Message)?))
            }
            EVENT_REGISTER => Ok(Self::Register(name()?.0)),
            EVENT_UNREGISTER => Ok(Self::Unregister(name()?.0)),
            other => Err(PacketFault::Type(other)),
        }
    }
}

impl ServerPacket {
    /// Encodes the packet with its length field.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, name, message): (u8, &str, &[u8]) = match self {
            Self::Response(message) => (CMD_RESPONSE, "", message),
            Self::UnknownCommand => (CMD_UNKNOWN, "", &[]),
            Self::Confirm => (EVENT_CONFIRM, "", &[]),
            Self::UnknownEvent => (EVENT_UNKNOWN, "", &[]),
            Self::Event(name, message) => (EVENT, name, message),
        };
        let mut bytes = vec![0; 4];
        bytes.push(kind);
        if kind == EVENT {
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend(name.as_bytes());
        }
        bytes.extend(message);
        let len = u32::try_from(bytes.len().saturating_sub(4)).unwrap_or(u32::MAX);
        bytes.splice(..4, len.to_be_bytes());
        bytes
    }
}

/// The bytes that a client has sent, divided into packets.
#[derive(Default)]
pub struct PacketReader {
    /// May contain secrets.
    bytes: Zeroizing<Vec<u8>>,
}

impl PacketReader {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // Moves the bytes to a larger buffer without leaving a copy of a secret in memory.
        let len = self.bytes.len().saturating_add(bytes.len());
        if len > self.bytes.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(len.next_power_of_two()));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a part of a packet is left.
    pub fn has_part(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Removes and decodes the first packet; `None` if it is not complete yet. After an error, the place of
    /// the next packet is unknown.
    pub fn next_packet(&mut self) -> Result<Option<ClientPacket>, PacketFault> {
        let Some((len, rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*len);
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        if !(1..=MAX_PACKET).contains(&size) {
            return Err(PacketFault::Length(len));
        }
        let Some(packet) = rest.get(..size) else { return Ok(None) };
        let decoded = ClientPacket::decode(packet);
        let left = rest.get(size..).unwrap_or_default().to_vec();
        self.bytes = Zeroizing::new(left);
        decoded.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vici::message::MessageWriter;
    use proptest::prelude::*;

    fn with_len(packet: &[u8]) -> Vec<u8> {
        [&(packet.len() as u32).to_be_bytes()[..], packet].concat()
    }

    #[test]
    fn packets_have_the_documented_bytes() {
        let message = MessageWriter::message(|message| message.value("a", "b"));
        for (packet, bytes) in [
            (ServerPacket::Response(message.clone()), &b"\0\0\0\x07\x01\x03\x01a\0\x01b"[..]),
            (ServerPacket::UnknownCommand, b"\0\0\0\x01\x02"),
            (ServerPacket::Confirm, b"\0\0\0\x01\x05"),
            (ServerPacket::UnknownEvent, b"\0\0\0\x01\x06"),
            (ServerPacket::Event("log", message), b"\0\0\0\x0b\x07\x03log\x03\x01a\0\x01b"),
        ] {
            assert_eq!(packet.encode(), bytes, "{packet:?}");
        }
    }

    #[test]
    fn a_stream_is_divided_into_packets() {
        let stream = [
            with_len(b"\x00\x05stats"),
            with_len(b"\x03\x03log"),
            with_len(b"\x04\x03log"),
            with_len(b"\x00\x01x\x03\x01a\0\x01b"),
        ]
        .concat();
        for step in [1, 3, 7, stream.len()] {
            let (mut reader, mut names) = (PacketReader::default(), Vec::new());
            for part in stream.chunks(step) {
                reader.push(part);
                while let Some(packet) = reader.next_packet().unwrap() {
                    names.push(match packet {
                        ClientPacket::Command(name, message) => format!("{name} {}", message.0.len()),
                        ClientPacket::Register(name) => format!("+{name}"),
                        ClientPacket::Unregister(name) => format!("-{name}"),
                    });
                }
            }
            assert_eq!(names, ["stats 0", "+log", "-log", "x 1"], "in steps of {step}");
            assert!(!reader.has_part());
        }
    }

    #[test]
    fn malformed_packets_are_rejected() {
        let first = |bytes: &[u8]| {
            let mut reader = PacketReader::default();
            reader.push(bytes);
            reader.next_packet()
        };
        for (bytes, fault) in [
            (&b"\0\0\0\0"[..], PacketFault::Length(0)),
            (b"\0\x08\0\x01", PacketFault::Length(0x80001)),
            (b"\xff\xff\xff\xff\0\x05stats", PacketFault::Length(u32::MAX)),
            (b"\0\0\0\x01\x01", PacketFault::Type(1)),
            (b"\0\0\0\x01\x07", PacketFault::Type(7)),
            (b"\0\0\0\x01\x00", PacketFault::Name),
            (b"\0\0\0\x03\x00\xffx", PacketFault::Name),
            (b"\0\0\0\x03\x03\x01\xff", PacketFault::Name),
            (b"\0\0\0\x04\x00\x01x\x02", PacketFault::Message(MessageFault::UnexpectedType(2))),
        ] {
            assert_eq!(first(bytes), Err(fault), "{bytes:?}");
        }
        assert_eq!(first(b"\0\x08\0\0"), Ok(None), "the longest packet is awaited");
    }

    proptest! {
        #[test]
        fn any_bytes_are_packets_or_a_fault(stream in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = PacketReader::default();
            reader.push(&stream);
            while let Ok(Some(_)) = reader.next_packet() {}
        }
    }
}
