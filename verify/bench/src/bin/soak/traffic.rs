//! Counted packets of one direction: the sender reads the receiver's count past the tunnel, and keeps so
//! few packets in flight that no queue overflows.

use crate::Options;
use casemate_interop::{Background, Error, Result};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::packet_rate::{CountingSink, PORT};
use casemate_testbed::sys;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// UDP payload: 1,200 bytes minus the headers of IPv4 and UDP.
const PAYLOAD: usize = 1_200 - 28;
/// Largest number of packets in flight. The queue of a TUN interface holds 500.
const WINDOW: u64 = 300;
/// Time that the sender sleeps when the window is full.
const PAUSE: Duration = Duration::from_micros(200);
/// Packets in flight are considered lost when nothing has arrived for this time. It is long because a
/// gateway that gets no CPU time for a while loses nothing, while additional packets would overflow a
/// queue.
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);

/// Counted packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
}

impl Count {
    /// Packets that did not arrive.
    pub(crate) const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

/// Sockets of one direction.
pub(crate) struct Flow {
    pid: u32,
    socket: UdpSocket,
    sink: CountingSink,
}

impl Flow {
    /// Opens the sockets of the direction from this end to the other.
    pub(crate) fn open(arena: &VethPair, from: usize) -> Result<Self> {
        let sink = arena.run_in(1 - from, || CountingSink::bind(PORT))?;
        let socket = arena.run_in(from, || {
            let socket = UdpSocket::bind((INNER_ADDRS[from], 0))?;
            socket.connect((INNER_ADDRS[1 - from], PORT))?;
            Ok(socket)
        })?;
        Ok(Self { pid: arena.ends[from].pid(), socket, sink })
    }

    /// Sends until `is_over`, and then waits for the packets in flight.
    pub(crate) fn run(&mut self, is_over: &AtomicBool) -> io::Result<Count> {
        sys::enter_netns_of(self.pid)?;
        let (mut count, mut given_up, mut since) = (Count::default(), 0, Instant::now());
        loop {
            let arrived = self.sink.received()?;
            if arrived != count.arrived {
                (count.arrived, since) = (arrived, Instant::now());
            }
            let on_the_way = (count.sent - given_up).saturating_sub(arrived);
            let is_still = since.elapsed() > LOSS_TIMEOUT;
            if is_over.load(Ordering::Relaxed) {
                if on_the_way == 0 || is_still {
                    return Ok(count);
                }
            } else {
                if is_still {
                    (given_up, since) = (given_up + on_the_way, Instant::now());
                }
                for _ in on_the_way..WINDOW {
                    self.socket.send(&[0; PAYLOAD])?;
                    count.sent += 1;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Interval of the memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Memory counts from this number of rekeyings on, because buffers are allocated when they are first
/// needed.
const WARM_UP: u32 = 2;

/// Resident memory of a gateway, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) most: u64,
}

/// Results of the run.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) elapsed: Duration,
    /// Child SAs that replaced another one.
    pub(crate) rekeys: usize,
    /// Packets from the first end to the second, and back.
    pub(crate) counts: [Count; 2],
    pub(crate) memory: [Memory; 2],
    /// Drops of both gateways, by reason.
    pub(crate) drops: [Vec<(String, u64)>; 2],
}

pub(crate) fn run(options: &Options, directory: &Path) -> Result<Results> {
    let rekey = options.rekey;
    // The old keys receive for longer than any packet is in flight. A random time makes both ends rekey at
    // different times.
    let child = format!("rekey_time = {rekey}s\n rand_time = 1s\n life_time = {}s", rekey * 4 + 10);
    let tunnel = IkeTunnel { suite: &options.suite, child: &child, scheduler: "" };
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let arena = VethPair::new()?;
    let gateways =
        [tunnel.start(&gateway, &arena, 0, directory)?, tunnel.start(&gateway, &arena, 1, directory)?];
    arena.wait_until_connected()?;
    let flows = [Flow::open(&arena, 0)?, Flow::open(&arena, 1)?];
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    let (memory, counts) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let flows = flows.map(|mut flow| scope.spawn(move || flow.run(is_over)));
        let memory = sample_memory(&gateways, options);
        is_over.store(true, Ordering::Relaxed);
        let counts =
            flows.map(|flow| flow.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked"))));
        (memory, counts)
    });
    let [there, back] = counts.map(|count| count.map_err(Error::context("packets")));
    Ok(Results {
        elapsed: begin.elapsed(),
        rekeys: gateways[0].output().matches(", replaces {").count(),
        counts: [there?, back?],
        memory: memory?,
        drops: [gateway.drops(&arena, 0)?, gateway.drops(&arena, 1)?],
    })
}

/// Samples the memory of both gateways until the end of the run.
fn sample_memory(gateways: &[Background; 2], options: &Options) -> Result<[Memory; 2]> {
    let (start, warm_up) = (Instant::now(), Duration::from_secs((WARM_UP * options.rekey).into()));
    let memory =
        |which: usize| sys::resident_memory(gateways[which].pid()).map_err(Error::context("a gateway"));
    std::thread::sleep(warm_up.min(options.common.seconds / 2));
    let first = [memory(0)?, memory(1)?];
    let mut results = first.map(|begin| Memory { begin, end: begin, most: begin });
    while start.elapsed() < options.common.seconds {
        std::thread::sleep(SAMPLE_INTERVAL);
        for (which, results) in results.iter_mut().enumerate() {
            results.end = memory(which)?;
            results.most = results.most.max(results.end);
        }
    }
    Ok(results)
}
