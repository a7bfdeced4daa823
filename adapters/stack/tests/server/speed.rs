//! What the rings cost, against the same sockets in the same process without them. Not a test:
//!
//! ```text
//! cargo test --release -p casemate-stack --test server -- --ignored --nocapture speed
//! ```

use crate::place::{Application, Place, V4};
use casemate_rings::{Answer, Call, Error, Geometry, Handle, Tag};
use casemate_stack::{Grant, Limits};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use std::net::SocketAddr;
use std::time::Instant;

const BYTES: usize = 256 << 20;
const BUFFER: usize = 128 << 10;
const CHUNK: usize = 32 << 10;

fn place() -> Place {
    let geometry = Geometry::new(15, 15).unwrap();
    Place::new(Limits {
        applications: 4,
        sockets: 8,
        buffer: BUFFER,
        datagrams: 4,
        calls: 8,
        turn: 32,
        geometry,
    })
}

/// Bytes a second with sockets alone.
fn bare() -> f64 {
    let mut place = place();
    let socket = || {
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Reno);
        socket
    };
    let (mut into, mut out) = (socket(), socket());
    into.listen(7_000).unwrap();
    out.connect(place.interface.context(), (V4, 7_000), 50_000).unwrap();
    let (into, out) = (place.sockets.add(into), place.sockets.add(out));
    let (data, mut buffer) = (vec![7; CHUNK], vec![0; CHUNK]);
    let (mut received, begin) = (0, Instant::now());
    while received < BYTES {
        place.now += smoltcp::time::Duration::from_millis(1);
        place.interface.poll(place.now, &mut place.device, &mut place.sockets);
        let sender = place.sockets.get_mut::<Socket<'_>>(out);
        while sender.can_send() && sender.send_slice(&data).unwrap() > 0 {}
        let receiver = place.sockets.get_mut::<Socket<'_>>(into);
        while receiver.can_recv() {
            received += receiver.recv_slice(&mut buffer).unwrap();
        }
    }
    received as f64 / begin.elapsed().as_secs_f64()
}

/// Bytes a second through calls and answers, with the same sockets.
fn ringed() -> f64 {
    let mut place = place();
    let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let listener = left.listen(&mut place, 7_000, 1);
    let out = right.connect(&mut place, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut place, listener);
    let (data, mut buffer) = (vec![7; CHUNK], vec![0; CHUNK]);
    // As many calls under way as the rings hold.
    for _ in 0..4 {
        receive(&mut left, into);
    }
    let (mut received, mut under_way, begin) = (0, 0, Instant::now());
    while received < BYTES {
        place.round();
        while under_way < 4 && right.caller.call(Tag(1), &Call::Send { socket: out }, &data).is_ok() {
            under_way += 1;
        }
        while let Some(outcome) = right.caller.answer().unwrap() {
            assert!(matches!(outcome.answer, Ok(Answer::Sent { .. }) | Err(Error::NotNow)));
            right.caller.pass().unwrap();
            under_way -= 1;
        }
        while let Some(outcome) = left.caller.answer().unwrap() {
            received += left.caller.data(&mut buffer[..outcome.len]);
            left.caller.pass().unwrap();
            receive(&mut left, into);
        }
    }
    received as f64 / begin.elapsed().as_secs_f64()
}

fn receive(application: &mut Application, socket: Handle) {
    application.begin(Call::Receive { socket, most: CHUNK as u32, patient: true }, &[]);
}

#[test]
#[ignore = "a measurement: `cargo xtask bench stack` runs it"]
fn speed() {
    for _ in 0..3 {
        let (bare, ringed) = (bare(), ringed());
        let mib = |speed: f64| speed / f64::from(1 << 20);
        println!(
            "sockets {:.0} MiB/s, through rings {:.0} MiB/s: {:.2}",
            mib(bare),
            mib(ringed),
            ringed / bare
        );
    }
}
