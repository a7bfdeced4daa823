//! Session with the stack server: an application that makes any calls and writes any values into its shared
//! memory, beside a well-behaved application.

use crate::Target;
use crate::input::{Input, Script};
use casemate_socketd::{Limits, Notice, PortGrant, Server};
use casemate_socketd_protocol::{
    ClientChannel, Error, LocalTransport, Readiness, Request, RequestId, Response, RingSizes, SocketId,
    Transport,
};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Loopback, Medium};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

pub(crate) const TARGET: Target = Target {
    name: "stack-session",
    about: "stack server: any calls and any memory contents of an application do not affect its neighbour",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &[],
};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Largest number of steps of one input.
const STEPS: usize = 400;

fn limits() -> Limits {
    let geometry = RingSizes::new(8, 8).unwrap();
    Limits {
        applications: 2,
        sockets: 4,
        buffer_bytes: 1_024,
        buffer_datagrams: 4,
        waiting_requests: 4,
        requests_per_round: 4,
        rings: geometry,
    }
}

/// Server on a loopback interface.
struct Harness {
    server: Server<LocalTransport>,
    interface: Interface,
    device: Loopback,
    sockets: SocketSet<'static>,
    now: Instant,
}

impl Harness {
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

    /// Runs the server once. Only the newest application may be disconnected.
    fn serve_once(&mut self, is_broken: &mut bool) {
        self.now += Duration::from_millis(10);
        let Self { server, interface, device, sockets, now } = self;
        interface.poll(*now, device, sockets);
        server.serve(*now, interface, sockets, |Notice::ProtocolViolation(..)| *is_broken = true);
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut harness = Harness::new();
    let [(first_end, server_one), (second_end, server_other)] =
        [(); 2].map(|()| LocalTransport::pair(limits().rings));
    let neighbour = harness.server.admit(server_one, PortGrant::none()).unwrap();
    let mut neighbour_caller = ClientChannel::new(first_end, limits().rings).unwrap();
    harness.server.admit(server_other, PortGrant::none()).unwrap();
    let mut hostile = ClientChannel::new(second_end, limits().rings).unwrap();
    let mut is_broken = false;
    for step in 0..STEPS as u32 {
        if input.is_empty() || is_broken {
            break;
        }
        match input.u8() % 4 {
            0 => write_memory(&mut input, hostile.transport().memory()),
            1 => harness.serve_once(&mut is_broken),
            _ => {
                let call = call(&mut input);
                let len = input.index(300);
                // The application may have corrupted its own ring.
                let _ = hostile.send_request(RequestId(step), &call, input.take(len));
            }
        }
        while let Ok(Some(_)) = hostile.peek_response() {
            if hostile.pop_response().is_err() {
                break;
            }
        }
    }
    check_served(&mut harness, &mut neighbour_caller);
    assert!(harness.server.sessions().any(|(id, _)| id == neighbour));
}

/// Checks that the other application still gets its socket, its datagram, and its responses in order.
fn check_served(harness: &mut Harness, caller: &mut ClientChannel<LocalTransport>) {
    let mut ask = |call: Request, data: &[u8]| {
        caller.send_request(RequestId(1), &call, data).unwrap();
        for _ in 0..10 {
            harness.serve_once(&mut false);
            if let Some(outcome) = caller.peek_response().unwrap() {
                let mut data = vec![0; outcome.len];
                caller.read_data(&mut data);
                caller.pop_response().unwrap();
                return (outcome.response, data);
            }
        }
        panic!("{call:?}: no response");
    };
    let Ok(Response::Opened { socket, local }) =
        ask(Request::Bind { local: Some(OWN.into()), port: 0 }, &[]).0
    else {
        panic!("the application got no socket");
    };
    let sent = ask(Request::SendTo { socket, to: local }, b"for itself").0;
    assert_eq!(sent, Ok(Response::Sent { bytes: 10 }));
    let received = ask(Request::Receive { socket, max_len: 100, wait: true }, &[]);
    assert_eq!(received, (Ok(Response::Received { from: Some(local) }), b"for itself".to_vec()));
    assert_eq!(ask(Request::Close { socket: SocketId(u32::MAX) }, &[]).0, Err(Error::NoSocket));
}

fn write_memory(input: &mut Input<'_>, memory: &[std::sync::atomic::AtomicU64]) {
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

fn call(input: &mut Input<'_>) -> Request {
    // Mostly handles that exist.
    let socket = SocketId(u32::from(input.u8() % 5) | u32::from(input.u8() % 3) << 16);
    let patient = input.flag();
    // Few ports, so that sockets connect to each other.
    let port = 7_000 + u16::from(input.u8() % 4);
    match input.u8() % 11 {
        0 => Request::Listen { local: None, port, backlog: 1 + u16::from(input.u8() % 3) },
        1 => Request::Connect { remote: SocketAddr::new(address(input), port) },
        2 => Request::Bind { local: Some(address(input)), port },
        3 => Request::Accept { socket, wait: patient },
        4 => Request::Send { socket },
        5 => Request::SendTo { socket, to: SocketAddr::new(address(input), port) },
        6 => Request::Receive { socket, max_len: input.u16().into(), wait: patient },
        7 => Request::ShutdownWrite { socket },
        8 => Request::Close { socket },
        9 => Request::Poll { socket, interest: Readiness { read: input.flag(), write: true }, wait: patient },
        _ => Request::Cancel { request: RequestId(input.u8().into()) },
    }
}

fn seeds() -> Vec<Vec<u8>> {
    // Bytes of a choice: call, socket, generation, patience, port, kind.
    let call = |script: Script, socket: u8, kind: u8| {
        [2, socket, 0, 1, 0, kind].into_iter().fold(script, Script::u8)
    };
    let serve = |script: Script| (0..4).fold(script, |script, _| script.u8(1));
    let listen = call(Script::default(), 0, 0).u8(0).u8(0);
    let connect = serve(call(listen.clone(), 0, 1).u8(5).u8(0));
    let accept = serve(call(connect.clone(), 0, 3).u8(0));
    let send = serve(call(accept, 1, 4).u8(4).bytes(b"data"));
    let receive = serve(call(send, 2, 6).u16(100).u8(0));
    let datagram = serve(call(Script::default(), 0, 2).u8(5).u8(0));
    let wrong_version = serve(call(datagram.clone(), 0, 5).u8(0).u8(3).bytes(b"abc"));
    let corrupt_ring = connect.clone().u8(0).u16(0).u8(1).bytes(&[0xFF; 8]);
    [listen, connect, receive, datagram, wrong_version, corrupt_ring]
        .into_iter()
        .map(Script::finish)
        .collect()
}
