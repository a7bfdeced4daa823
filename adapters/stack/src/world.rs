//! What serving a call needs from outside of the session.

use crate::limits::{Grant, Limits};
use crate::ports::Ephemeral;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;

pub(crate) struct World<'w> {
    pub(crate) now: Instant,
    pub(crate) interface: &'w mut Interface,
    pub(crate) sockets: &'w mut SocketSet<'static>,
    pub(crate) ports: &'w mut Ephemeral,
    pub(crate) limits: &'w Limits,
    pub(crate) grant: &'w Grant,
}
