//! What both ends of a connection do with it, in one of the paper's four figures.

use smoltcp::socket::tcp::Socket;

/// The longest message, in bytes.
pub(super) const LONGEST: usize = 16_384;
static MESSAGE: [u8; LONGEST] = [0x5A; LONGEST];

/// What is measured, and who begins. The host is the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    HostAsks,
    DeviceAsks,
    DeviceSends,
    HostSends,
}

/// All of them, with their names in answers.
pub(super) const FLOWS: [(&str, Flow); 4] = [
    ("host-asks", Flow::HostAsks),
    ("device-asks", Flow::DeviceAsks),
    ("device-sends", Flow::DeviceSends),
    ("host-sends", Flow::HostSends),
];

/// An application with one connection, and messages of one size.
pub(super) struct Application {
    size: usize,
    work: Work,
    /// Bytes that it has read.
    pub(super) heard: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Take,
    Give,
    /// A message comes, of which so much is missing.
    Hear(usize),
    /// A message goes, of which so much is missing.
    Say(usize),
}

impl Flow {
    /// Whether transactions are counted, and not bytes.
    pub(super) const fn is_latency(self) -> bool {
        matches!(self, Self::HostAsks | Self::DeviceAsks)
    }

    /// The device's application, and the host's.
    pub(super) const fn applications(self, size: usize) -> [Application; 2] {
        let [device, host] = match self {
            Self::HostAsks => [Work::Hear(size), Work::Say(size)],
            Self::DeviceAsks => [Work::Say(size), Work::Hear(size)],
            Self::DeviceSends => [Work::Give, Work::Take],
            Self::HostSends => [Work::Take, Work::Give],
        };
        [Application { size, work: device, heard: 0 }, Application { size, work: host, heard: 0 }]
    }
}

impl Application {
    /// Whether the stack may put messages together (Nagle's rule): questions and answers may not wait for that.
    pub(super) const fn streams(&self) -> bool {
        matches!(self.work, Work::Take | Work::Give)
    }

    /// Does what can be done, of several messages one. Whether that was anything.
    pub(super) fn turn(&mut self, socket: &mut Socket<'_>) -> bool {
        let before = self.heard;
        match self.work {
            Work::Take => {
                self.heard += hear(socket, usize::MAX);
                self.heard > before
            }
            Work::Give => {
                let room = socket.send_capacity().saturating_sub(socket.send_queue());
                room >= self.size && say(socket, self.size) > 0
            }
            Work::Hear(left) => {
                let len = hear(socket, left);
                self.heard += len;
                self.work = if len == left { Work::Say(self.size) } else { Work::Hear(left - len) };
                len > 0
            }
            Work::Say(left) => {
                let len = say(socket, left);
                self.work = if len == left { Work::Hear(self.size) } else { Work::Say(left - len) };
                len > 0
            }
        }
    }
}

/// Reads no more than `most` bytes; how many came.
fn hear(socket: &mut Socket<'_>, most: usize) -> usize {
    let mut all = 0;
    loop {
        // What is there may lie in two pieces, at the end of the buffer and at its beginning.
        let left = most - all;
        match socket.recv(|data| (data.len().min(left), data.len().min(left))) {
            Ok(len @ 1..) => all += len,
            _ => return all,
        }
    }
}

/// Sends so many bytes, or as many of them as there is room for.
fn say(socket: &mut Socket<'_>, size: usize) -> usize {
    socket.send_slice(MESSAGE.get(..size).unwrap_or_default()).unwrap_or(0)
}
