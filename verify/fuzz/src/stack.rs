//! A session with the stack server: an application that makes any calls and writes anything into its memory, beside one that
//! only wants to be served.

use crate::Target;
use crate::input::Input;
use crate::script::Script;
use casemate_rings::{Answer, Call, Caller, Error, Geometry, Handle, Local, Readiness, Tag, Transport};
use casemate_stack::{Grant, Limits, Notice, Server};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Loopback, Medium};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

pub(crate) const TARGET: Target = Target {
    name: "stack-session",
    about: "An application of the stack server: any calls, any memory; a neighbour is served on",
    max_len: 2_048,
    run,
    seeds,
    words: &[],
};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// What one input may make the server do.
const STEPS: usize = 400;

fn limits() -> Limits {
    let geometry = Geometry::new(8, 8).unwrap();
    Limits { applications: 2, sockets: 4, buffer: 1_024, datagrams: 4, calls: 4, turn: 4, geometry }
}

/// A server that hears what it says itself.
struct World {
    server: Server<Local>,
    interface: Interface,
    device: Loopback,
    sockets: SocketSet<'static>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let mut device = Loopback::new(Medium::Ip);
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            list.push("10.0.0.1/24".parse().unwrap()).unwrap();
            list.push("fd00::1/64".parse().unwrap()).unwrap();
        });
        let (server, sockets) = (Server::new(limits(), 5), SocketSet::new(vec![]));
        Self { server, interface, device, sockets, now: Instant::ZERO }
    }

    /// A round, in which nobody but the newest application may be sent away.
    fn round(&mut self, is_broken: &mut bool) {
        self.now += Duration::from_millis(10);
        let Self { server, interface, device, sockets, now } = self;
        interface.poll(*now, device, sockets);
        server.serve(*now, interface, sockets, |Notice::Broken(..)| *is_broken = true);
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    let [(one, server_one), (other, server_other)] = [(); 2].map(|()| Local::pair(limits().geometry));
    let modest = world.server.admit(server_one, Grant::none()).unwrap();
    let mut modest_caller = Caller::new(one, limits().geometry).unwrap();
    world.server.admit(server_other, Grant::none()).unwrap();
    let mut hostile = Caller::new(other, limits().geometry).unwrap();
    let mut is_broken = false;
    for step in 0..STEPS as u32 {
        if input.is_empty() || is_broken {
            break;
        }
        match input.u8() % 4 {
            0 => scribble(&mut input, hostile.transport().memory()),
            1 => world.round(&mut is_broken),
            _ => {
                let call = call(&mut input);
                let len = input.index(300);
                // Its own ring may be nonsense already.
                let _ = hostile.call(Tag(step), &call, input.take(len));
            }
        }
        while let Ok(Some(_)) = hostile.answer() {
            if hostile.pass().is_err() {
                break;
            }
        }
    }
    is_served(&mut world, &mut modest_caller);
    assert!(world.server.sessions().any(|(id, _)| id == modest));
}

/// Whatever was done: the other application has its socket, its datagram, and its answers in order.
fn is_served(world: &mut World, caller: &mut Caller<Local>) {
    let mut ask = |call: Call, data: &[u8]| {
        caller.call(Tag(1), &call, data).unwrap();
        for _ in 0..10 {
            world.round(&mut false);
            if let Some(outcome) = caller.answer().unwrap() {
                let mut data = vec![0; outcome.len];
                caller.data(&mut data);
                caller.pass().unwrap();
                return (outcome.answer, data);
            }
        }
        panic!("{call:?}: no answer");
    };
    let Ok(Answer::Opened { socket, local }) = ask(Call::Bind { local: Some(OWN.into()), port: 0 }, &[]).0
    else {
        panic!("no socket for an application that has none");
    };
    let sent = ask(Call::SendTo { socket, to: local }, b"for itself").0;
    assert_eq!(sent, Ok(Answer::Sent { bytes: 10 }));
    let received = ask(Call::Receive { socket, most: 100, patient: true }, &[]);
    assert_eq!(received, (Ok(Answer::Received { from: Some(local) }), b"for itself".to_vec()));
    assert_eq!(ask(Call::Close { socket: Handle(u32::MAX) }, &[]).0, Err(Error::NoSocket));
}

fn scribble(input: &mut Input<'_>, memory: &[std::sync::atomic::AtomicU64]) {
    let at = input.index(memory.len());
    let value = if input.flag() { u64::from_be_bytes(input.array()) } else { input.u16().into() };
    memory[at].store(value, Ordering::Relaxed);
}

fn address(input: &mut Input<'_>) -> IpAddr {
    match input.u8() % 6 {
        0 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        1 => Ipv4Addr::from(input.array::<4>()).into(),
        2 => Ipv6Addr::from(input.array::<16>()).into(),
        3 => Ipv4Addr::UNSPECIFIED.into(),
        _ => OWN.into(),
    }
}

fn call(input: &mut Input<'_>) -> Call {
    // A few handles that exist, mostly.
    let socket = Handle(u32::from(input.u8() % 5) | u32::from(input.u8() % 3) << 16);
    let patient = input.flag();
    // Ports that meet each other.
    let port = 7_000 + u16::from(input.u8() % 4);
    match input.u8() % 11 {
        0 => Call::Listen { local: None, port, backlog: 1 + u16::from(input.u8() % 3) },
        1 => Call::Connect { remote: SocketAddr::new(address(input), port) },
        2 => Call::Bind { local: Some(address(input)), port },
        3 => Call::Accept { socket, patient },
        4 => Call::Send { socket },
        5 => Call::SendTo { socket, to: SocketAddr::new(address(input), port) },
        6 => Call::Receive { socket, most: input.u16().into(), patient },
        7 => Call::Finish { socket },
        8 => Call::Close { socket },
        9 => Call::Poll { socket, interest: Readiness { read: input.flag(), write: true }, patient },
        _ => Call::Cancel { call: Tag(input.u8().into()) },
    }
}

fn seeds() -> Vec<Vec<u8>> {
    // One choice is made of: call, socket, generation, patience, port, kind.
    let call = |script: Script, socket: u8, kind: u8| {
        [2, socket, 0, 1, 0, kind].into_iter().fold(script, Script::u8)
    };
    let round = |script: Script| (0..4).fold(script, |script, _| script.u8(1));
    let listen = call(Script::default(), 0, 0).u8(0).u8(0);
    let connect = round(call(listen.clone(), 0, 1).u8(5).u8(0));
    let accept = round(call(connect.clone(), 0, 3).u8(0));
    let send = round(call(accept, 1, 4).u8(4).bytes(b"data"));
    let receive = round(call(send, 2, 6).u16(100).u8(0));
    let datagram = round(call(Script::default(), 0, 2).u8(5).u8(0));
    let wrong_version = round(call(datagram.clone(), 0, 5).u8(0).u8(3).bytes(b"abc"));
    let mad = connect.clone().u8(0).u16(0).u8(1).bytes(&[0xFF; 8]);
    [listen, connect, receive, datagram, wrong_version, mad].into_iter().map(Script::done).collect()
}
