//! Packets of one direction, each counted: the sender looks at what has arrived, past the tunnel, and keeps so few on the way
//! that every queue has room for them.

use casemate_interop::Result;
use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::paced::{PORT, Sink};
use casemate_stage::sys;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of UDP: 1,200 bytes without the headers of IPv4 and UDP.
const PAYLOAD: usize = 1_200 - 28;
/// Packets on the way at most: the queue of a TUN interface takes 500.
const WINDOW: u64 = 300;
/// How long the sender sleeps when so many are on the way.
const PAUSE: Duration = Duration::from_micros(200);
/// When nothing has arrived for so long, what is on the way is no longer waited for. Long, because a gateway that has no processor for
/// a while loses nothing: if more were sent meanwhile, a full queue would.
const LOST: Duration = Duration::from_secs(5);

/// What became of the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
}

impl Count {
    /// Those that never arrived.
    pub(crate) const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

/// The sockets of one direction.
pub(crate) struct Flow {
    pid: u32,
    socket: UdpSocket,
    sink: Sink,
}

impl Flow {
    /// From this end to the other.
    pub(crate) fn open(arena: &Arena, from: usize) -> Result<Self> {
        let sink = arena.inside(1 - from, || Sink::bind(PORT))?;
        let socket = arena.inside(from, || {
            let socket = UdpSocket::bind((BEHIND[from], 0))?;
            socket.connect((BEHIND[1 - from], PORT))?;
            Ok(socket)
        })?;
        Ok(Self { pid: arena.ends[from].pid(), socket, sink })
    }

    /// Sends until it is over, and waits for what is on the way then.
    pub(crate) fn run(&mut self, is_over: &AtomicBool) -> io::Result<Count> {
        sys::enter_network_of(self.pid)?;
        let (mut count, mut given_up, mut since) = (Count::default(), 0, Instant::now());
        loop {
            let arrived = self.sink.look()?;
            if arrived != count.arrived {
                (count.arrived, since) = (arrived, Instant::now());
            }
            let on_the_way = (count.sent - given_up).saturating_sub(arrived);
            let is_still = since.elapsed() > LOST;
            if is_over.load(Ordering::Relaxed) {
                if on_the_way == 0 || is_still {
                    return Ok(count);
                }
            } else {
                if is_still {
                    (given_up, since) = (given_up + on_the_way, Instant::now());
                }
                for _ in on_the_way..WINDOW {
                    self.socket.send(&[0; PAYLOAD])?;
                    count.sent += 1;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}
