//! A slow serial line between two routers, emulated by threads.
//!
//! Each end is a TUN interface, so a packet has no link header. One direction has the rate and the queues of
//! the paper's routers; packets of the other direction pass at once.

use super::line_queue::{Discipline, LineQueue, Unit};
use casemate_testbed::{Error, Netns, Result, Tun, sys};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Real-time priority: above the gateways, below the instruments.
const PRIORITY: i32 = 15;
/// Time after which an idle line looks for a change of its settings.
const POLL: Duration = Duration::from_millis(20);
/// Longest packet in bytes.
const MAX_LEN: usize = 2048;

/// What a line does, and how often that has changed.
#[derive(Clone, Copy)]
struct Settings {
    discipline: Discipline,
    changes: u32,
}

/// Line between two namespaces. Dropping it removes both interfaces, which ends the threads.
pub(super) struct SerialLine<'n> {
    ends: [&'n Netns; 2],
    name: &'static str,
    settings: Arc<Mutex<Settings>>,
}

impl<'n> SerialLine<'n> {
    /// Connects two namespaces by interfaces of this name. They are not up yet. `rate` is in bits per second,
    /// for packets from the first to the second end.
    pub(super) fn connect(ends: [&'n Netns; 2], name: &'static str, rate: f64) -> Result<Self> {
        let [near, far] = ends;
        let (near, far) = (near.run_in(|| Tun::create(name))??, far.run_in(|| Tun::create(name))??);
        let settings = Arc::new(Mutex::new(Settings { discipline: Discipline::Fifo, changes: 0 }));
        let handles = near.try_clone().and_then(|near| Ok((near, far.try_clone()?)));
        let (near_again, far_again) = handles.map_err(Error::context(name))?;
        let (sender, receiver) = channel();
        thread::spawn(move || receive(&near, &sender));
        let shared = settings.clone();
        thread::spawn(move || transmit(&receiver, &far, &shared, rate));
        thread::spawn(move || forward(&far_again, &near_again));
        Ok(Self { ends, name, settings })
    }

    /// Changes the discipline and drops all packets that wait.
    pub(super) fn restart(&self, discipline: Discipline) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = Settings { discipline, changes: settings.changes + 1 };
    }
}

impl Drop for SerialLine<'_> {
    fn drop(&mut self) {
        for end in self.ends {
            // If the namespace has already ended, so has the interface.
            let _ = end.ip(&format!("link del {}\n", self.name));
        }
    }
}

/// Passes what the near end sends to the scheduler, until the interface is removed.
fn receive(near: &Tun, sender: &Sender<Vec<u8>>) -> io::Result<()> {
    sys::set_fifo_priority(PRIORITY)?;
    let mut buffer = [0; MAX_LEN];
    loop {
        let len = near.receive(&mut buffer)?;
        let packet = buffer.get(..len).unwrap_or_default().to_vec();
        if sender.send(packet).is_err() {
            return Ok(());
        }
    }
}

/// Sends packets at the rate of the line, in the order of its queue.
fn transmit(
    arrivals: &Receiver<Vec<u8>>,
    far: &Tun,
    settings: &Mutex<Settings>,
    rate: f64,
) -> io::Result<()> {
    sys::set_fifo_priority(PRIORITY)?;
    let read = || *settings.lock().unwrap_or_else(PoisonError::into_inner);
    let (start, mut current) = (Instant::now(), read());
    let mut queue = LineQueue::new(current.discipline);
    let mut free = start;
    loop {
        let latest = read();
        if latest.changes != current.changes {
            (current, queue) = (latest, LineQueue::new(latest.discipline));
            arrivals.try_iter().for_each(drop);
        }
        arrivals.try_iter().for_each(|packet| queue.push(packet, start.elapsed()));
        let Some(Unit { len, packet }) = queue.pop() else {
            match arrivals.recv_timeout(POLL) {
                Ok(packet) => queue.push(packet, start.elapsed()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            continue;
        };
        free = free.max(Instant::now()) + Duration::from_secs_f64(len as f64 * 8.0 / rate);
        thread::sleep(free.saturating_duration_since(Instant::now()));
        if let Some(packet) = packet {
            // An interface that is not up takes no packet, as on a line that is interrupted.
            let _ = far.deliver(&packet);
        }
    }
}

/// Passes packets of the other direction at once, until the interface is removed.
fn forward(far: &Tun, near: &Tun) -> io::Result<()> {
    sys::set_fifo_priority(PRIORITY)?;
    let mut buffer = [0; MAX_LEN];
    loop {
        let len = far.receive(&mut buffer)?;
        let _ = near.deliver(buffer.get(..len).unwrap_or_default());
    }
}
