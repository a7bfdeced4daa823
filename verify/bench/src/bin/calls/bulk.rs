//! Bulk traffic from the first end to the second: packets of 1,400 bytes without a DSCP mark, at a fixed
//! rate, in short bursts on a timer.

use casemate_testbed::packet_rate::PORT;
use casemate_testbed::sys;
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// UDP payload: 1,400 bytes minus the headers of IPv4 and UDP.
const PAYLOAD: usize = 1_400 - 28;
/// Time between bursts.
const TICK: Duration = Duration::from_micros(500);
/// Packets of one send call.
const BURST: usize = 8;
/// Backlog that the sender makes up for after a delay: no more than a sender with a queue would.
const MAX_BACKLOG: Duration = Duration::from_millis(5);
/// Scheduling priority: below the calls, above the gateways.
const PRIORITY: i32 = 10;

/// State that the sender shares with its controller.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) offered: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// Origin of the bulk traffic.
pub(crate) enum Source<'a> {
    /// Plain packets into the TUN interface of the first gateway.
    Clear,
    /// Packets that the first gateway has protected before, repeated on the link.
    Recorded(&'a [Vec<u8>]),
}

/// Sends `rate` packets per second until `is_over`, in the network namespace of a process.
pub(crate) fn send(pid: u32, source: &Source<'_>, rate: u64, control: &Control) -> io::Result<()> {
    sys::enter_netns_of(pid)?;
    sys::set_fifo_priority(PRIORITY)?;
    let mut send = open(source)?;
    let (mut begin, mut sent) = (Instant::now(), 0);
    while !control.is_over.load(Ordering::Relaxed) {
        let due = begin.elapsed().as_nanos() as u64 * rate / 1_000_000_000;
        let max_rate = (MAX_BACKLOG.as_nanos() as u64 * rate / 1_000_000_000).max(1);
        if due - sent > max_rate {
            (begin, sent) = (Instant::now(), 0);
            continue;
        }
        (sent..due).step_by(BURST).for_each(|from| send((due - from).min(BURST as u64) as usize));
        control.offered.fetch_add(due - sent, Ordering::Relaxed);
        sent = due;
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Function that sends a number of packets. Packets are lost if the queue is full.
fn open<'a>(source: &Source<'a>) -> io::Result<Box<dyn FnMut(usize) + 'a>> {
    match *source {
        Source::Clear => {
            let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
            socket.connect((INNER_ADDRS[1], PORT))?;
            socket.set_nonblocking(true)?;
            sys::set_udp_segment_size(&socket, PAYLOAD as u16)?;
            Ok(Box::new(move |count| {
                let _ = socket.send(&[0; PAYLOAD * BURST][..PAYLOAD * count]);
            }))
        }
        Source::Recorded(packets) => {
            let raw = Some(Protocol::from(libc::IPPROTO_RAW));
            let socket = Socket::new(Domain::IPV4, Type::RAW, raw)?;
            socket.set_nonblocking(true)?;
            let to: Ipv4Addr = LINK_ADDRS[1].parse().map_err(io::Error::other)?;
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

/// Whether a packet on the link is bulk traffic in ESP.
fn is_bulk(packet: &[u8]) -> bool {
    packet.len() > PAYLOAD && packet.get(9) == Some(&50)
}

/// Packet socket that receives what arrives over the link.
pub(crate) struct Recorder(Socket);

impl Recorder {
    /// Recorder in the namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        let of_ipv4 = Protocol::from(i32::from((libc::ETH_P_IP as u16).to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(of_ipv4))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self(socket))
    }

    /// Next `count` packets of protected bulk traffic on the link. Fails if none arrives for a second.
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
