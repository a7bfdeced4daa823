//! Throughput through the rings, compared with the same sockets in the same process without rings. A
//! measurement, not a test:
//!
//! ```text
//! cargo test --release -p casemate-socketd --test server -- --ignored --nocapture speed
//! ```

use crate::harness::{Application, Harness, V4};
use casemate_socketd::{Limits, PortGrant};
use casemate_socketd_protocol::{Error, Request, RequestId, Response, RingSizes, SocketId};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use std::net::SocketAddr;
use std::time::Instant;

const BYTES: usize = 256 << 20;
const BUFFER: usize = 128 << 10;
const CHUNK: usize = 32 << 10;

fn bench_harness() -> Harness {
    let sizes = RingSizes::new(15, 15).unwrap();
    Harness::new(Limits {
        applications: 4,
        sockets: 8,
        buffer_bytes: BUFFER,
        buffer_datagrams: 4,
        waiting_requests: 8,
        requests_per_round: 32,
        rings: sizes,
    })
}

/// Bytes per second with sockets alone.
fn sockets_alone() -> f64 {
    let mut harness = bench_harness();
    let socket = || {
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Reno);
        socket
    };
    let (mut into, mut out) = (socket(), socket());
    into.listen(7_000).unwrap();
    out.connect(harness.interface.context(), (V4, 7_000), 50_000).unwrap();
    let (into, out) = (harness.sockets.add(into), harness.sockets.add(out));
    let (data, mut buffer) = (vec![7; CHUNK], vec![0; CHUNK]);
    let (mut received, begin) = (0, Instant::now());
    while received < BYTES {
        harness.now += smoltcp::time::Duration::from_millis(1);
        harness.interface.poll(harness.now, &mut harness.device, &mut harness.sockets);
        let sender = harness.sockets.get_mut::<Socket<'_>>(out);
        while sender.can_send() && sender.send_slice(&data).unwrap() > 0 {}
        let receiver = harness.sockets.get_mut::<Socket<'_>>(into);
        while receiver.can_recv() {
            received += receiver.recv_slice(&mut buffer).unwrap();
        }
    }
    received as f64 / begin.elapsed().as_secs_f64()
}

/// Bytes per second through the rings, with the same sockets.
fn through_rings() -> f64 {
    let mut harness = bench_harness();
    let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let listener = left.listen(&mut harness, 7_000, 1);
    let out = right.connect(&mut harness, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut harness, listener);
    let (data, mut buffer) = (vec![7; CHUNK], vec![0; CHUNK]);
    // As many requests in flight as the rings hold.
    for _ in 0..4 {
        receive(&mut left, into);
    }
    let (mut received, mut under_way, begin) = (0, 0, Instant::now());
    while received < BYTES {
        harness.round();
        while under_way < 4
            && right.channel.send_request(RequestId(1), &Request::Send { socket: out }, &data).is_ok()
        {
            under_way += 1;
        }
        while let Some(outcome) = right.channel.peek_response().unwrap() {
            assert!(matches!(outcome.response, Ok(Response::Sent { .. }) | Err(Error::WouldBlock)));
            right.channel.pop_response().unwrap();
            under_way -= 1;
        }
        while let Some(outcome) = left.channel.peek_response().unwrap() {
            received += left.channel.read_data(&mut buffer[..outcome.len]);
            left.channel.pop_response().unwrap();
            receive(&mut left, into);
        }
    }
    received as f64 / begin.elapsed().as_secs_f64()
}

fn receive(application: &mut Application, socket: SocketId) {
    application.begin(Request::Receive { socket, max_len: CHUNK as u32, wait: true }, &[]);
}

#[test]
#[ignore = "a measurement: `cargo xtask bench stack` runs it"]
fn speed() {
    for _ in 0..3 {
        let (alone, through_rings) = (sockets_alone(), through_rings());
        let mib = |speed: f64| speed / f64::from(1 << 20);
        println!(
            "sockets {:.0} MiB/s, through rings {:.0} MiB/s: {:.2}",
            mib(alone),
            mib(through_rings),
            through_rings / alone
        );
    }
}
