//! Numbers of SAs and policies of the kernel's own IPsec, over a socket of NETLINK_XFRM (`linux/xfrm.h`).

use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;

const GET_SAD_INFO: u16 = 0x23;
const GET_SPD_INFO: u16 = 0x25;
/// Attribute of a reply about SAs: their number.
const SAD_COUNT: u16 = 1;
/// Attribute of a reply about policies: their numbers, of inbound ones first, then of outbound ones.
const SPD_INFO: u16 = 1;
/// Length of a netlink header.
const HEADER_LEN: usize = 16;
/// Offset of the attributes of a reply, behind 32 bits of flags.
const ATTRIBUTES: usize = HEADER_LEN + 4;
/// Exists if the kernel can be asked.
const MODULE: &str = "/sys/module/xfrm_user";

/// A connection to the kernel's IPsec.
pub(super) struct Xfrm {
    /// `None` if the kernel has no such sockets, and thus no SAs and policies.
    socket: Option<Socket>,
    sequence: u32,
}

impl Xfrm {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open()?, sequence: 0 })
    }

    /// Number of SAs.
    pub(super) fn states(&mut self) -> io::Result<u32> {
        self.number(GET_SAD_INFO, SAD_COUNT, 0)
    }

    /// Number of outbound policies.
    pub(super) fn outbound_policies(&mut self) -> io::Result<u32> {
        self.number(GET_SPD_INFO, SPD_INFO, 4)
    }

    /// Requests an attribute. Returns the number at an offset in it.
    fn number(&mut self, request: u16, wanted: u16, offset: usize) -> io::Result<u32> {
        if self.socket.is_none() && std::fs::exists(MODULE)? {
            // The module was loaded after the start.
            self.socket = open()?;
        }
        let Some(socket) = &self.socket else { return Ok(0) };
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(ATTRIBUTES);
        message.extend((ATTRIBUTES as u32).to_ne_bytes());
        message.extend(request.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 8]);
        socket.send(&message, 0)?;
        loop {
            let (reply, _) = socket.recv_from_full()?;
            let sequence = reply.get(8..).and_then(|rest| rest.first_chunk()).copied();
            if sequence.map(u32::from_ne_bytes) == Some(self.sequence) {
                return number_in(&reply, request.wrapping_sub(1), wanted, offset).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "the kernel did not send the number")
                });
            }
        }
    }
}

fn open() -> io::Result<Option<Socket>> {
    match Socket::new(protocols::NETLINK_XFRM) {
        Ok(mut socket) => {
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // The kernel has replied when `send` returns, so the socket never waits.
            socket.set_non_blocking(true)?;
            Ok(Some(socket))
        }
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number at an offset in an attribute of a reply of this type.
fn number_in(reply: &[u8], reply_kind: u16, wanted: u16, offset: usize) -> Option<u32> {
    if u16::from_ne_bytes(*reply.get(4..)?.first_chunk()?) != reply_kind {
        return None;
    }
    let mut attributes = reply.get(ATTRIBUTES..)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        if kind == wanted {
            let value = attributes.get(4..len)?.get(offset..)?;
            return value.first_chunk().copied().map(u32::from_ne_bytes);
        }
        attributes = attributes.get(len.next_multiple_of(4)..).filter(|_| len > 0)?;
    }
}
