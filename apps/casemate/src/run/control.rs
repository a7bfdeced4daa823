//! The control socket: whoever connects gets the status of this instance as one JSON object.
//!
//! A thread of its own talks to clients, so that a slow one never holds up packets: the loop only takes a snapshot.

use crate::status::Snapshot;
use casemate_linux::Error;
use casemate_linux::instance::Instance;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a client may take to read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The loop's end of the control socket.
pub(super) struct Control {
    wake: UnixStream,
    snapshots: SyncSender<Box<Snapshot>>,
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
        let (snapshots, taken) = sync_channel(1);
        thread::spawn(move || serve(&listener, &bell, &taken));
        Ok(Self { wake, snapshots, path })
    }

    /// Readable when a client wants a snapshot.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Hands the snapshot to the client.
    pub(super) fn answer(&mut self, snapshot: Snapshot) {
        let mut rings = [0; 16];
        let rung = (&self.wake).read(&mut rings);
        if rung.is_ok_and(|count| count > 0) {
            // One client is served at a time, so there is room; if its thread is gone, nobody waits.
            let _ = self.snapshots.try_send(Box::new(snapshot));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A socket that stays is replaced at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, mut bell: &UnixStream, snapshots: &Receiver<Box<Snapshot>>) {
    for client in listener.incoming() {
        // The loop is gone when the bell or the snapshots are.
        let Ok(mut client) = client else { continue };
        if bell.write_all(b"!").is_err() {
            return;
        }
        let Ok(snapshot) = snapshots.recv() else { return };
        let text = snapshot.to_json().to_string();
        if client.set_write_timeout(Some(PATIENCE)).is_ok() {
            // A client that does not read gets nothing.
            let _ = client.write_all(text.as_bytes());
        }
    }
}
