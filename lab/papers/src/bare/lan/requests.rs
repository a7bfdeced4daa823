//! Requests whose response times are measured: ICMP echo (RFC 792), and the paper's web page of 3.5 KB, which
//! the firmware serves as well. Also the server of this page for Linux.

use casemate_testbed::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Time limit for a reply.
const ECHO_TIMEOUT: Duration = Duration::from_millis(300);
/// Maximum number of consecutive lost requests.
const MAX_LOSSES: u32 = 10;
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Sends pings from the network namespace of this thread.
pub(super) struct Pinger {
    socket: Socket,
    to: Ipv4Addr,
    id: u16,
    sequence: u16,
}

impl Pinger {
    pub(super) fn new(to: Ipv4Addr, id: u16) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            socket.connect(&SocketAddrV4::new(to, 0).into())?;
            socket.set_read_timeout(Some(ECHO_TIMEOUT))?;
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(Error::context("ICMP socket"))?, to, id, sequence: 0 })
    }

    /// Returns the round-trip times of `count` requests with this payload. The first request is not measured,
    /// and lost requests are repeated.
    pub(super) fn ping(&mut self, payload: usize, count: usize) -> Result<Vec<Duration>> {
        let (mut times, mut losses) = (Vec::with_capacity(count + 1), 0);
        while times.len() <= count {
            match self.ping_once(payload).map_err(Error::context(self.to))? {
                Some(time) => {
                    times.push(time);
                    losses = 0;
                }
                None if losses == MAX_LOSSES => {
                    return Err(Error::new(format!("{} does not reply to {payload} bytes", self.to)));
                }
                None => losses += 1,
            }
        }
        times.remove(0);
        Ok(times)
    }

    fn ping_once(&mut self, payload: usize) -> io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let (request, mut answer) = (request(self.id, self.sequence, payload), [0; 2_048]);
        let start = Instant::now();
        self.socket.send(&request)?;
        while start.elapsed() < ECHO_TIMEOUT {
            let len = match self.socket.read(&mut answer) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if is_reply(answer.get(..len).unwrap_or_default(), &request) {
                return Ok(Some(start.elapsed()));
            }
        }
        Ok(None)
    }
}

/// Whether an IPv4 packet is the complete reply to this request.
fn is_reply(packet: &[u8], request: &[u8]) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let icmp = packet.get(header..).unwrap_or_default();
    icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..) == request.get(4..)
}

fn request(id: u16, sequence: u16, payload: usize) -> Vec<u8> {
    let mut message = vec![ECHO, 0, 0, 0];
    message.extend(id.to_be_bytes().into_iter().chain(sequence.to_be_bytes()));
    message.extend((0..payload).map(|index| index as u8));
    let checksum = checksum(&message).to_be_bytes();
    message.splice(2..4, checksum);
    message
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| pair.iter().fold(0, |word: u32, byte| word << 8 | u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// Length of the page in bytes.
const PAGE_LEN: usize = 3_500;
/// Port of all servers.
const PORT: u16 = 80;
/// Time limit of both ends of a connection.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server\r\n\r\n";
const END: &[u8] = b"\r\n\r\n";
/// Maximum length of an HTTP header section.
const MAX_HEAD_LEN: usize = 2_048;

/// Times of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageLoad {
    /// Time until TCP was connected.
    pub(super) connection: Duration,
    /// Time from the request to the last byte of the page.
    pub(super) response: Duration,
}

/// Fetches the page over a new connection.
pub(super) fn fetch_page(server: Ipv4Addr) -> Result<PageLoad> {
    let to = SocketAddr::new(server.into(), PORT);
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, PAGE_TIMEOUT).map_err(Error::context(to))?;
    let connection = start.elapsed();
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PAGE_TIMEOUT)))
        .map_err(Error::context(to))?;
    let start = Instant::now();
    stream.write_all(REQUEST).map_err(Error::context(to))?;
    read_page(&mut stream).map_err(Error::context(to))?;
    Ok(PageLoad { connection, response: start.elapsed() })
}

fn read_page(stream: &mut TcpStream) -> io::Result<()> {
    let (mut answer, mut piece) = (Vec::with_capacity(MAX_HEAD_LEN + PAGE_LEN), [0; 4_096]);
    while answer.len() < MAX_HEAD_LEN + PAGE_LEN {
        let len = stream.read(&mut piece)?;
        answer.extend_from_slice(piece.get(..len).unwrap_or_default());
        let body =
            answer.windows(END.len()).position(|end| end == END).map(|at| answer.len() - at - END.len());
        match body {
            Some(PAGE_LEN) if answer.starts_with(b"HTTP/1.1 200 ") => return Ok(()),
            _ if len == 0 => break,
            _ => {}
        }
    }
    Err(io::Error::other(format!("{} bytes came, which are not the page", answer.len())))
}

/// Serves the page, one connection at a time, until the process ends.
pub(crate) fn serve_page() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(Error::context("port 80"))?;
    let mut page = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {PAGE_LEN}\r\nConnection: keep-alive\r\n\r\n"
    );
    page.extend(std::iter::repeat_n('.', PAGE_LEN));
    for stream in listener.incoming() {
        // The server continues if a client disconnects or is silent.
        let _ = stream.and_then(|stream| serve_connection(stream, page.as_bytes()));
    }
    Ok(())
}

/// Answers every request of a connection until the client closes it.
fn serve_connection(mut stream: TcpStream, page: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PAGE_TIMEOUT))?;
    let (mut head, mut piece) = (Vec::with_capacity(MAX_HEAD_LEN), [0; MAX_HEAD_LEN]);
    while head.len() < MAX_HEAD_LEN {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        head.extend_from_slice(piece.get(..len).unwrap_or_default());
        if head.ends_with(END) {
            stream.write_all(page)?;
            head.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_must_match_completely() {
        let request = request(7, 9, 64);
        assert_eq!(checksum(&request), 0);
        let mut answer = request.clone();
        answer[0] = ECHO_REPLY;
        let header = [0x45].into_iter().chain([0; 19]);
        let packet: Vec<u8> = header.chain(answer.iter().copied()).collect();
        assert!(is_reply(&packet, &request));
        let mut other = packet.clone();
        other[80] ^= 1;
        assert!(!is_reply(&other, &request) && !is_reply(&packet, &super::request(7, 10, 64)));
        assert!(!is_reply(&[], &request));
    }
}
