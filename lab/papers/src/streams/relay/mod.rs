//! Relay between a TUN interface and a UDP socket, composed of modules like a STREAMS device.
//!
//! The TUN interface represents the lower side of IP, the socket represents the driver of the network card.
//! The outbound modules classify, protect and encapsulate packets; the inbound modules look up the SA, open
//! and admit packets. Without IPsec, the same number of modules does nothing. Modules are called as functions
//! (put routines of STREAMS), or each has a thread and a queue (service routines). They process one packet at
//! a time, as in the paper.

mod modules;
mod wiring;

pub use wiring::Wiring;

use casemate_datapath::Datapath;
use casemate_testbed::veth_pair::LINK_ADDRS;
use casemate_testbed::{Error, Result, Tun};
use modules::{Chain, Message, SharedDatapath};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// TUN interface of the relay.
pub(super) const INTERFACE: &str = "relay0";
const PORT: u16 = 4_000;

/// Relays packets at one end of a veth pair, 0 or 1, until an error occurs. Prints `ready`.
pub fn run(end: usize, wiring: Wiring, datapath: Option<Datapath>) -> Result<()> {
    let guarded = datapath.map(SharedDatapath::new).transpose()?;
    let tun = Arc::new(Tun::create(INTERFACE)?);
    let socket = Arc::new(open(end)?);
    let (from_tun, to_tun, from_net, to_net) = (tun.clone(), tun, socket.clone(), socket);
    let outbound = Chain::outbound(guarded.clone(), move |packet| tolerant(to_net.send(packet).map(drop)));
    // A packet that the host rejects is lost, as on any interface.
    let inbound = Chain::inbound(guarded, move |packet| tolerant(to_tun.deliver(packet)));
    println!("ready");
    let (errors, receiver) = channel();
    let more_errors = errors.clone();
    wiring.start(move |message| message.fill(|buffer| from_tun.receive(buffer)), outbound, errors);
    wiring.start(move |message| receive(message, &from_net), inbound, more_errors);
    receiver.recv().map_or(Ok(()), |error| Err(Error::context("relay")(error)))
}

/// Receives the next datagram. The kernel reports ECONNREFUSED until the other end is ready.
fn receive(message: &mut Message, socket: &UdpSocket) -> io::Result<()> {
    loop {
        match message.fill(|buffer| socket.recv(buffer)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            other => return other,
        }
    }
}

/// A packet that cannot be sent counts as lost.
fn tolerant(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn open(end: usize) -> Result<UdpSocket> {
    let address = |end: usize| -> Result<SocketAddr> {
        let text =
            LINK_ADDRS.get(end).ok_or_else(|| Error::new(format!("{end}: an end, 0 or 1, was expected")))?;
        let ip: Ipv4Addr = text.parse().map_err(Error::context(text))?;
        Ok(SocketAddr::new(ip.into(), PORT))
    };
    let (own, other) = (address(end)?, address(1_usize.saturating_sub(end))?);
    let socket = UdpSocket::bind(own).map_err(Error::context(own))?;
    socket.connect(other).map_err(Error::context(other))?;
    Ok(socket)
}
