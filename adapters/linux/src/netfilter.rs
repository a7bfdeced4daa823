//! Changes elements of nftables sets over an nfnetlink socket, without the program `nft`.
//!
//! A message adds or removes elements. Messages are wrapped in a batch, which is one transaction: the kernel
//! applies it completely or not at all. The formats are those of `linux/netfilter/nfnetlink.h` and
//! `linux/netfilter/nf_tables.h`.

mod chains;
mod early_drop;
mod monitor;
mod owned_table;
mod set_marks;

use crate::leak_guard::{SetChange, SetKey, SetShape};
use casemate_wire::invariant::OrBroken;
pub(crate) use chains::BaseChain;
pub(crate) use early_drop::{EarlyDrop, table_name as early_drop_table};
pub(crate) use monitor::{TableEvents, TableMonitor};
use netlink_sys::{Socket, SocketAddr, protocols};
pub(crate) use set_marks::SetMarks;
use std::io;

/// The subsystem, in the upper half of the message type.
const NFTABLES: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
/// Attribute of a message about a table or its contents: the name of the table.
const TABLE_NAME: u16 = 1;
/// Attribute of a message about a generation: its number.
const GEN_ID: u16 = 1;
/// Attributes of a message about elements, of the list, of one element, and of its key.
const ELEM_LIST_TABLE: u16 = 1;
const ELEM_LIST_SET: u16 = 2;
const ELEM_LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;

/// Elements of one message, at most: their list is one attribute, whose length has 16 bits.
const MAX_ELEMENTS: usize = 256;
/// Messages of one batch, at most; far below the default limit of a socket.
const MAX_MESSAGES: usize = 8;
/// Length of the netlink header, in bytes.
const NETLINK_HEADER_LEN: usize = 16;
/// Length of the netfilter header behind it, in bytes.
const NETFILTER_HEADER_LEN: usize = 4;
/// Offset of the attributes in a message.
const ATTRIBUTES_OFFSET: usize = NETLINK_HEADER_LEN + NETFILTER_HEADER_LEN;

/// A connection to nftables, in the network namespace in which it was opened.
pub(crate) struct Netfilter {
    socket: Socket,
    sequence: u32,
    port: u32,
}

/// Elements to add to one set, or to remove from it, in one message.
pub(crate) struct ElementMessage<'a> {
    set: &'a str,
    shape: &'a SetShape,
    is_add: bool,
    keys: &'a [SetKey],
}

impl Netfilter {
    /// Opens a connection.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has replied when `send` returns, so the socket never waits.
        socket.set_non_blocking(true)?;
        // Error replies need not contain the request.
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, port })
    }

    /// Port number of the connection, by which the kernel identifies the sender.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// Whether a table of the family `inet` has this name. An error if the kernel does not reply.
    pub(crate) fn has_table(&mut self, table: &str) -> io::Result<bool> {
        let name = |bytes: &mut Vec<u8>| attribute(bytes, TABLE_NAME, |bytes| string(bytes, table));
        match self.request(libc::NFT_MSG_GETTABLE, libc::NFPROTO_INET, libc::NFT_MSG_NEWTABLE, name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            ack => ack.map(|_| true),
        }
    }

    /// Number of the last transaction in this network namespace.
    pub(crate) fn generation(&mut self) -> io::Result<u32> {
        let attributes = self.request(libc::NFT_MSG_GETGEN, libc::AF_UNSPEC, libc::NFT_MSG_NEWGEN, |_| {})?;
        monitor::generation(&attributes).ok_or_else(unexpected_response)
    }

    /// Sends a request. Returns the attributes of the reply, a message of type `reply_kind`.
    fn request(
        &mut self,
        request: libc::c_int,
        family: libc::c_int,
        reply_kind: libc::c_int,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.message(&mut bytes, NFTABLES << 8 | request as u16, 0, family, 0, attributes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            // Skips replies to earlier requests that ended early.
            let is_ours =
                |message: &&[u8]| word_at(message, 8).map(u32::from_ne_bytes) == Some(self.sequence);
            let Some(message) = messages(&bytes).find(is_ours) else { continue };
            if kind(message) == Some(NFTABLES << 8 | reply_kind as u16) {
                let attributes = message.get(ATTRIBUTES_OFFSET..);
                return Ok(attributes.unwrap_or_default().to_vec());
            }
            return Err(Ack::of(message)
                .and_then(|ack| ack.result.err())
                .unwrap_or_else(unexpected_response));
        }
    }

    /// Changes sets of a table in one transaction. The changes must [fit](ElementMessage::fit_in_batch).
    pub(crate) fn change(&mut self, table: &str, changes: &[SetChange]) -> io::Result<()> {
        let messages: Vec<ElementMessage<'_>> = changes.iter().flat_map(ElementMessage::of).collect();
        let mut bytes = Vec::new();
        let first = self.sequence.wrapping_add(1);
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_BEGIN as u16, 0, libc::AF_UNSPEC, NFTABLES, |_| {});
        for elements in &messages {
            let (kind, flags) = match elements.is_add {
                true => (libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE),
                false => (libc::NFT_MSG_DELSETELEM, 0),
            };
            let (kind, flags) = (NFTABLES << 8 | kind as u16, (flags | libc::NLM_F_ACK) as u16);
            self.message(&mut bytes, kind, flags, libc::NFPROTO_INET, 0, |bytes| {
                elements.write(table, bytes)
            });
        }
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_END as u16, 0, libc::AF_UNSPEC, NFTABLES, |_| {});
        self.socket.send(&bytes, 0)?;
        self.read_acks(first, messages.len())
    }

    /// Reads this many acknowledgements of messages, whose numbers start at `first`.
    fn read_acks(&self, first: u32, mut awaited: usize) -> io::Result<()> {
        while awaited > 0 {
            let (bytes, _) = self.socket.recv_from_full()?;
            for ack in messages(&bytes).filter_map(Ack::of) {
                // Skips replies to an earlier batch that failed.
                if ack.sequence.wrapping_sub(first) > self.sequence.wrapping_sub(first) {
                    continue;
                }
                ack.result?;
                awaited = awaited.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Appends a message: netlink header, netfilter header, and attributes.
    fn message(
        &mut self,
        bytes: &mut Vec<u8>,
        kind: u16,
        flags: u16,
        family: libc::c_int,
        resource: u16,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) {
        self.sequence = self.sequence.wrapping_add(1);
        let start = bytes.len();
        bytes.extend([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([family as u8, libc::NFNETLINK_V0 as u8]);
        bytes.extend(resource.to_be_bytes());
        attributes(bytes);
        let len = bytes.len().saturating_sub(start) as u32;
        overwrite(bytes, start, &len.to_ne_bytes());
    }
}

impl<'a> ElementMessage<'a> {
    /// Whether one batch has room for all these changes.
    pub(crate) fn fit_in_batch(changes: &'a [SetChange]) -> bool {
        changes.iter().flat_map(Self::of).take(MAX_MESSAGES.saturating_add(1)).count() <= MAX_MESSAGES
    }

    /// Divides a change into messages.
    fn of(change: &'a SetChange) -> impl Iterator<Item = Self> {
        let SetChange { set, shape, add, remove } = change;
        let part = |is_add, keys: &'a Vec<SetKey>| {
            keys.chunks(MAX_ELEMENTS).map(move |keys| Self { set, shape, is_add, keys })
        };
        part(true, add).chain(part(false, remove))
    }

    fn write(&self, table: &str, bytes: &mut Vec<u8>) {
        attribute(bytes, ELEM_LIST_TABLE, |bytes| string(bytes, table));
        attribute(bytes, ELEM_LIST_SET, |bytes| string(bytes, self.set));
        nested(bytes, ELEM_LIST_ELEMENTS, |bytes| {
            for key in self.keys {
                nested(bytes, LIST_ELEM, |bytes| {
                    nested(bytes, ELEM_KEY, |bytes| {
                        attribute(bytes, DATA_VALUE, |bytes| bytes.extend(key.bytes(self.shape)));
                    });
                });
            }
        });
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.bytes().chain([0]));
}

fn nested(bytes: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    attribute(bytes, kind | libc::NLA_F_NESTED as u16, value);
}

/// Appends an attribute: length, type and value. The value is padded to 32 bits, which the length does not
/// include.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend([0; 2]);
    bytes.extend(kind.to_ne_bytes());
    value(bytes);
    let len = u16::try_from(bytes.len().saturating_sub(start));
    overwrite(bytes, start, &len.or_broken("an attribute fits its length field", 0).to_ne_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    let target = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..with.len()));
    if let Some(target) = target.or_report("the length field was appended before") {
        target.copy_from_slice(with);
    }
}

/// The messages in a datagram.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= NETLINK_HEADER_LEN)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Type of a message.
fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn unexpected_response() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel sent neither a reply nor an error")
}

/// Four bytes of a message.
fn word_at(message: &[u8], at: usize) -> Option<[u8; 4]> {
    message.get(at..)?.first_chunk().copied()
}

/// Reply of the kernel to one message.
struct Ack {
    sequence: u32,
    result: io::Result<()>,
}

impl Ack {
    fn of(message: &[u8]) -> Option<Self> {
        let kind = kind(message)?;
        let result = match word_at(message, NETLINK_HEADER_LEN)
            .filter(|_| i32::from(kind) == libc::NLMSG_ERROR)
            .map(i32::from_ne_bytes)
        {
            Some(0) => Ok(()),
            // The kernel returns negative error numbers.
            Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel sent neither an acknowledgement nor an error",
            )),
        };
        Some(Self { sequence: u32::from_ne_bytes(word_at(message, 8)?), result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft::Nft;

    #[test]
    fn a_reply_to_an_older_request_is_skipped() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let test = || {
            Nft::direct().run("table inet one { }\n").unwrap();
            let mut netfilter = Netfilter::open().unwrap();
            // A request whose reply was not read.
            let mut bytes = Vec::new();
            let kind = NFTABLES << 8 | libc::NFT_MSG_GETTABLE as u16;
            netfilter.message(&mut bytes, kind, 0, libc::NFPROTO_INET, 0, |bytes| {
                attribute(bytes, TABLE_NAME, |bytes| string(bytes, "one"));
            });
            netfilter.socket.send(&bytes, 0).unwrap();
            assert!(!netfilter.has_table("two").unwrap());
            assert!(netfilter.has_table("one").unwrap());
            let before = netfilter.generation().unwrap();
            Nft::direct().run("table inet two { }\n").unwrap();
            assert_eq!(netfilter.generation().unwrap(), before.wrapping_add(1));
        };
        netns.run(test).unwrap();
    }
}
