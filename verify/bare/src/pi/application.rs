//! Applications at both ends of a connection, for the four figures of the paper.

use smoltcp::socket::tcp::Socket;

/// Maximum length of a message in bytes.
pub(super) const MAX_MESSAGE: usize = 16_384;
static MESSAGE: [u8; MAX_MESSAGE] = [0x5A; MAX_MESSAGE];

/// Traffic pattern: which side sends. The host is the peer of the measured device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    HostAsks,
    DeviceAsks,
    DeviceSends,
    HostSends,
}

/// All patterns with their names in the output.
pub(super) const FLOWS: [(&str, Flow); 4] = [
    ("host-asks", Flow::HostAsks),
    ("device-asks", Flow::DeviceAsks),
    ("device-sends", Flow::DeviceSends),
    ("host-sends", Flow::HostSends),
];

/// An application with one connection and messages of a fixed size.
pub(super) struct Application {
    size: usize,
    role: Role,
    /// Number of bytes read so far.
    pub(super) received: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    ReceiveStream,
    SendStream,
    /// Receive a message; the value is the number of missing bytes.
    ReceiveMessage(usize),
    /// Send a message; the value is the number of missing bytes.
    SendMessage(usize),
}

impl Flow {
    /// Returns whether transactions are counted instead of bytes.
    pub(super) const fn is_latency(self) -> bool {
        matches!(self, Self::HostAsks | Self::DeviceAsks)
    }

    /// Returns the applications of the device and of the host.
    pub(super) const fn applications(self, size: usize) -> [Application; 2] {
        let [device, host] = match self {
            Self::HostAsks => [Role::ReceiveMessage(size), Role::SendMessage(size)],
            Self::DeviceAsks => [Role::SendMessage(size), Role::ReceiveMessage(size)],
            Self::DeviceSends => [Role::SendStream, Role::ReceiveStream],
            Self::HostSends => [Role::ReceiveStream, Role::SendStream],
        };
        [Application { size, role: device, received: 0 }, Application { size, role: host, received: 0 }]
    }
}

impl Application {
    /// Returns whether the stack may merge messages (Nagle's algorithm). Requests and responses must not
    /// be delayed.
    pub(super) const fn streams(&self) -> bool {
        matches!(self.role, Role::ReceiveStream | Role::SendStream)
    }

    /// Works as far as possible without blocking, and handles at most one message. Returns whether it did
    /// anything.
    pub(super) fn poll(&mut self, socket: &mut Socket<'_>) -> bool {
        let before = self.received;
        match self.role {
            Role::ReceiveStream => {
                self.received += receive(socket, usize::MAX);
                self.received > before
            }
            Role::SendStream => {
                let room = socket.send_capacity().saturating_sub(socket.send_queue());
                room >= self.size && send(socket, self.size) > 0
            }
            Role::ReceiveMessage(left) => {
                let len = receive(socket, left);
                self.received += len;
                self.role =
                    if len == left { Role::SendMessage(self.size) } else { Role::ReceiveMessage(left - len) };
                len > 0
            }
            Role::SendMessage(left) => {
                let len = send(socket, left);
                self.role =
                    if len == left { Role::ReceiveMessage(self.size) } else { Role::SendMessage(left - len) };
                len > 0
            }
        }
    }
}

/// Reads at most `most` bytes and returns the number of bytes read.
fn receive(socket: &mut Socket<'_>, max: usize) -> usize {
    let mut all = 0;
    loop {
        // The data in the ring buffer may be in two parts.
        let left = max - all;
        match socket.recv(|data| (data.len().min(left), data.len().min(left))) {
            Ok(len @ 1..) => all += len,
            _ => return all,
        }
    }
}

/// Sends up to `size` bytes, as far as there is room. Returns the number of bytes sent.
fn send(socket: &mut Socket<'_>, size: usize) -> usize {
    socket.send_slice(MESSAGE.get(..size).unwrap_or_default()).unwrap_or(0)
}
