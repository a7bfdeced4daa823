//! The control socket: whoever connects says in one line what is wanted, and gets the answer.
//!
//! Each client has a thread of its own, so that a slow one never holds up packets: the loop only hands answers over.

use crate::control::Request;
use casemate_linux::Error;
use casemate_linux::instance::Instance;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take for its request, and to read what it is told.
const PATIENCE: Duration = Duration::from_secs(2);
/// More clients at a time are turned away.
const MAX_CLIENTS: usize = 32;
/// A longer request is none.
const MAX_REQUEST: u64 = 4_096;
/// Lines of a log that may wait for a client; one that reads more slowly is left.
const MAX_WAITING: usize = 4_096;

/// Where the answer to a client goes: lines, until it is dropped.
pub(super) struct Reply(SyncSender<String>);

impl Reply {
    /// Hands a line over; `false` if the client is gone, or too slow.
    pub(super) fn send(&self, line: String) -> bool {
        self.0.try_send(line).is_ok()
    }
}

/// The loop's end of the control socket.
pub(super) struct Control {
    wake: UnixStream,
    requests: Receiver<(Request, Reply)>,
    path: PathBuf,
}

impl Control {
    /// Opens the socket and starts the thread behind it. The journal's lock says that nobody else uses the path.
    pub(super) fn open(instance: &Instance) -> Result<Self, Error> {
        let path = instance.socket();
        let failed = |error| Error::new(path.display().to_string(), error);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let (wake, bell) = UnixStream::pair().map_err(failed)?;
        wake.set_nonblocking(true).map_err(failed)?;
        let (sender, requests) = channel();
        thread::spawn(move || serve(&listener, &Arc::new(bell), &sender));
        Ok(Self { wake, requests, path })
    }

    /// Readable when a client wants something.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What clients want.
    pub(super) fn requests(&mut self) -> Vec<(Request, Reply)> {
        let mut rings = [0; 64];
        // One ring for each request; whether any is left over does not matter.
        let _ = (&self.wake).read(&mut rings);
        self.requests.try_iter().collect()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A socket that stays is replaced at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, bell: &Arc<UnixStream>, requests: &Sender<(Request, Reply)>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        if clients.fetch_add(1, Ordering::SeqCst) >= MAX_CLIENTS {
            clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (bell, requests, clients) = (Arc::clone(bell), requests.clone(), Arc::clone(&clients));
        thread::spawn(move || {
            // A client that does not write or does not read gets nothing.
            let _ = talk(&client, &bell, &requests);
            clients.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// What a client writes until its time is over, however slowly it writes.
struct InTime<'c> {
    client: &'c UnixStream,
    end: Instant,
}

impl Read for InTime<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        // A time limit of zero would be none.
        self.client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.client.read(buffer) }
    }
}

fn talk(
    mut client: &UnixStream,
    mut bell: &UnixStream,
    requests: &Sender<(Request, Reply)>,
) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    let in_time = InTime { client, end: Instant::now() + PATIENCE };
    BufReader::new(in_time.take(MAX_REQUEST)).read_line(&mut line)?;
    let Some(request) = Request::from_line(&line) else { return Ok(()) };
    let (sender, lines) = sync_channel(MAX_WAITING);
    // The loop is gone when the bell or the other end of the channel is.
    requests.send((request, Reply(sender))).map_err(io::Error::other)?;
    bell.write_all(b"!")?;
    for line in lines {
        client.write_all(line.as_bytes())?;
        client.write_all(b"\n")?;
    }
    Ok(())
}
