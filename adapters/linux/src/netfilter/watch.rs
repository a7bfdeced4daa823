//! What happens to a table, as the kernel tells it to the multicast group NFNLGRP_NFTABLES.

use super::{GEN_ID, HEADER, NETFILTER_HEADER, NFTABLES, TABLE_NAME, kind, messages, word};
use crate::sys;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Attribute of a message about a generation: the name of the program that made it.
const GEN_PROC_NAME: u16 = 3;
/// What may wait to be read, in bytes. Memory is used only for what waits. Without this the messages about a
/// transaction of some thousand elements do not fit.
const WAITING: libc::c_int = 8 << 20;
/// Datagrams that are read in one go, more than fit there.
const AT_ONCE: usize = 32_768;

/// Tells of transactions about one table of the family `inet`.
pub(crate) struct TableWatch {
    socket: Socket,
    table: String,
    /// The port of the connection whose transactions are not told.
    own: u32,
    /// The transaction that is being told is about the table.
    touched: bool,
    /// The number of the last transaction that was told before any messages were lost; `None` before the
    /// first one.
    generation: Option<u32>,
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Transactions about the table.
    pub(crate) transactions: u32,
    /// The program that made the last of them, as far as the kernel says it.
    pub(crate) program: Option<String>,
    /// Some messages were lost.
    pub(crate) lost: bool,
}

impl TableWatch {
    /// Listens from now on to all but the connection with the port `own`.
    pub(crate) fn open(table: String, own: u32) -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_NETFILTER)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(libc::NFNLGRP_NFTABLES as u32)?;
        socket.set_non_blocking(true)?;
        // In a user namespace some kernels do not allow it. Then messages are lost sooner, which is noticed.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WAITING);
        Ok(Self { socket, table, own, touched: false, generation: None })
    }

    /// Adds what was told since it was asked last; the rest of very much is left for the next time.
    pub(crate) fn hear(&mut self, seen: &mut Seen) {
        for _ in 0..AT_ONCE {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => messages(&bytes).for_each(|message| self.take(message, seen)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => seen.lost = true,
            }
        }
        // The end of the transaction was lost too, perhaps: the next one is not about the table because of it.
        self.touched &= !seen.lost;
    }

    /// The number of the last transaction that was told before any messages were lost.
    pub(crate) const fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// Everything up to this transaction is known, whatever was lost.
    pub(crate) const fn catch_up(&mut self, generation: u32) {
        self.generation = Some(generation);
    }

    fn take(&mut self, message: &[u8], seen: &mut Seen) {
        let attributes = message.get(HEADER.saturating_add(NETFILTER_HEADER)..).unwrap_or_default();
        if kind(message) == Some(NFTABLES << 8 | libc::NFT_MSG_NEWGEN as u16) {
            if !seen.lost {
                self.generation = generation(attributes).or(self.generation);
            }
            if std::mem::take(&mut self.touched) {
                seen.transactions = seen.transactions.saturating_add(1);
                seen.program = attribute(attributes, GEN_PROC_NAME).and_then(name);
            }
            return;
        }
        let family = message.get(HEADER).copied().map(libc::c_int::from);
        // In every message about a table, and about what is in it, the first attribute is the table's name.
        let is_ours = || attribute(attributes, TABLE_NAME).and_then(name).as_ref() == Some(&self.table);
        let is_own = word(message, 12).map(u32::from_ne_bytes) == Some(self.own);
        self.touched |= family == Some(libc::NFPROTO_INET) && !is_own && is_ours();
    }
}

impl AsFd for TableWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The number of a transaction in the attributes of a message about a generation.
pub(super) fn generation(attributes: &[u8]) -> Option<u32> {
    attribute(attributes, GEN_ID)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// The value of the first attribute of this kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// A text up to its end mark. Of a program's name, which anybody may choose, what can be shown.
fn name(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).chars().filter(|char| char.is_ascii_graphic()).collect())
}
