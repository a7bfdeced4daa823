//! Relay between a TUN interface and a UDP socket, composed of modules like a STREAMS device.
//!
//! The TUN interface represents the lower side of IP, the socket represents the driver of the network card.
//! The outbound modules classify, protect and encapsulate packets; the inbound modules look up the SA, open
//! and admit packets. Without IPsec, the same number of modules does nothing. Modules are called as functions
//! (put routines of STREAMS), or each has a thread and a queue (service routines). They process one packet at
//! a time, as in the paper.

mod modules;

use casemate_datapath::Datapath;
use casemate_testbed::veth_pair::LINK_ADDRS;
use casemate_testbed::{Error, Result, Tun};
use modules::{Chain, Message, Module, SharedDatapath};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{fmt, thread};

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
    // A standard output that is full or closed does not stop the relay.
    let _ = writeln!(io::stdout(), "ready");
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

/// Maximum length of a queue. Then the previous module has to wait (flow control of STREAMS).
const QUEUE: usize = 64;

/// Coupling of the modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Each module is called in turn, like put routines of STREAMS.
    Functions,
    /// Each module has a queue and a thread, like service routines of STREAMS.
    Queues,
}

impl Wiring {
    /// Starts one direction. Its final error is sent to `errors`.
    fn start(
        self,
        source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
        Chain(modules): Chain,
        errors: Sender<io::Error>,
    ) {
        match self {
            Self::Functions => spawn(errors, move || run_functions(source, modules)),
            Self::Queues => start_queues(source, modules, &errors),
        }
    }
}

fn run_functions(
    mut source: impl FnMut(&mut Message) -> io::Result<()>,
    mut modules: Vec<Module>,
) -> io::Result<()> {
    loop {
        let mut message = Message::new();
        source(&mut message)?;
        for module in &mut modules {
            if !module(&mut message)? {
                break;
            }
        }
    }
}

fn start_queues(
    mut source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
    modules: Vec<Module>,
    errors: &Sender<io::Error>,
) {
    let mut next = None;
    // A module must exist before those that send to it.
    for module in modules.into_iter().rev() {
        let (put, get) = sync_channel(QUEUE);
        let after = next.replace(put);
        spawn(errors.clone(), move || serve(module, &get, after.as_ref()));
    }
    spawn(errors.clone(), move || {
        loop {
            let mut message = Message::new();
            source(&mut message)?;
            forward(next.as_ref(), message)?;
        }
    });
}

/// Service routine of a module.
fn serve(
    mut module: Module,
    queue: &Receiver<Message>,
    next: Option<&SyncSender<Message>>,
) -> io::Result<()> {
    while let Ok(mut message) = queue.recv() {
        if module(&mut message)? {
            forward(next, message)?;
        }
    }
    Ok(())
}

fn forward(next: Option<&SyncSender<Message>>, message: Message) -> io::Result<()> {
    next.map_or(Ok(()), |queue| queue.send(message)).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn spawn(errors: Sender<io::Error>, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = work() {
            // If the channel is closed, its receiver has got another error.
            let _ = errors.send(error);
        }
    });
}

impl fmt::Display for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Functions => "functions",
            Self::Queues => "queues",
        })
    }
}

impl FromStr for Wiring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "functions" => Ok(Self::Functions),
            "queues" => Ok(Self::Queues),
            _ => Err("functions or queues was expected".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Passes three packets through two modules. The first one drops every second packet.
    fn passed(wiring: Wiring) -> Vec<u8> {
        let (errors, receiver) = channel();
        let (seen, see) = channel();
        let mut number = 0;
        let source = move |message: &mut Message| {
            number += 1;
            if number > 3 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            message.fill(|buffer| {
                buffer[0] = number;
                Ok(1)
            })
        };
        let odd: Module = Box::new(|message| Ok(message.data()[0] % 2 == 1));
        let last: Module =
            Box::new(move |message| seen.send(message.data()[0]).map(|()| false).map_err(io::Error::other));
        wiring.start(source, Chain(vec![odd, last]), errors);
        assert_eq!(receiver.recv().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        see.iter().collect()
    }

    #[test]
    fn packets_stay_in_order_and_dropped_packets_stop() {
        assert_eq!(passed(Wiring::Functions), [1, 3]);
        assert_eq!(passed(Wiring::Queues), [1, 3]);
    }
}
