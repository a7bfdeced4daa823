//! Cores that take turns on one road of a data path. Each has buffers of its own, so that packets stay on the core that has read them.

use crate::suites::BATCH;
use casemate_datapath::HEAD_ROOM;
use casemate_measure::tunnel::stride;
use casemate_stage::sys;
use casemate_wire::packet::Packet;
use std::hint::spin_loop;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Packets that a core takes at its turn. The Linux engine takes up to 128.
pub(crate) const TURN: usize = 2 * BATCH;

/// One direction of a data path, in one piece and in three.
pub(crate) trait Road: Send + 'static {
    /// What is on its way between the steps.
    type Flying: Default;
    /// Everything at once.
    fn whole(&mut self, packets: &mut [Packet<'_>]);
    /// The first step.
    fn begin(&mut self, packets: &mut [Packet<'_>], flying: &mut Self::Flying);
    /// The second step, without the road.
    fn fly(flying: &mut Self::Flying, packets: &mut [Packet<'_>]);
    /// The last step. Panics if a packet does not arrive.
    fn finish(&mut self, packets: &mut [Packet<'_>], flying: &mut Self::Flying);
}

/// Packets of one length, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packets {
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The caller's thread, and others that take turns with it.
pub(crate) struct Crew<R: Road> {
    office: Arc<Office<R>>,
    memory: Vec<u8>,
    /// One for each helper, who waits for it and goes home when it is gone.
    calls: Vec<Sender<Arc<Packets>>>,
    results: Vec<Receiver<Packets>>,
}

/// What the crew shares.
struct Office<R: Road> {
    /// The caller and the helpers.
    cores: usize,
    road: Mutex<R>,
    /// How many turns have begun, and how many are finished: whose is next.
    begun: Line,
    finished: Line,
    /// Helpers that have filled their buffers.
    here: Line,
    open: AtomicBool,
}

/// A count in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl<R: Road> Crew<R> {
    /// The caller's thread, and one on each of these CPUs.
    pub(crate) fn new(helpers: &[usize], road: R) -> Self {
        let office = Arc::new(Office {
            cores: helpers.len() + 1,
            road: Mutex::new(road),
            begun: Line::default(),
            finished: Line::default(),
            here: Line::default(),
            open: AtomicBool::new(false),
        });
        let hire = |(number, &cpu): (usize, &usize)| {
            let ((call, calls), (result, results)) = (channel(), channel());
            let office = Arc::clone(&office);
            thread::spawn(move || {
                sys::stay_on(&[cpu]).expect("a CPU that may be used");
                office.attend(number, &calls, &result);
            });
            (call, results)
        };
        let (calls, results) = (1..).zip(helpers).map(hire).unzip();
        Self { office, memory: Vec::new(), calls, results }
    }

    /// Sends packets down the road; says how long that took, and what came out at its end.
    pub(crate) fn work(&mut self, load: &Arc<Packets>) -> (Duration, Packets) {
        let Self { office, memory, calls, results } = self;
        office.open.store(false, Ordering::Relaxed);
        [&office.begun, &office.finished, &office.here].iter().for_each(|line| line.set(0));
        calls.iter().for_each(|call| call.send(Arc::clone(load)).unwrap());
        let mut turns = office.read(0, memory, load);
        // A helper that was just hired may need this CPU to get to its own.
        while office.here.get() < calls.len() {
            thread::yield_now();
        }
        let start = Instant::now();
        office.open.store(true, Ordering::Release);
        if calls.is_empty() {
            office.go_alone(&mut turns);
        } else {
            office.take_turns(0, &mut turns);
            office.wait_for(|| office.finished.get() == load.turns());
        }
        let spent = start.elapsed();
        let mut parts = vec![written(&turns)];
        parts.extend(results.iter().map(|result| result.recv().unwrap()));
        (spent, join(&parts))
    }
}

impl<R: Road> Office<R> {
    /// A helper's life.
    fn attend(&self, number: usize, calls: &Receiver<Arc<Packets>>, result: &Sender<Packets>) {
        let mut memory = Vec::new();
        for load in calls {
            let mut turns = self.read(number, &mut memory, &load);
            self.here.0.fetch_add(1, Ordering::AcqRel);
            self.wait_for(|| self.open.load(Ordering::Acquire));
            self.take_turns(number, &mut turns);
            result.send(written(&turns)).unwrap();
        }
    }

    /// Copies a core's turns into its own buffers, as a read does.
    fn read<'m>(&self, number: usize, memory: &'m mut Vec<u8>, load: &Packets) -> Vec<Vec<Packet<'m>>> {
        let stride = stride(load.len);
        let mine = load.bytes.chunks_exact(load.len * TURN).skip(number).step_by(self.cores);
        memory.resize(mine.len() * TURN * stride, 0);
        let packet = |(buffer, bytes): (&'m mut [u8], &[u8])| {
            buffer[HEAD_ROOM..HEAD_ROOM + load.len].copy_from_slice(bytes);
            Packet::new(buffer, HEAD_ROOM, load.len).unwrap()
        };
        let turn = |(buffers, bytes): (&'m mut [u8], &[u8])| {
            buffers.chunks_exact_mut(stride).zip(bytes.chunks_exact(load.len)).map(packet).collect()
        };
        memory.chunks_exact_mut(stride * TURN).zip(mine).map(turn).collect()
    }

    /// One core's way.
    fn go_alone(&self, turns: &mut [Vec<Packet<'_>>]) {
        let mut road = self.lock();
        turns.iter_mut().flat_map(|packets| packets.chunks_mut(BATCH)).for_each(|run| road.whole(run));
    }

    /// The way of each of several cores: all begin in order, and finish in order.
    fn take_turns(&self, number: usize, turns: &mut [Vec<Packet<'_>>]) {
        let mut flying: Vec<R::Flying> =
            iter::repeat_with(Default::default).take(TURN.div_ceil(BATCH)).collect();
        for (turn, packets) in (number..).step_by(self.cores).zip(turns) {
            self.wait_for(|| self.begun.get() == turn);
            let mut road = self.lock();
            packets.chunks_mut(BATCH).zip(&mut flying).for_each(|(run, flying)| road.begin(run, flying));
            drop(road);
            self.begun.set(turn + 1);
            packets.chunks_mut(BATCH).zip(&mut flying).for_each(|(run, flying)| R::fly(flying, run));
            self.wait_for(|| self.finished.get() == turn);
            let mut road = self.lock();
            packets.chunks_mut(BATCH).zip(&mut flying).for_each(|(run, flying)| road.finish(run, flying));
            drop(road);
            self.finished.set(turn + 1);
        }
    }

    /// Takes the lock without going to sleep: whoever has it is quick.
    fn lock(&self) -> MutexGuard<'_, R> {
        loop {
            match self.road.try_lock() {
                Ok(road) => return road,
                Err(TryLockError::WouldBlock) => spin_loop(),
                Err(TryLockError::Poisoned(_)) => panic!("somebody else of the crew has failed"),
            }
        }
    }

    /// The same for a condition that another core brings about.
    fn wait_for(&self, condition: impl Fn() -> bool) {
        while !condition() {
            assert!(!self.road.is_poisoned(), "somebody else of the crew has failed");
            spin_loop();
        }
    }
}

impl Packets {
    /// How many turns they take.
    fn turns(&self) -> usize {
        self.bytes.len() / (self.len * TURN)
    }
}

impl Line {
    fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }
}

/// What stands in a core's buffers.
fn written(turns: &[Vec<Packet<'_>>]) -> Packets {
    let packets = || turns.iter().flatten().map(Packet::data);
    Packets { len: packets().next().map_or(0, <[u8]>::len), bytes: packets().flatten().copied().collect() }
}

/// What cores that took turns have written, in the order of their turns.
fn join(parts: &[Packets]) -> Packets {
    let len = parts[0].len;
    let mut rest: Vec<_> = parts.iter().map(|part| part.bytes.chunks_exact(len * TURN)).collect();
    let turns = std::iter::repeat_with(|| rest.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
    Packets { len, bytes: turns.take_while(|turn| !turn.is_empty()).flatten().flatten().copied().collect() }
}
