//! Sequential downloads of a small file from one end of a veth pair to the other, each over HTTP and a new
//! TCP connection.
//!
//! Server and client are threads of this process, so that no other program is needed. A download counts when
//! the client has read all of it and the server has closed the connection.

use crate::veth_pair::{INNER_ADDRS, VethPair};
use crate::{Error, Result, sys};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time limit for each call of a socket.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes per read.
const CHUNK_LEN: usize = 1 << 16;
const REQUEST: &[u8] = b"GET /file HTTP/1.0\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.0 200 ok\r\nContent-type: text/plain\r\n\r\n";

/// Downloads that follow each other until this value is dropped.
#[derive(Debug)]
pub struct FileDownloads {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    finished: AtomicU64,
    stop: AtomicBool,
    /// First error of the client.
    error: Mutex<Option<io::Error>>,
}

impl FileDownloads {
    /// Starts downloads of a file of `len` bytes. The server has the inner address of the first end, the
    /// client that of the second.
    pub fn start(veth: &VethPair, len: usize) -> Result<Self> {
        let [server, client] = &veth.ends;
        let address = format!("{}:0", INNER_ADDRS[0]);
        let address: SocketAddr = address.parse().map_err(Error::context(&address))?;
        let bind = || TcpListener::bind(address);
        let listener = server.run_in(bind)?.map_err(Error::context("file server"))?;
        let address = listener.local_addr().map_err(Error::context("file server"))?;
        let (shared, listener) = (Arc::new(Shared::default()), Arc::new(listener));
        let (for_client, for_server, pid) = (shared.clone(), listener.clone(), client.pid());
        let threads = vec![
            thread::spawn(move || serve(&for_server, len)),
            thread::spawn(move || {
                if let Err(error) = download_all(pid, address, len, &for_client) {
                    *for_client.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }),
        ];
        Ok(Self { shared, listener, threads })
    }

    /// Number of downloads that have finished. Fails if one has failed.
    pub fn finished(&self) -> Result<u64> {
        match &*self.shared.error.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(Error::new(format!("download of a file: {error}"))),
            None => Ok(self.shared.finished.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for FileDownloads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // This ends the server's `accept`. It fails only if the socket is already closed.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves the file to every client until the listener is shut down.
fn serve(listener: &TcpListener, len: usize) {
    let response = [RESPONSE, &vec![0; len]].concat();
    while let Ok((stream, _)) = listener.accept() {
        // The client reports the error.
        let _ = respond(&stream, &response);
    }
}

fn respond(mut stream: &TcpStream, response: &[u8]) -> io::Result<()> {
    set_timeouts(stream)?;
    stream.read_exact(&mut [0; REQUEST.len()])?;
    stream.write_all(response)
}

/// Downloads until it is told to stop.
fn download_all(netns: u32, server: SocketAddr, len: usize, shared: &Shared) -> io::Result<()> {
    sys::enter_netns_of(netns)?;
    let mut buffer = vec![0; CHUNK_LEN];
    while !shared.stop.load(Ordering::Relaxed) {
        let received = download(server, &mut buffer);
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let (received, expected) = (received?, RESPONSE.len() + len);
        if received != expected {
            return Err(io::Error::other(format!("{received} bytes instead of {expected}")));
        }
        shared.finished.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Downloads the file once and returns the length of the response.
fn download(server: SocketAddr, buffer: &mut [u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    set_timeouts(&stream)?;
    stream.write_all(REQUEST)?;
    let mut received = 0;
    loop {
        match stream.read(buffer)? {
            0 => return Ok(received),
            len => received += len,
        }
    }
}

fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_follow_each_other_and_an_interrupted_link_is_an_error() {
        let Some(veth) = VethPair::of_test() else { return };
        let downloads = FileDownloads::start(&veth, 50_000).unwrap();
        while downloads.finished().unwrap() < 20 {
            thread::sleep(Duration::from_millis(5));
        }
        let packets = veth.received_packets(1).unwrap();
        assert!(packets >= 20 * 3, "{packets} packets for 20 connections");
        drop(downloads);

        veth.ends[0].ip("link set wire down\n").unwrap();
        let downloads = FileDownloads::start(&veth, 50_000).unwrap();
        let error = loop {
            match downloads.finished() {
                Ok(finished) => assert_eq!(finished, 0),
                Err(error) => break error.to_string(),
            }
            thread::sleep(Duration::from_millis(50));
        };
        assert!(error.starts_with("download of a file: "), "{error}");
    }
}
