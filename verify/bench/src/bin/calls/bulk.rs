//! Bulk, from the first end to the second: packets of 1,400 bytes without a mark, at a rate, in short bursts on a timer.

use casemate_stage::arena::{BEHIND, WIRE};
use casemate_stage::paced::PORT;
use casemate_stage::sys;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of UDP: 1,400 bytes without the headers of IPv4 and UDP.
const PAYLOAD: usize = 1_400 - 28;
/// Between bursts.
const TICK: Duration = Duration::from_micros(500);
/// Packets that the kernel is given at once.
const TRAIN: usize = 8;
/// How much may be made up for when somebody held the sender up: not more than a sender with a queue would.
const LATE: Duration = Duration::from_millis(5);
/// Behind the calls, before the gateways.
const PRIORITY: i32 = 10;

/// What the sender tells, and is told.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) offered: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// Where bulk comes from.
pub(crate) enum Source<'a> {
    /// Into the first gateway's TUN interface.
    Clear,
    /// Packets that the first gateway has protected before, again and again on the link.
    Recorded(&'a [Vec<u8>]),
}

/// Sends so many packets a second until it is over, in the namespace of a process.
pub(crate) fn send(pid: u32, source: &Source<'_>, rate: u64, control: &Control) -> io::Result<()> {
    sys::enter_network_of(pid)?;
    sys::run_before_others(PRIORITY)?;
    let mut send = open(source)?;
    let (mut begin, mut sent) = (Instant::now(), 0);
    while !control.is_over.load(Ordering::Relaxed) {
        let due = begin.elapsed().as_nanos() as u64 * rate / 1_000_000_000;
        let most = (LATE.as_nanos() as u64 * rate / 1_000_000_000).max(1);
        if due - sent > most {
            (begin, sent) = (Instant::now(), 0);
            continue;
        }
        (sent..due).step_by(TRAIN).for_each(|from| send((due - from).min(TRAIN as u64) as usize));
        control.offered.fetch_add(due - sent, Ordering::Relaxed);
        sent = due;
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// What sends so many packets. What finds no room is lost.
fn open<'a>(source: &Source<'a>) -> io::Result<Box<dyn FnMut(usize) + 'a>> {
    match *source {
        Source::Clear => {
            let socket = UdpSocket::bind((BEHIND[0], 0))?;
            socket.connect((BEHIND[1], PORT))?;
            socket.set_nonblocking(true)?;
            sys::cut_into(&socket, PAYLOAD as u16)?;
            Ok(Box::new(move |count| {
                let _ = socket.send(&[0; PAYLOAD * TRAIN][..PAYLOAD * count]);
            }))
        }
        Source::Recorded(packets) => {
            let raw = Some(Protocol::from(libc::IPPROTO_RAW));
            let socket = Socket::new(Domain::IPV4, Type::RAW, raw)?;
            socket.set_nonblocking(true)?;
            let to: Ipv4Addr = WIRE[1].parse().map_err(io::Error::other)?;
            let to = SockAddr::from(SocketAddrV4::new(to, 0));
            let mut packets = packets.iter().cycle();
            Ok(Box::new(move |count| {
                for packet in packets.by_ref().take(count) {
                    let _ = socket.send_to(packet, &to);
                }
            }))
        }
    }
}

/// Whether a packet on the link is bulk in ESP.
fn is_bulk(packet: &[u8]) -> bool {
    packet.len() > PAYLOAD && packet.get(9) == Some(&50)
}

/// A socket that hears what comes over the link.
pub(crate) struct Recorder(Socket);

impl Recorder {
    /// In this thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let of_ipv4 = Protocol::from(i32::from((libc::ETH_P_IP as u16).to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(of_ipv4))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self(socket))
    }

    /// The next packets of bulk as they are on the link, so many. An error if none comes for a second.
    pub(crate) fn record(&self, count: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut packets = Vec::new();
        let mut buffer = [0; 2_048];
        while packets.len() < count {
            let len = io::Read::read(&mut &self.0, &mut buffer)?;
            if is_bulk(&buffer[..len]) {
                packets.push(buffer[..len].to_vec());
            }
        }
        Ok(packets)
    }
}
