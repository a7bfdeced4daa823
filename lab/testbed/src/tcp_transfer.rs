//! TCP bulk transfer from one end of a veth pair to the other, at full speed.
//!
//! The data is endless and not stored. The receiver counts the bytes that it reads. Both sockets belong to
//! this process, so that no other program is needed.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::veth_pair::{INNER_ADDRS, VethPair};
use crate::{Error, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time limit for the connection.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes per write or read.
const CHUNK_LEN: usize = 1 << 16;

/// A transfer that runs until it is dropped.
#[derive(Debug)]
pub struct Transfer {
    received: Arc<AtomicU64>,
    sockets: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Transfer {
    /// Starts a transfer from the inner address of the first end to that of the second.
    pub fn start(veth: &VethPair) -> Result<Self> {
        let any = SocketAddr::new(inner_addr(1)?, 0);
        let listener = veth.run_in(1, || TcpListener::bind(any))?;
        let to = listener.local_addr().map_err(Error::context("receiver"))?;
        let sender = veth.run_in(0, || TcpStream::connect_timeout(&to, TIMEOUT))?;
        let (receiver, _) = listener.accept().map_err(Error::context("receiver"))?;
        let received = Arc::new(AtomicU64::new(0));
        let copy = |stream: &TcpStream| stream.try_clone().map_err(Error::context("transfer"));
        let (mut source, mut sink, counter) = (copy(&sender)?, copy(&receiver)?, received.clone());
        let threads = vec![
            thread::spawn(move || {
                let piece = vec![0x5A; CHUNK_LEN];
                while source.write_all(&piece).is_ok() {}
            }),
            thread::spawn(move || {
                let mut piece = vec![0; CHUNK_LEN];
                while let Ok(len @ 1..) = sink.read(&mut piece) {
                    counter.fetch_add(len as u64, Ordering::Relaxed);
                }
            }),
        ];
        Ok(Self { received, sockets: [sender, receiver], threads })
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // The socket may already be disconnected.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn inner_addr(end: usize) -> Result<IpAddr> {
    INNER_ADDRS[end].parse().map_err(Error::context(INNER_ADDRS[end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn bytes_arrive_until_it_is_dropped() {
        let Some(veth) = VethPair::of_test() else { return };
        let transfer = Transfer::start(&veth).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut last = 0;
        // Bytes arrive, and more bytes arrive afterwards.
        for _ in 0..2 {
            while transfer.received() <= last {
                assert!(Instant::now() < deadline, "{last} bytes");
                thread::sleep(Duration::from_millis(5));
            }
            last = transfer.received();
        }
    }
}
