//! Cores that share one road of a data path: who has time takes the next batch; batches leave in the order in which they came.

use casemate_bench::sys;
use casemate_wire::packet::Packet;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Packets that travel together.
pub(crate) type Batch = Vec<Packet<'static>>;

/// One direction of a data path, in one piece and in three.
pub(crate) trait Road: Send + 'static {
    /// What is on its way between the steps.
    type Flying;
    /// Everything at once.
    fn whole(&mut self, packets: &mut [Packet<'_>]);
    /// The first step.
    fn begin(&mut self, packets: &mut [Packet<'_>]) -> Self::Flying;
    /// The second step, without the road.
    fn fly(flying: &mut Self::Flying, packets: &mut [Packet<'_>]);
    /// The last step. Panics if a packet does not arrive.
    fn finish(&mut self, packets: &mut [Packet<'_>], flying: Self::Flying);
}

/// The caller's thread, and others that help it.
pub(crate) struct Crew<R: Road> {
    office: Arc<Office<R>>,
    /// One for each helper, who waits for it and goes home when it is gone.
    calls: Vec<Sender<()>>,
}

/// What the crew shares.
struct Office<R: Road> {
    desk: Mutex<Desk<R>>,
    turnstile: Turnstile,
    /// Helpers that have come.
    here: AtomicUsize,
    open: AtomicBool,
}

/// The number of the batch that may leave next, in a cache line of its own.
#[repr(align(128))]
struct Turnstile(AtomicUsize);

/// Where work is given out and taken back.
struct Desk<R> {
    road: R,
    waiting: VecDeque<Batch>,
    begun: usize,
    done: Vec<Batch>,
}

/// A batch on its way.
struct Job<R: Road> {
    number: usize,
    packets: Batch,
    flying: R::Flying,
}

impl<R: Road> Crew<R> {
    /// The caller's thread, and one on each of these CPUs.
    pub(crate) fn new(helpers: &[usize], road: R) -> Self {
        let desk = Desk { road, waiting: VecDeque::new(), begun: 0, done: Vec::new() };
        let office = Arc::new(Office {
            desk: Mutex::new(desk),
            turnstile: Turnstile(AtomicUsize::new(0)),
            here: AtomicUsize::new(0),
            open: AtomicBool::new(false),
        });
        let hire = |&cpu| {
            let (call, calls) = channel();
            let office = Arc::clone(&office);
            thread::spawn(move || {
                sys::stay_on(&[cpu]).expect("a CPU that may be used");
                office.attend(&calls);
            });
            call
        };
        Self { calls: helpers.iter().map(hire).collect(), office }
    }

    /// Sends the batches down the road; says how long that took.
    pub(crate) fn work(&mut self, batches: &mut Vec<Batch>) -> Duration {
        let Self { office, calls } = self;
        if calls.is_empty() {
            let road = &mut office.lock().road;
            let start = Instant::now();
            batches.iter_mut().for_each(|packets| road.whole(packets));
            return start.elapsed();
        }
        let count = batches.len();
        office.prepare(batches);
        calls.iter().for_each(|call| call.send(()).unwrap());
        // A helper that was just hired may need this CPU to get to its own.
        while office.here.load(Ordering::Acquire) < calls.len() {
            thread::yield_now();
        }
        let start = Instant::now();
        office.open.store(true, Ordering::Release);
        office.help();
        office.wait_for(|| office.turnstile.0.load(Ordering::Acquire) == count);
        let spent = start.elapsed();
        office.wait_for(|| office.here.load(Ordering::Acquire) == 0);
        *batches = mem::take(&mut office.lock().done);
        spent
    }
}

impl<R: Road> Office<R> {
    fn prepare(&self, batches: &mut Vec<Batch>) {
        self.open.store(false, Ordering::Relaxed);
        self.turnstile.0.store(0, Ordering::Relaxed);
        let mut desk = self.lock();
        desk.begun = 0;
        desk.done.reserve(batches.len());
        desk.waiting.extend(batches.drain(..));
    }

    /// A helper's life.
    fn attend(&self, calls: &Receiver<()>) {
        while calls.recv().is_ok() {
            self.here.fetch_add(1, Ordering::AcqRel);
            self.wait_for(|| self.open.load(Ordering::Acquire));
            self.help();
            self.here.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// What each core does while there is work.
    fn help(&self) {
        let mut job = self.lock().begin();
        while let Some(Job { number, mut packets, mut flying }) = job {
            R::fly(&mut flying, &mut packets);
            self.wait_for(|| self.turnstile.0.load(Ordering::Acquire) == number);
            let mut desk = self.lock();
            desk.road.finish(&mut packets, flying);
            desk.done.push(packets);
            job = desk.begin();
            drop(desk);
            self.turnstile.0.store(number + 1, Ordering::Release);
        }
    }

    /// Takes the lock without going to sleep: whoever has it is quick.
    fn lock(&self) -> MutexGuard<'_, Desk<R>> {
        loop {
            match self.desk.try_lock() {
                Ok(desk) => return desk,
                Err(TryLockError::WouldBlock) => spin_loop(),
                Err(TryLockError::Poisoned(_)) => panic!("somebody else of the crew has failed"),
            }
        }
    }

    /// The same for a condition that another core brings about.
    fn wait_for(&self, condition: impl Fn() -> bool) {
        while !condition() {
            assert!(!self.desk.is_poisoned(), "somebody else of the crew has failed");
            spin_loop();
        }
    }
}

impl<R: Road> Desk<R> {
    fn begin(&mut self) -> Option<Job<R>> {
        let mut packets = self.waiting.pop_front()?;
        let number = self.begun;
        self.begun += 1;
        Some(Job { number, flying: self.road.begin(&mut packets), packets })
    }
}
