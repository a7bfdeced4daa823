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
/// Attribute of a message about a table, or about what is in it: the table's name.
const TABLE_NAME: u16 = 1;
/// Attribute of a message about a generation: its number.
const GEN_ID: u16 = 1;
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
/// Length of a netlink header.
const HEADER: usize = 16;
/// Length of the header of netfilter, which follows it.
const NETFILTER_HEADER: usize = 4;

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
        let name = |bytes: &mut Vec<u8>| attribute(bytes, TABLE_NAME, |bytes| string(bytes, table));
        match self.ask(libc::NFT_MSG_GETTABLE, libc::NFPROTO_INET, libc::NFT_MSG_NEWTABLE, name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// The number of the last transaction that the kernel has made in this network namespace.
    pub(crate) fn generation(&mut self) -> io::Result<u32> {
        let attributes = self.ask(libc::NFT_MSG_GETGEN, libc::AF_UNSPEC, libc::NFT_MSG_NEWGEN, |_| {})?;
        watch::generation(&attributes).ok_or_else(no_answer)
    }

    /// Sends a request; returns the attributes of the message of type `answer` that answers it.
    fn ask(
        &mut self,
        request: libc::c_int,
        family: libc::c_int,
        answer: libc::c_int,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.message(&mut bytes, NFTABLES << 8 | request as u16, 0, (family, 0), attributes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            // The answer to a request that ended early is older.
            let is_ours = |message: &&[u8]| word(message, 8).map(u32::from_ne_bytes) == Some(self.sequence);
            let Some(message) = messages(&bytes).find(is_ours) else { continue };
            if kind(message) == Some(NFTABLES << 8 | answer as u16) {
                let attributes = message.get(HEADER.saturating_add(NETFILTER_HEADER)..);
                return Ok(attributes.unwrap_or_default().to_vec());
            }
            return Err(Answer::of(message).and_then(|answer| answer.result.err()).unwrap_or_else(no_answer));
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

/// The type of a message.
fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "neither an answer nor an error")
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
        let kind = kind(message)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft::Nft;

    #[test]
    fn the_answer_to_an_older_request_is_not_taken_for_that_to_a_later_one() {
        let Some(netns) = Netns::new().map_err(casemate_left_out::note).ok() else { return };
        let test = || {
            Nft::direct().run("table inet one { }\n").unwrap();
            let mut netfilter = Netfilter::open().unwrap();
            // A request whose answer nobody has read.
            let mut bytes = Vec::new();
            let kind = NFTABLES << 8 | libc::NFT_MSG_GETTABLE as u16;
            netfilter.message(&mut bytes, kind, 0, (libc::NFPROTO_INET, 0), |bytes| {
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
