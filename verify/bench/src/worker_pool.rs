//! Cores that take turns on one direction of a data path. Each core has its own buffers, so that packets
//! stay on the core that copied them.

use crate::esp::BATCH;
use casemate_datapath::HEAD_ROOM;
use casemate_measure::tunnel::buffer_stride;
use casemate_testbed::sys;
use casemate_wire::packet::Packet;
use std::hint::spin_loop;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Packets of one turn of a core. The Linux engine processes up to 128.
pub(crate) const TURN: usize = 2 * BATCH;

/// One direction of a data path, in one call and in three stages.
pub(crate) trait Pipeline: Send + 'static {
    /// State of a batch between the stages.
    type InFlight: Default;
    /// Processes a batch in one call.
    fn process_batch(&mut self, packets: &mut [Packet<'_>]);
    /// First stage, with exclusive access to the data path.
    fn begin(&mut self, packets: &mut [Packet<'_>], in_flight: &mut Self::InFlight);
    /// Second stage, without access to the data path: cryptography.
    fn process(in_flight: &mut Self::InFlight, packets: &mut [Packet<'_>]);
    /// Last stage, with exclusive access to the data path. Panics if a packet is dropped.
    fn finish(&mut self, packets: &mut [Packet<'_>], in_flight: &mut Self::InFlight);
}

/// Packets of the same length, concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packets {
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Thread of the caller and helper threads that take turns with it.
pub(crate) struct WorkerPool<R: Pipeline> {
    shared: Arc<Shared<R>>,
    buffers: Vec<u8>,
    /// One channel for each helper thread. The thread ends when its channel is closed.
    jobs: Vec<Sender<Arc<Packets>>>,
    results: Vec<Receiver<Packets>>,
}

/// State that all threads share.
struct Shared<R: Pipeline> {
    /// Number of threads, including the caller's.
    cores: usize,
    pipeline: Mutex<R>,
    /// Number of the next turn to begin, and of the next turn to finish.
    begun: Counter,
    finished: Counter,
    /// Number of helpers that have filled their buffers.
    ready: Counter,
    started: AtomicBool,
}

/// Counter in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicUsize);

impl<R: Pipeline> WorkerPool<R> {
    /// Pool of the caller's thread and one thread on each of these CPUs.
    pub(crate) fn new(helpers: &[usize], pipeline: R) -> Self {
        let shared = Arc::new(Shared {
            cores: helpers.len() + 1,
            pipeline: Mutex::new(pipeline),
            begun: Counter::default(),
            finished: Counter::default(),
            ready: Counter::default(),
            started: AtomicBool::new(false),
        });
        let spawn_helper = |(number, &cpu): (usize, &usize)| {
            let ((job, jobs), (result, results)) = (channel(), channel());
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                sys::pin_to_cpus(&[cpu]).expect("the CPU is allowed");
                shared.run_helper(number, &jobs, &result);
            });
            (job, results)
        };
        let (jobs, results) = (1..).zip(helpers).map(spawn_helper).unzip();
        Self { shared, buffers: Vec::new(), jobs, results }
    }

    /// Processes packets. Returns the duration and the resulting packets.
    pub(crate) fn run(&mut self, load: &Arc<Packets>) -> (Duration, Packets) {
        let Self { shared, buffers, jobs, results } = self;
        shared.started.store(false, Ordering::Relaxed);
        [&shared.begun, &shared.finished, &shared.ready].iter().for_each(|counter| counter.set(0));
        jobs.iter().for_each(|job| job.send(Arc::clone(load)).unwrap());
        let mut turns = shared.copy_turns(0, buffers, load);
        // A new helper thread may need this CPU before it moves to its own.
        while shared.ready.get() < jobs.len() {
            thread::yield_now();
        }
        let start = Instant::now();
        shared.started.store(true, Ordering::Release);
        if jobs.is_empty() {
            shared.run_alone(&mut turns);
        } else {
            shared.take_turns(0, &mut turns);
            shared.spin_until(|| shared.finished.get() == load.turns());
        }
        let elapsed = start.elapsed();
        let mut parts = vec![contents(&turns)];
        parts.extend(results.iter().map(|result| result.recv().unwrap()));
        (elapsed, interleave(&parts))
    }
}

impl<R: Pipeline> Shared<R> {
    /// Main loop of a helper thread.
    fn run_helper(&self, number: usize, jobs: &Receiver<Arc<Packets>>, result: &Sender<Packets>) {
        let mut buffers = Vec::new();
        for load in jobs {
            let mut turns = self.copy_turns(number, &mut buffers, &load);
            self.ready.0.fetch_add(1, Ordering::AcqRel);
            self.spin_until(|| self.started.load(Ordering::Acquire));
            self.take_turns(number, &mut turns);
            result.send(contents(&turns)).unwrap();
        }
    }

    /// Copies the turns of one core into its own buffers, as a read from the kernel does.
    fn copy_turns<'m>(
        &self,
        number: usize,
        buffers: &'m mut Vec<u8>,
        load: &Packets,
    ) -> Vec<Vec<Packet<'m>>> {
        let stride = buffer_stride(load.len);
        let mine = load.bytes.chunks_exact(load.len * TURN).skip(number).step_by(self.cores);
        buffers.resize(mine.len() * TURN * stride, 0);
        let packet = |(buffer, bytes): (&'m mut [u8], &[u8])| {
            buffer[HEAD_ROOM..HEAD_ROOM + load.len].copy_from_slice(bytes);
            Packet::new(buffer, HEAD_ROOM, load.len).unwrap()
        };
        let turn = |(buffers, bytes): (&'m mut [u8], &[u8])| {
            buffers.chunks_exact_mut(stride).zip(bytes.chunks_exact(load.len)).map(packet).collect()
        };
        buffers.chunks_exact_mut(stride * TURN).zip(mine).map(turn).collect()
    }

    /// Processes all turns on one core.
    fn run_alone(&self, turns: &mut [Vec<Packet<'_>>]) {
        let mut pipeline = self.lock();
        turns
            .iter_mut()
            .flat_map(|packets| packets.chunks_mut(BATCH))
            .for_each(|run| pipeline.process_batch(run));
    }

    /// Processes the turns of one of several cores. All turns begin in order and finish in order.
    fn take_turns(&self, number: usize, turns: &mut [Vec<Packet<'_>>]) {
        let mut in_flight: Vec<R::InFlight> =
            iter::repeat_with(Default::default).take(TURN.div_ceil(BATCH)).collect();
        for (turn, packets) in (number..).step_by(self.cores).zip(turns) {
            self.spin_until(|| self.begun.get() == turn);
            let mut pipeline = self.lock();
            packets
                .chunks_mut(BATCH)
                .zip(&mut in_flight)
                .for_each(|(run, in_flight)| pipeline.begin(run, in_flight));
            drop(pipeline);
            self.begun.set(turn + 1);
            packets
                .chunks_mut(BATCH)
                .zip(&mut in_flight)
                .for_each(|(run, in_flight)| R::process(in_flight, run));
            self.spin_until(|| self.finished.get() == turn);
            let mut pipeline = self.lock();
            packets
                .chunks_mut(BATCH)
                .zip(&mut in_flight)
                .for_each(|(run, in_flight)| pipeline.finish(run, in_flight));
            drop(pipeline);
            self.finished.set(turn + 1);
        }
    }

    /// Acquires the lock by spinning. The holder releases it soon.
    fn lock(&self) -> MutexGuard<'_, R> {
        loop {
            match self.pipeline.try_lock() {
                Ok(pipeline) => return pipeline,
                Err(TryLockError::WouldBlock) => spin_loop(),
                Err(TryLockError::Poisoned(_)) => panic!("another thread of the pool panicked"),
            }
        }
    }

    /// Spins until another core makes the condition true.
    fn spin_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            assert!(!self.pipeline.is_poisoned(), "another thread of the pool panicked");
            spin_loop();
        }
    }
}

impl Packets {
    /// Number of turns.
    fn turns(&self) -> usize {
        self.bytes.len() / (self.len * TURN)
    }
}

impl Counter {
    fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }
}

/// Packets in the buffers of a core.
fn contents(turns: &[Vec<Packet<'_>>]) -> Packets {
    let packets = || turns.iter().flatten().map(Packet::data);
    Packets { len: packets().next().map_or(0, <[u8]>::len), bytes: packets().flatten().copied().collect() }
}

/// Packets of all cores, in the order of their turns.
fn interleave(parts: &[Packets]) -> Packets {
    let len = parts[0].len;
    let mut rest: Vec<_> = parts.iter().map(|part| part.bytes.chunks_exact(len * TURN)).collect();
    let turns = std::iter::repeat_with(|| rest.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
    Packets { len, bytes: turns.take_while(|turn| !turn.is_empty()).flatten().flatten().copied().collect() }
}
