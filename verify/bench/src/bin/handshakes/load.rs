//! Initiators over UDP: as many handshakes as are wanted, some of them at a time.

use crate::initiator::{Home, Initiator};
use casemate_ike::Path;
use casemate_interop::{Error, Result};
use casemate_sa::Instant;
use socket2::SockRef;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path as File;
use std::time::{Duration, Instant as Clock};

/// Handshakes at a time. Casemate asks for cookies when 64 are half-open.
const AT_A_TIME: u32 = 32;
/// How long to wait for the responder before it is looked whether something is to be repeated.
const WAIT: Duration = Duration::from_millis(20);
/// Nothing that is measured takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// RFC 7296 section 3.1: in front of an IKE message on the port that it shares with ESP.
const MARKER: [u8; 4] = [0; 4];

/// Both ports of IKE.
struct Ports([(UdpSocket, SocketAddr); 2]);

/// Makes `count` handshakes, none of which is ended, and says how long that took. The configuration is in `file`.
pub(crate) fn run(file: &File, from: &str, count: u32) -> Result<Duration> {
    let ports = Ports::open(from)?;
    let mut initiator = Initiator::new(file, Home::Shared);
    let start = Clock::now();
    let now = || Instant::ZERO.after(start.elapsed());
    let mut buffer = vec![0; 65_536];
    while initiator.done() < count {
        if start.elapsed() > LIMIT {
            return Err(Error::new(format!("{} of {count} handshakes in {LIMIT:?}", initiator.done())));
        }
        while initiator.in_flight() < AT_A_TIME && initiator.begun() < count {
            initiator.begin(now());
        }
        initiator.tick(now());
        ports.send_all(&mut initiator)?;
        ports.wait()?;
        while let Some((path, len, skip)) = ports.receive(&mut buffer) {
            initiator.receive(&mut buffer[skip..len], path, now());
        }
        initiator.check();
    }
    Ok(start.elapsed())
}

impl Ports {
    fn open(from: &str) -> Result<Self> {
        let open = |port: u16| -> Result<(UdpSocket, SocketAddr)> {
            let addr: SocketAddr = format!("{from}:{port}").parse().map_err(Error::in_front(from))?;
            let socket = UdpSocket::bind(addr).map_err(Error::in_front(addr))?;
            socket.set_nonblocking(true).map_err(Error::in_front(addr))?;
            SockRef::from(&socket).set_recv_buffer_size(1 << 20).map_err(Error::in_front(addr))?;
            Ok((socket, addr))
        };
        Ok(Self([open(500)?, open(4_500)?]))
    }

    fn send_all(&self, initiator: &mut Initiator) -> Result<()> {
        while let Some(transmit) = initiator.next_transmit() {
            let own = self.0.iter().find(|(_, addr)| *addr == transmit.path.local);
            let (socket, _) = own.ok_or_else(|| Error::new(format!("no port {}", transmit.path.local)))?;
            // An empty message keeps a NAT's mapping alive, and there is no NAT.
            if transmit.message.is_empty() {
                continue;
            }
            let marker: &[u8] = if transmit.marker { &MARKER } else { &[] };
            let datagram = [marker, &transmit.message].concat();
            // What does not go out now is repeated later, as what gets lost on its way.
            let _ = socket.send_to(&datagram, transmit.path.remote);
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        use std::os::fd::AsRawFd;
        let poll =
            |socket: &UdpSocket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls = [poll(&self.0[0].0), poll(&self.0[1].0)];
        // SAFETY: the pointer and the number are those of the array, which lives until the call returns.
        let done = unsafe { libc::poll(polls.as_mut_ptr(), 2, WAIT.as_millis() as libc::c_int) };
        if done < 0 { Err(Error::new(format!("poll: {}", std::io::Error::last_os_error()))) } else { Ok(()) }
    }

    /// A message, with its length and what stands in front of it.
    fn receive(&self, buffer: &mut [u8]) -> Option<(Path, usize, usize)> {
        self.0.iter().find_map(|(socket, local)| {
            let (len, remote) = socket.recv_from(buffer).ok()?;
            let skip = if local.port() == 500 { 0 } else { MARKER.len() };
            Some((Path { local: *local, remote }, len, skip.min(len)))
        })
    }
}
