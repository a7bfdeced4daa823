//! The run: gateways, packets both ways, and somebody who looks at the gateways' memory.

use crate::flow::{Count, Flow};
use crate::options::Options;
use casemate_interop::{Background, Error, Result};
use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::negotiated::Tunnel;
use casemate_stage::sys;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at the memory.
const LOOK: Duration = Duration::from_secs(1);
/// Memory begins to count after so many rekeys: buffers are made when they are first needed.
const WARM_UP: u32 = 2;

/// What was seen of a gateway's memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) most: u64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) took: Duration,
    /// Child SAs that took the place of another.
    pub(crate) rekeys: usize,
    /// From the first end to the second, and back.
    pub(crate) counts: [Count; 2],
    pub(crate) memory: [Memory; 2],
    /// Why either gateway dropped packets.
    pub(crate) drops: [Vec<(String, u64)>; 2],
}

pub(crate) fn run(options: &Options, directory: &Path) -> Result<Seen> {
    let rekey = options.rekey;
    // The old keys receive for longer than anything is on its way, and both ends begin at moments of their own.
    let child = format!("rekey_time = {rekey}s\n rand_time = 1s\n life_time = {}s", rekey * 4 + 10);
    let tunnel = Tunnel { suite: &options.suite, child: &child, scheduler: "" };
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let arena = Arena::new()?;
    let gateways =
        [tunnel.start(&gateway, &arena, 0, directory)?, tunnel.start(&gateway, &arena, 1, directory)?];
    arena.wait_until_connected()?;
    let flows = [Flow::open(&arena, 0)?, Flow::open(&arena, 1)?];
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    let (memory, counts) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let flows = flows.map(|mut flow| scope.spawn(move || flow.run(is_over)));
        let memory = watch(&gateways, options);
        is_over.store(true, Ordering::Relaxed);
        let counts = flows.map(|flow| flow.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        (memory, counts)
    });
    let [there, back] = counts.map(|count| count.map_err(Error::in_front("packets")));
    Ok(Seen {
        took: begin.elapsed(),
        rekeys: gateways[0].said().matches(", in the place of {").count(),
        counts: [there?, back?],
        memory: memory?,
        drops: [gateway.drops(&arena, 0)?, gateway.drops(&arena, 1)?],
    })
}

/// Looks at the memory of both until the time is over.
fn watch(gateways: &[Background; 2], options: &Options) -> Result<[Memory; 2]> {
    let (start, warm_up) = (Instant::now(), Duration::from_secs((WARM_UP * options.rekey).into()));
    let memory = |which: usize| sys::memory_of(gateways[which].pid()).map_err(Error::in_front("a gateway"));
    std::thread::sleep(warm_up.min(options.common.seconds / 2));
    let first = [memory(0)?, memory(1)?];
    let mut seen = first.map(|begin| Memory { begin, end: begin, most: begin });
    while start.elapsed() < options.common.seconds {
        std::thread::sleep(LOOK);
        for (which, seen) in seen.iter_mut().enumerate() {
            seen.end = memory(which)?;
            seen.most = seen.most.max(seen.end);
        }
    }
    Ok(seen)
}
