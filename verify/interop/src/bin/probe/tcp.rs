//! TCP and UDP: TCP clients and the TCP echo service (RFC 862), which test full segments, MSS and path MTU
//! through a tunnel; bursts of UDP datagrams, and ESP in UDP (RFC 3948) for the kernel.

use casemate_interop::{ENCAP_PORT, Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Timeout of the peer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Connects to a port, with timeouts.
pub(crate) fn connect(from: IpAddr, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    connect_from((from, 0).into(), (to, port).into())
}

/// Connects from a given port.
pub(crate) fn connect_from(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    Ok(socket.into())
}

const ECHO_PORT: u16 = 7;

/// Serves connections of both IP versions forever, each in a thread.
pub(crate) fn serve_echo() -> Result<()> {
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, ECHO_PORT)).map_err(Error::context("TCP port 7"))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve_connection(stream));
    }
    Ok(())
}

/// The client reports connections that the peer aborts, so the service ignores them.
fn serve_connection(mut stream: TcpStream) {
    if stream.set_read_timeout(Some(LIMIT)).is_ok()
        && let Ok(mut reader) = stream.try_clone()
    {
        let _ = std::io::copy(&mut reader, &mut stream);
    }
}

/// Sends `bytes` bytes to the service, reads as many back and compares them.
pub(crate) fn exchange_echo(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let stream = connect(from, to, ECHO_PORT).map_err(Error::context("connect"))?;
    let sent: Vec<u8> = (0..bytes).map(|index| (index.wrapping_mul(31) >> 3) as u8).collect();
    let mut writer = stream.try_clone().map_err(Error::context("connect"))?;
    let copy = sent.clone();
    let sender =
        std::thread::spawn(move || writer.write_all(&copy).and_then(|()| writer.shutdown(Shutdown::Write)));
    let mut received = Vec::new();
    let end = (&stream).read_to_end(&mut received);
    let _ = sender.join();
    match end {
        Ok(_) if received == sent => Ok(format!("{bytes} bytes echoed")),
        Ok(_) => Err(Error::new(format!("received {} of {bytes} bytes, or other contents", received.len()))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(Error::new(format!("timeout after {} of {bytes} bytes", received.len())))
        }
        Err(error) => Err(Error::context(format!("after {} of {bytes} bytes", received.len()))(error)),
    }
}

/// Port of the discard service (RFC 863), the port of iperf 2.
const DISCARD_PORT: u16 = 5_001;

/// Sends `bytes` bytes and waits until the service closes the connection, which means that it has read all
/// of them.
pub(crate) fn send_discard(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let start = Instant::now();
    let mut stream = connect(from, to, DISCARD_PORT).map_err(Error::context("connect"))?;
    let sent = stream.write_all(&vec![0xA5; bytes]).and_then(|()| stream.shutdown(Shutdown::Write));
    sent.map_err(Error::context("send"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(Error::context("end"))?;
    if !answer.is_empty() {
        return Err(Error::new(format!("the discard service sent {} bytes", answer.len())));
    }
    Ok(format!("{bytes} bytes accepted in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}

/// Discard service over UDP (RFC 863), which the devices do not offer.
const BURST_PORT: u16 = 9;
const BURST_SIZE: usize = 16;

/// Sends `count` datagrams to a closed port as fast as possible. Each one results in an ICMP error (RFC 1122
/// section 3.2.2.1).
pub(crate) fn send_burst(from: IpAddr, to: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((from, 0)).map_err(Error::context(from))?;
    for _ in 0..count {
        socket.send_to(&[0; BURST_SIZE], (to, BURST_PORT)).map_err(Error::context(to))?;
    }
    Ok(format!("{count} sent"))
}

/// Time without a datagram after which no more are expected.
const BURST_TIMEOUT: Duration = Duration::from_secs(20);

/// Receives up to `count` datagrams of a burst and returns their number.
pub(crate) fn receive_burst(address: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((address, BURST_PORT)).map_err(Error::context(address))?;
    socket.set_read_timeout(Some(BURST_TIMEOUT)).map_err(Error::context(address))?;
    let received = (0..count).take_while(|_| socket.recv(&mut [0; 64]).is_ok()).count();
    Ok(format!("{received} of {count} arrived"))
}

/// From Linux's include/uapi/linux/udp.h.
const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// Opens one socket for each IP version, as an IKE daemon does. The kernel decapsulates as long as they are
/// open.
pub(crate) fn open_encap_sockets() -> Result<[Socket; 2]> {
    Ok([
        encap_socket(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, ENCAP_PORT).into())?,
        encap_socket(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, ENCAP_PORT).into())?,
    ])
}

fn encap_socket(domain: Domain, address: SocketAddr) -> Result<Socket> {
    let context = || format!("UDP port {ENCAP_PORT}");
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(Error::context(context()))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).map_err(Error::context(context()))?;
    }
    socket.bind(&address.into()).map_err(Error::context(context()))?;
    let kind = UDP_ENCAP_ESPINUDP;
    let size = size_of_val(&kind) as libc::socklen_t;
    // SAFETY: the descriptor is open during the call, and pointer and size describe `kind`, which the
    // kernel only reads.
    let failed = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, UDP_ENCAP, (&raw const kind).cast(), size)
    };
    if failed != 0 {
        return Err(Error::context("UDP_ENCAP")(std::io::Error::last_os_error()));
    }
    Ok(socket)
}
