//! A program between a TUN interface and a UDP socket, made of modules as a STREAMS device is.
//!
//! The interface stands for the lower side of IP, the socket for the driver of the network card. In between are a module that
//! classifies, one that protects and one that encapsulates, and for the other direction one that looks the SA up, one that opens and one
//! that admits; without IPsec there are as many that do nothing. They are called as functions (STREAMS' put routines), or each has a
//! thread and a queue (STREAMS' service routines). One packet at a time, as then.

mod message;
mod modules;
mod wiring;

pub use wiring::Wiring;

use casemate_datapath::Datapath;
use casemate_stage::arena::WIRE;
use casemate_stage::{Error, Result, Tun};
use message::Message;
use modules::{Chain, Guarded};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// The interface that it makes.
pub(super) const INTERFACE: &str = "relay0";
const PORT: u16 = 4_000;

/// Relays at an end of an arena, 0 or 1, until something fails. Says `ready` on standard output.
pub fn relay(end: usize, wiring: Wiring, datapath: Option<Datapath>) -> Result<()> {
    let guarded = datapath.map(Guarded::new).transpose()?;
    let tun = Arc::new(Tun::create(INTERFACE)?);
    let socket = Arc::new(open(end)?);
    let (from_tun, to_tun, from_net, to_net) = (tun.clone(), tun, socket.clone(), socket);
    let outbound = Chain::outbound(guarded.clone(), move |packet| tolerant(to_net.send(packet).map(drop)));
    // What the host refuses is lost, as on any interface.
    let inbound = Chain::inbound(guarded, move |packet| tolerant(to_tun.deliver(packet)));
    println!("ready");
    let (told, hear) = channel();
    let also = told.clone();
    wiring.start(move |message| message.fill(|buffer| from_tun.receive(buffer)), outbound, told);
    wiring.start(move |message| receive(message, &from_net), inbound, also);
    hear.recv().map_or(Ok(()), |error| Err(Error::in_front("relay")(error)))
}

/// The next datagram. Before the other end is there, the kernel tells of it here.
fn receive(message: &mut Message, socket: &UdpSocket) -> io::Result<()> {
    loop {
        match message.fill(|buffer| socket.recv(buffer)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            other => return other,
        }
    }
}

/// A packet that could not be sent is a packet lost.
fn tolerant(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn open(end: usize) -> Result<UdpSocket> {
    let address = |end: usize| -> Result<SocketAddr> {
        let text = WIRE.get(end).ok_or_else(|| Error::new(format!("{end}: an end, 0 or 1, was expected")))?;
        let ip: Ipv4Addr = text.parse().map_err(Error::in_front(text))?;
        Ok(SocketAddr::new(ip.into(), PORT))
    };
    let (own, other) = (address(end)?, address(1_usize.saturating_sub(end))?);
    let socket = UdpSocket::bind(own).map_err(Error::in_front(own))?;
    socket.connect(other).map_err(Error::in_front(other))?;
    Ok(socket)
}
