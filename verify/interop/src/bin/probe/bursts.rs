//! Bursts of echo requests of different sizes: a gateway that receives many packets at once pads them to one
//! length.

use crate::ping::{answered, message, open, receive};
use casemate_interop::{Error, Result};
use casemate_test_support::TestRng;
use socket2::Socket;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time to wait for the replies to a burst.
const WAIT: Duration = Duration::from_secs(3);

/// Sends `count` bursts with one request of each size, in another order each time. Requires the replies to a
/// burst, one for each request, before it sends the next one. Returns a summary.
pub(crate) fn ping_bursts(from: IpAddr, to: IpAddr, count: usize, mut sizes: Vec<usize>) -> Result<String> {
    let start = Instant::now();
    let socket = open(from, to).map_err(Error::context("raw socket"))?;
    let mut rng = TestRng::new(0);
    let mut sequence = 0_u16;
    let mut replies = 0_usize;
    for burst in 1..=count {
        shuffle(&mut sizes, &mut rng);
        let mut waiting = BTreeMap::new();
        for &size in &sizes {
            waiting.insert(sequence, message(to.is_ipv6(), sequence, size));
            sequence = sequence.wrapping_add(1);
        }
        exchange(&socket, to.is_ipv6(), waiting).map_err(Error::context(format!("burst {burst}")))?;
        replies = replies.saturating_add(sizes.len());
    }
    Ok(format!("{replies} replies to {count} bursts, {} ms", start.elapsed().as_millis()))
}

/// Sends the requests, which have these sequence numbers, and requires all replies.
fn exchange(socket: &Socket, v6: bool, mut waiting: BTreeMap<u16, Vec<u8>>) -> Result<()> {
    for request in waiting.values() {
        socket.send(request).map_err(Error::context("send"))?;
    }
    let sent = Instant::now();
    while !waiting.is_empty() {
        if sent.elapsed() > WAIT {
            return Err(Error::new(format!("no reply to {} requests", waiting.len())));
        }
        let Some(icmp) = receive(socket, v6).map_err(Error::context("receive"))? else { continue };
        let Some(sequence) = answered(v6, &icmp) else { continue };
        let Some(request) = waiting.remove(&sequence) else {
            return Err(Error::new(format!("a second reply to request {sequence}")));
        };
        // Everything except type and checksum has to be equal.
        if icmp.get(4..) != request.get(4..) {
            let sizes = [icmp.len(), request.len()].map(|size| size.saturating_sub(4));
            return Err(Error::new(format!("another content in the reply to request {sequence}: {sizes:?}")));
        }
    }
    Ok(())
}

fn shuffle(sizes: &mut [usize], rng: &mut TestRng) {
    for last in (1..sizes.len()).rev() {
        sizes.swap(last, rng.below(last.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffled_burst_has_the_same_sizes_in_another_order() {
        let all: Vec<usize> = (36..=228).step_by(4).collect();
        let mut sizes = all.clone();
        shuffle(&mut sizes, &mut TestRng::new(0));
        assert_ne!(sizes, all);
        sizes.sort_unstable();
        assert_eq!(sizes, all);
    }
}
