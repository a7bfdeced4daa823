//! Reports changes of the network configuration that may make a known next hop wrong.

use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
use std::net::IpAddr;

/// Group of changes of next hop objects (RTNLGRP_NEXTHOP). Kernels before 5.3 have none.
const NEXT_HOP_OBJECTS: u32 = 32;
/// Groups of changes that may change any next hop.
const GROUPS: [u32; 8] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
];
/// Messages to read at once, at most. More count as a change of everything.
const MAX_MESSAGES: usize = 256;
/// Room for a message about a neighbour up to its address, which is the first attribute. Others may be
/// truncated.
const BUFFER: usize = 64;
/// Offset of the header of a message about a neighbour (`ndmsg`), behind that of netlink.
const NEIGHBOUR_HEADER: usize = 16;
/// Offset of the first attribute of a message about a neighbour.
const NEIGHBOUR_ATTRIBUTES: usize = NEIGHBOUR_HEADER + 12;

/// A netlink socket that receives the changes.
pub(super) struct ChangeMonitor(Socket);

/// A neighbour whose state or link address has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChangedNeighbour {
    pub(super) ifindex: u32,
    pub(super) addr: IpAddr,
}

/// What a message means.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Any next hop may have changed.
    Any,
    Neighbour(ChangedNeighbour),
    /// No next hop.
    None,
}

impl ChangeMonitor {
    /// Monitors changes from now on.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
        let _ = socket.add_membership(NEXT_HOP_OBJECTS);
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Reads the changes since the last call, without waiting. Calls `on_neighbour` for each changed
    /// neighbour. Returns `true` if any next hop may have changed.
    #[inline]
    pub(super) fn read(&self, mut on_neighbour: impl FnMut(ChangedNeighbour)) -> bool {
        let mut is_any = false;
        for _ in 0..MAX_MESSAGES {
            let mut buffer = [0u8; BUFFER];
            match self.0.recv(&mut buffer.as_mut_slice(), 0) {
                Ok(len) => match Change::of(buffer.get(..len).unwrap_or(&buffer)) {
                    Change::Any => is_any = true,
                    Change::Neighbour(neighbour) => on_neighbour(neighbour),
                    Change::None => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return is_any,
                // Messages were lost, or nothing is known: everything may have changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => is_any = true,
                Err(_) => return true,
            }
        }
        true
    }
}

impl Change {
    fn of(message: &[u8]) -> Self {
        let kind = message.get(4..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_ne_bytes);
        if !matches!(kind, Some(libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH)) {
            return Self::Any;
        }
        match message.get(NEIGHBOUR_HEADER).copied().map(libc::c_int::from) {
            Some(libc::AF_INET | libc::AF_INET6) => {
                ChangedNeighbour::parse(message).map_or(Self::Any, Self::Neighbour)
            }
            // An address that a bridge has learned.
            Some(_) => Self::None,
            None => Self::Any,
        }
    }
}

impl ChangedNeighbour {
    /// Returns `None` unless the address is the first attribute.
    fn parse(message: &[u8]) -> Option<Self> {
        let ifindex = u32::from_ne_bytes(*message.get(NEIGHBOUR_HEADER + 4..)?.first_chunk()?);
        let attribute = message.get(NEIGHBOUR_ATTRIBUTES..)?;
        let len = usize::from(u16::from_ne_bytes(*attribute.first_chunk()?));
        let kind = u16::from_ne_bytes(*attribute.get(2..)?.first_chunk()?);
        let value = attribute.get(4..len).filter(|_| kind == libc::NDA_DST)?;
        let addr = match value.len() {
            4 => IpAddr::from(*value.first_chunk::<4>()?),
            16 => IpAddr::from(*value.first_chunk::<16>()?),
            _ => return None,
        };
        Some(Self { ifindex, addr })
    }
}
