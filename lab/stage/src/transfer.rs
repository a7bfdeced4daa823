//! A large file from one end of an arena to the other, over TCP, as fast as it goes.
//!
//! The file has no end and is not kept: what is counted is what the receiver has read. Both sockets are this process's, so that nothing
//! has to be installed.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::arena::{Arena, BEHIND};
use crate::{Error, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long to wait for the other side.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes that are written or read at once.
const PIECE: usize = 1 << 16;

/// A transfer that goes on until it is dropped.
#[derive(Debug)]
pub struct Transfer {
    received: Arc<AtomicU64>,
    sockets: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Transfer {
    /// From the address behind the first end to that behind the second.
    pub fn begin(arena: &Arena) -> Result<Self> {
        let any = SocketAddr::new(address(1)?, 0);
        let listener = arena.inside(1, || TcpListener::bind(any))?;
        let to = listener.local_addr().map_err(Error::in_front("receiver"))?;
        let sender = arena.inside(0, || TcpStream::connect_timeout(&to, PATIENCE))?;
        let (receiver, _) = listener.accept().map_err(Error::in_front("receiver"))?;
        let received = Arc::new(AtomicU64::new(0));
        let copy = |stream: &TcpStream| stream.try_clone().map_err(Error::in_front("transfer"));
        let (mut source, mut sink, counter) = (copy(&sender)?, copy(&receiver)?, received.clone());
        let threads = vec![
            thread::spawn(move || {
                let piece = vec![0x5A; PIECE];
                while source.write_all(&piece).is_ok() {}
            }),
            thread::spawn(move || {
                let mut piece = vec![0; PIECE];
                while let Ok(len @ 1..) = sink.read(&mut piece) {
                    counter.fetch_add(len as u64, Ordering::Relaxed);
                }
            }),
        ];
        Ok(Self { received, sockets: [sender, receiver], threads })
    }

    /// Bytes that have arrived so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // One whose other side is gone already is shut.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn address(end: usize) -> Result<IpAddr> {
    BEHIND[end].parse().map_err(Error::in_front(BEHIND[end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_root;

    #[test]
    fn bytes_arrive_until_it_is_dropped() {
        if !is_root() {
            casemate_left_out::note("sockets in network namespaces need root");
            return;
        }
        let Ok(arena) = Arena::new() else {
            casemate_left_out::note("no network namespace can be made here");
            return;
        };
        (0..2).for_each(|end| arena.route_over_link(end).unwrap());
        let transfer = Transfer::begin(&arena).unwrap();
        thread::sleep(Duration::from_millis(100));
        let first = transfer.received();
        thread::sleep(Duration::from_millis(100));
        assert!(first > 0 && transfer.received() > first);
    }
}
