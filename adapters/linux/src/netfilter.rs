//! Elements of nftables sets, over an nfnetlink socket: single ones come and go without the program `nft`.
//!
//! A message that adds or removes elements, wrapped in a batch; a batch is one transaction, of which the kernel takes all or
//! nothing. The formats are those of `linux/netfilter/nfnetlink.h` and `linux/netfilter/nf_tables.h`.

mod watch;

use crate::guard::{Key, SetChange, Shape};
use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
pub(crate) use watch::{Seen, TableWatch};

/// The subsystem in the upper half of a message's type.
const NFTABLES: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
/// Attributes of a message about a table.
const TABLE_NAME: u16 = 1;
const TABLE_HANDLE: u16 = 4;
/// Attributes of a message about elements, of their list, of one of them, and of its key.
const ELEM_LIST_TABLE: u16 = 1;
const ELEM_LIST_SET: u16 = 2;
const ELEM_LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;

/// Elements in one message: their list is one attribute, whose length has 16 bits.
const MESSAGE: usize = 256;
/// Messages in one batch, far below what a socket takes by default.
const BATCH: usize = 8;
/// Length of a netlink header, and where its sequence number is.
const HEADER: usize = 16;

/// A connection to nftables, in the network namespace that it was opened in.
pub(crate) struct Netfilter {
    socket: Socket,
    sequence: u32,
    port: u32,
}

/// Elements of one set that come, or that go, as they are in one message.
pub(crate) struct Elements<'a> {
    set: &'a str,
    shape: &'a Shape,
    come: bool,
    keys: &'a [Key],
}

impl Netfilter {
    /// Opens a connection.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has answered when it has taken a batch, so there is nothing to wait for.
        socket.set_non_blocking(true)?;
        // Answers need not hold what was asked.
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, port })
    }

    /// The number by which the kernel knows the sender of what is sent here.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// Whether a table of the family `inet` has this name. An error if the kernel says neither yes nor no.
    pub(crate) fn has_table(&mut self, table: &str) -> io::Result<bool> {
        self.table(table).map(|handle| handle.is_some())
    }

    /// The number of the table of the family `inet` with this name, by which it differs from all others that
    /// had or will have the name; 0 where the kernel numbers none (before Linux 4.17).
    pub(crate) fn table(&mut self, table: &str) -> io::Result<Option<u64>> {
        let mut bytes = Vec::new();
        let kind = NFTABLES << 8 | libc::NFT_MSG_GETTABLE as u16;
        self.message(&mut bytes, kind, 0, (libc::NFPROTO_INET, 0), |bytes| {
            attribute(bytes, TABLE_NAME, |bytes| string(bytes, table));
        });
        self.socket.send(&bytes, 0)?;
        let (bytes, _) = self.socket.recv_from_full()?;
        let kind = bytes.get(4..).and_then(|rest| rest.first_chunk().copied()).map(u16::from_ne_bytes);
        if kind == Some(NFTABLES << 8 | libc::NFT_MSG_NEWTABLE as u16) {
            let attributes = bytes.get(HEADER.saturating_add(4)..).unwrap_or_default();
            let handle = watch::attribute(attributes, TABLE_HANDLE).and_then(|value| value.first_chunk());
            return Ok(Some(handle.map_or(0, |handle| u64::from_be_bytes(*handle))));
        }
        match messages(&bytes).next().and_then(Answer::of).map(|answer| answer.result) {
            Some(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Some(Err(error)) => Err(error),
            Some(Ok(())) | None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "neither a table nor an error"))
            }
        }
    }

    /// Changes sets of a table in one transaction. The changes must [fit](Elements::fit).
    pub(crate) fn change(&mut self, table: &str, changes: &[SetChange]) -> io::Result<()> {
        let messages: Vec<Elements<'_>> = changes.iter().flat_map(Elements::of).collect();
        let mut bytes = Vec::new();
        let first = self.sequence.wrapping_add(1);
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_BEGIN as u16, 0, (libc::AF_UNSPEC, NFTABLES), |_| {});
        for elements in &messages {
            let (kind, flags) = match elements.come {
                true => (libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE),
                false => (libc::NFT_MSG_DELSETELEM, 0),
            };
            let (kind, flags) = (NFTABLES << 8 | kind as u16, (flags | libc::NLM_F_ACK) as u16);
            self.message(&mut bytes, kind, flags, (libc::NFPROTO_INET, 0), |bytes| {
                elements.write(table, bytes)
            });
        }
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_END as u16, 0, (libc::AF_UNSPEC, NFTABLES), |_| {});
        self.socket.send(&bytes, 0)?;
        self.hear(first, messages.len())
    }

    /// Takes this many acknowledgements of messages that are numbered from `first` on.
    fn hear(&self, first: u32, mut awaited: usize) -> io::Result<()> {
        while awaited > 0 {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in messages(&bytes).filter_map(Answer::of) {
                // What is left of a batch that failed is older.
                if answer.sequence.wrapping_sub(first) > self.sequence.wrapping_sub(first) {
                    continue;
                }
                answer.result?;
                awaited = awaited.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// The number of transactions that the kernel has made in this network namespace.
    #[cfg(test)]
    pub(crate) fn generation(&mut self) -> u32 {
        let mut bytes = Vec::new();
        let kind = NFTABLES << 8 | libc::NFT_MSG_GETGEN as u16;
        self.message(&mut bytes, kind, 0, (libc::AF_UNSPEC, 0), |_| {});
        self.socket.send(&bytes, 0).unwrap();
        let (bytes, _) = self.socket.recv_from_full().unwrap();
        // The first attribute, NFTA_GEN_ID, follows the headers of netlink and netfilter and its own.
        u32::from_be_bytes(*bytes[HEADER + 8..].first_chunk().unwrap())
    }

    /// Appends a message: the header of netlink, the one of netfilter, and attributes.
    fn message(
        &mut self,
        bytes: &mut Vec<u8>,
        kind: u16,
        flags: u16,
        (family, resource): (libc::c_int, u16),
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

impl<'a> Elements<'a> {
    /// Whether one transaction without `nft` takes all these changes.
    pub(crate) fn fit(changes: &'a [SetChange]) -> bool {
        changes.iter().flat_map(Self::of).take(BATCH.saturating_add(1)).count() <= BATCH
    }

    /// A change in messages.
    fn of(change: &'a SetChange) -> impl Iterator<Item = Self> {
        let SetChange { set, shape, add, remove } = change;
        let part =
            |come, keys: &'a Vec<Key>| keys.chunks(MESSAGE).map(move |keys| Self { set, shape, come, keys });
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

/// Length, kind and value, filled up to whole words; the length says where the value ends.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend([0; 2]);
    bytes.extend(kind.to_ne_bytes());
    value(bytes);
    let len = bytes.len().saturating_sub(start) as u16;
    overwrite(bytes, start, &len.to_ne_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    let place = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..with.len()));
    if let Some(place) = place {
        place.copy_from_slice(with);
    }
}

/// The messages in what was received.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= HEADER)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Four bytes of a message.
fn word(message: &[u8], at: usize) -> Option<[u8; 4]> {
    message.get(at..)?.first_chunk().copied()
}

/// What the kernel says of one message.
struct Answer {
    sequence: u32,
    result: io::Result<()>,
}

impl Answer {
    fn of(message: &[u8]) -> Option<Self> {
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let result = match word(message, HEADER)
            .filter(|_| i32::from(kind) == libc::NLMSG_ERROR)
            .map(i32::from_ne_bytes)
        {
            Some(0) => Ok(()),
            // The kernel's numbers are negative here.
            Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "neither acknowledgement nor error")),
        };
        Some(Self { sequence: u32::from_ne_bytes(word(message, 8)?), result })
    }
}
