//! ICMP echo (RFC 792, RFC 4443 section 4) with several sizes in parallel. Compares each byte of the
//! replies.

use casemate_interop::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Up to this size, a lost packet is a failure. A larger packet may exceed a path MTU that the sender does
/// not know yet, and is sent again.
const MUST_NOT_BE_LOST: usize = 1200;
const ATTEMPTS: u32 = 5;
const WAIT_SMALL: Duration = Duration::from_secs(3);
const WAIT_LARGE: Duration = Duration::from_millis(400);
/// Requests in flight.
const WINDOW: usize = 8;
const HEADER: usize = 8;

struct Request {
    size: usize,
    attempts: u32,
    due: Instant,
}

/// Sends one echo request of each size with this type of service, and requires all replies. Returns a
/// summary.
pub(crate) fn ping(from: IpAddr, to: IpAddr, tos: u8, sizes: &[usize]) -> Result<String> {
    let start = Instant::now();
    let socket = open(from, to).map_err(Error::context("raw socket"))?;
    let marked = if to.is_ipv6() { socket.set_tclass_v6(tos.into()) } else { socket.set_tos_v4(tos.into()) };
    marked.map_err(Error::context("type of service"))?;
    let mut pinger = Pinger { socket, v6: to.is_ipv6(), waiting: BTreeMap::new(), again: 0, trouble: None };
    let mut next = sizes.iter().copied().enumerate();
    loop {
        while pinger.waiting.len() < WINDOW {
            let Some((sequence, size)) = next.next() else { break };
            pinger.waiting.insert(sequence as u16, Request { size, attempts: 0, due: Instant::now() });
        }
        if pinger.waiting.is_empty() {
            break;
        }
        pinger.send_what_is_due()?;
        pinger.receive();
    }
    let again = if pinger.again > 0 { format!(", {} sent again", pinger.again) } else { String::new() };
    Ok(format!("{} replies{again}, {} ms", sizes.len(), start.elapsed().as_millis()))
}

struct Pinger {
    socket: Socket,
    v6: bool,
    waiting: BTreeMap<u16, Request>,
    again: u32,
    /// Last error of the socket.
    trouble: Option<std::io::Error>,
}

impl Pinger {
    fn send_what_is_due(&mut self) -> Result<()> {
        let now = Instant::now();
        for (sequence, request) in self.waiting.iter_mut().filter(|(_, request)| request.due <= now) {
            let small = request.size <= MUST_NOT_BE_LOST;
            if request.attempts >= if small { 1 } else { ATTEMPTS } {
                let trouble = self.trouble.take().map(|error| format!(" ({error})")).unwrap_or_default();
                return Err(Error::new(format!("no reply to {} bytes{trouble}", request.size)));
            }
            self.again = self.again.saturating_add(u32::from(request.attempts > 0));
            request.attempts = request.attempts.saturating_add(1);
            request.due = now + if small { WAIT_SMALL } else { WAIT_LARGE };
            if let Err(error) = self.socket.send(&message(self.v6, *sequence, request.size)) {
                self.trouble = Some(error);
            }
        }
        Ok(())
    }

    /// Receives one packet, or waits a moment.
    fn receive(&mut self) {
        match receive(&self.socket, self.v6) {
            Ok(Some(icmp)) => self.take_answer(&icmp),
            Ok(None) => {}
            Err(error) => self.trouble = Some(error),
        }
    }

    fn take_answer(&mut self, icmp: &[u8]) {
        let Some(sequence) = answered(self.v6, icmp) else { return };
        let Some(request) = self.waiting.get(&sequence) else { return };
        // Everything except type and checksum has to be equal.
        if icmp.get(4..) == message(self.v6, sequence, request.size).get(4..) {
            self.waiting.remove(&sequence);
        }
    }
}

/// Receives an ICMP message from the peer, if one arrives before the timeout of the socket.
pub(crate) fn receive(mut socket: &Socket, v6: bool) -> std::io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; 65_536];
    match socket.read(&mut buffer) {
        Ok(length) => {
            let packet = buffer.get(..length).unwrap_or_default();
            // A raw IPv4 socket includes the IP header, an IPv6 socket does not.
            let header = packet.first().map_or(0, |first| usize::from(first & 15).saturating_mul(4));
            Ok(Some(packet.get(if v6 { 0 } else { header }..).unwrap_or_default().to_vec()))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sequence number of an echo reply to this process.
pub(crate) fn answered(v6: bool, icmp: &[u8]) -> Option<u16> {
    let &[kind, 0, _, _, id_high, id_low, high, low, ..] = icmp else { return None };
    let ours = [id_high, id_low] == (std::process::id() as u16).to_be_bytes();
    (ours && kind == if v6 { 129 } else { 0 }).then(|| u16::from_be_bytes([high, low]))
}

/// Raw ICMP socket between the two addresses, with a short read timeout.
pub(crate) fn open(from: IpAddr, to: IpAddr) -> std::io::Result<Socket> {
    let to = SocketAddr::from((to, 0));
    let protocol = if to.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(protocol))?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket)
}

/// Echo request with `size` bytes of data.
pub(crate) fn message(v6: bool, sequence: u16, size: usize) -> Vec<u8> {
    let kind = if v6 { 128 } else { 8 };
    let [id_high, id_low] = (std::process::id() as u16).to_be_bytes();
    let [high, low] = sequence.to_be_bytes();
    let mut message = Vec::with_capacity(HEADER.saturating_add(size));
    message.extend_from_slice(&[kind, 0, 0, 0, id_high, id_low, high, low]);
    message.extend((0..size).map(|index| (index.wrapping_mul(7) as u8) ^ low));
    // The kernel sets the checksum of ICMPv6 (RFC 3542 section 3.1).
    if !v6 {
        let [check_high, check_low] = checksum(&message).to_be_bytes();
        message.splice(2..4, [check_high, check_low]);
    }
    message
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum = words.fold(0u32, u32::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const FLOW_SIZE: usize = 64;
const FLOW_INTERVAL: Duration = Duration::from_millis(10);
/// Time to wait for the last replies.
const FLOW_LAST_REPLY: Duration = Duration::from_secs(1);
/// Time limit if standard input does not end.
const FLOW_LIMIT: Duration = Duration::from_secs(60);

/// Sends a request every ten milliseconds until standard input ends, and returns the number of lost ones.
pub(crate) fn run_flow(from: IpAddr, to: IpAddr) -> Result<String> {
    let socket = open(from, to).map_err(Error::context("raw socket"))?;
    socket.set_read_timeout(Some(FLOW_INTERVAL / 2)).map_err(Error::context("raw socket"))?;
    static ENDED: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ENDED.store(true, Ordering::Relaxed);
    });
    let (start, mut sent, mut missing) = (Instant::now(), 0_u16, BTreeSet::new());
    let mut last = None;
    loop {
        let ended = ENDED.load(Ordering::Relaxed) || start.elapsed() > FLOW_LIMIT;
        if last.is_none() && ended {
            last = Some(Instant::now());
        }
        if last.is_some_and(|last| last.elapsed() > FLOW_LAST_REPLY || missing.is_empty()) {
            break;
        }
        if last.is_none() && start.elapsed() >= FLOW_INTERVAL.saturating_mul(sent.into()) {
            // A request that cannot be sent counts as lost.
            let _ = socket.send(&message(to.is_ipv6(), sent, FLOW_SIZE));
            missing.insert(sent);
            sent = sent.saturating_add(1);
        }
        let answer = receive(&socket, to.is_ipv6()).unwrap_or_default();
        if let Some(sequence) = answer.and_then(|icmp| answered(to.is_ipv6(), &icmp)) {
            missing.remove(&sequence);
        }
    }
    Ok(format!("{sent} sent, {} lost", missing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_size_and_a_valid_checksum() {
        for size in [0, 1, 2, 9000] {
            let message = message(false, 0x0102, size);
            assert_eq!(message.len(), HEADER + size);
            assert_eq!(checksum(&message), 0);
        }
    }
}
