//! Monitors the changes of a table, which the kernel sends to the multicast group NFNLGRP_NFTABLES.

use super::{ATTRIBUTES_OFFSET, GEN_ID, NETLINK_HEADER_LEN, NFTABLES, TABLE_NAME, kind, messages, word_at};
use crate::sys;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Attribute of a message about a generation: name of the program that made it.
const GEN_PROC_NAME: u16 = 3;
/// Receive buffer in bytes. Memory is used only for messages that wait. With the default size, the messages
/// of a transaction of some thousand elements do not fit.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
/// Datagrams to read at once, at most; more than fit into the buffer.
const MAX_DATAGRAMS: usize = 32_768;

/// Reports transactions on one table of the family `inet`.
pub(crate) struct TableMonitor {
    socket: Socket,
    table: String,
    /// Port of the connection whose transactions are not reported.
    own_port: u32,
    /// The transaction whose messages are being read changes the table.
    is_affected: bool,
    /// Number of the last transaction that was reported before messages were lost; `None` before the first
    /// one.
    generation: Option<u32>,
}

/// The reported events.
#[derive(Debug, Default)]
pub(crate) struct TableEvents {
    /// Number of transactions on the table.
    pub(crate) transactions: u32,
    /// The program that made the last one, if the kernel tells.
    pub(crate) program: Option<String>,
    /// Messages were lost.
    pub(crate) lost: bool,
}

impl TableMonitor {
    /// Monitors the table from now on, except transactions of the connection with port `own`.
    pub(crate) fn open(table: String, own: u32) -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_NETFILTER)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(libc::NFNLGRP_NFTABLES as u32)?;
        socket.set_non_blocking(true)?;
        // Some kernels do not allow this in a user namespace. Then messages are lost sooner, which is
        // detected.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER);
        Ok(Self { socket, table, own_port: own, is_affected: false, generation: None })
    }

    /// Adds the events since the last call. If there are very many, leaves the rest for the next call.
    pub(crate) fn read_events(&mut self, events: &mut TableEvents) {
        for _ in 0..MAX_DATAGRAMS {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => messages(&bytes).for_each(|message| self.add_message(message, events)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => events.lost = true,
            }
        }
        // The end of the transaction may be lost, too, so the next transaction must not count because of it.
        self.is_affected &= !events.lost;
    }

    /// Number of the last transaction that was reported before messages were lost.
    pub(crate) const fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// Declares all transactions up to this one as known, whatever messages were lost.
    pub(crate) const fn set_generation(&mut self, generation: u32) {
        self.generation = Some(generation);
    }

    fn add_message(&mut self, message: &[u8], events: &mut TableEvents) {
        let attributes = message.get(ATTRIBUTES_OFFSET..).unwrap_or_default();
        if kind(message) == Some(NFTABLES << 8 | libc::NFT_MSG_NEWGEN as u16) {
            if !events.lost {
                self.generation = generation(attributes).or(self.generation);
            }
            if std::mem::take(&mut self.is_affected) {
                events.transactions = events.transactions.saturating_add(1);
                events.program = attribute(attributes, GEN_PROC_NAME).and_then(name);
            }
            return;
        }
        let family = message.get(NETLINK_HEADER_LEN).copied().map(libc::c_int::from);
        // The first attribute of every message about a table or its contents is the name of the table.
        let is_ours = || attribute(attributes, TABLE_NAME).and_then(name).as_ref() == Some(&self.table);
        let is_own = word_at(message, 12).map(u32::from_ne_bytes) == Some(self.own_port);
        self.is_affected |= family == Some(libc::NFPROTO_INET) && !is_own && is_ours();
    }
}

impl AsFd for TableMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Number of a transaction, from the attributes of a message about a generation.
pub(super) fn generation(attributes: &[u8]) -> Option<u32> {
    attribute(attributes, GEN_ID)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Value of the first attribute of this type.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & libc::NLA_TYPE_MASK as u16;
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// A string up to its terminator. Any user may choose the name of a program, so only printable characters are
/// kept.
pub(super) fn name(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).chars().filter(|char| char.is_ascii_graphic()).collect())
}
