//! Reports that the kernel sends when addresses, links, routes or rules change.

use crate::Error;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What a [`NetworkMonitor`] has reported.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NetworkChange {
    /// Anything has changed, or it is unknown.
    pub(crate) any: bool,
    /// An address was removed, or it is unknown.
    pub(crate) removed_address: bool,
}

/// Reports changes of the network configuration of this host.
pub(crate) struct NetworkMonitor(Socket);

impl NetworkMonitor {
    /// Monitors the addresses.
    pub(crate) fn addresses() -> Result<Self, Error> {
        let open = || Self::open(libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR);
        open().map_err(|error| Error::new("netlink socket for addresses", error))
    }

    /// Monitors everything from which the kernel derives the source address of a packet. When an IPv4 link is
    /// switched off, its routes disappear and only the link is reported.
    pub(crate) fn routes() -> Result<Self, Error> {
        let addresses = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let routes = libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE | libc::RTMGRP_IPV4_RULE;
        let open = || {
            let monitor = Self::open(libc::RTMGRP_LINK | addresses | routes)?;
            // This group has no bit in the mask.
            monitor.0.add_membership(libc::RTNLGRP_IPV6_RULE)?;
            Ok(monitor)
        };
        open().map_err(|error| Error::new("netlink socket for routes", error))
    }

    fn open(groups: i32) -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups as u32))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// What has changed since the last call.
    pub(crate) fn read(&self) -> NetworkChange {
        let unknown = NetworkChange { any: true, removed_address: true };
        let mut change = NetworkChange::default();
        loop {
            // Only the type in the header matters, so the message may be truncated.
            let mut header = [0u8; 16];
            match self.0.recv(&mut header.as_mut_slice(), 0) {
                Ok(_) => {
                    let [_, _, _, _, kind @ .., _, _, _, _, _, _, _, _, _, _] = header;
                    change.any = true;
                    change.removed_address |= u16::from_ne_bytes(kind) == libc::RTM_DELADDR;
                }
                // Messages were lost.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => change = unknown,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return change,
                Err(_) => return unknown,
            }
        }
    }
}

impl AsFd for NetworkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
