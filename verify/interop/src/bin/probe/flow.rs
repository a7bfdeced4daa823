//! Echo requests at a steady pace until standard input ends: did the tunnel stay open all the time?

use crate::ping::{answered, message, open, receive};
use casemate_interop::{Error, Result};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
const PACE: Duration = Duration::from_millis(10);
/// How long to wait for the last answers.
const LAST: Duration = Duration::from_secs(1);
/// In case nobody ends us.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends a request every ten milliseconds and says how many were not answered.
pub(crate) fn run(from: IpAddr, to: IpAddr) -> Result<String> {
    let socket = open(from, to).map_err(Error::in_front("raw socket"))?;
    socket.set_read_timeout(Some(PACE / 2)).map_err(Error::in_front("raw socket"))?;
    static ENDED: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ENDED.store(true, Ordering::Relaxed);
    });
    let (start, mut sent, mut missing) = (Instant::now(), 0_u16, BTreeSet::new());
    let mut last = None;
    loop {
        let ended = ENDED.load(Ordering::Relaxed) || start.elapsed() > LIMIT;
        if last.is_none() && ended {
            last = Some(Instant::now());
        }
        if last.is_some_and(|last| last.elapsed() > LAST || missing.is_empty()) {
            break;
        }
        if last.is_none() && start.elapsed() >= PACE.saturating_mul(sent.into()) {
            // A request that cannot be sent is not answered either.
            let _ = socket.send(&message(to.is_ipv6(), sent, SIZE));
            missing.insert(sent);
            sent = sent.saturating_add(1);
        }
        let answer = receive(&socket, to.is_ipv6()).unwrap_or_default();
        if let Some(sequence) = answer.and_then(|icmp| answered(to.is_ipv6(), &icmp)) {
            missing.remove(&sequence);
        }
    }
    Ok(format!("{sent} sent, {} lost", missing.len()))
}
