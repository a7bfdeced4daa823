//! Another process of this program, which does what its parent may not do after its system calls are limited.
//!
//! The process is started before that, with a hidden argument, an empty environment, and a socket to its
//! parent as standard input. A newly executed program shares no memory with its parent; a fork would.

use crate::Error;
use socket2::SockRef;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program of this process, even if its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Time for the end of the process before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// The process, as its parent sees it. Dropping it closes the socket and waits for the end of the process.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    pub(crate) socket: UnixStream,
    pub(crate) child: Child,
}

impl HelperProcess {
    /// Starts the process with these arguments; `name` is its name in errors.
    pub(crate) fn start(arguments: &[&str], name: &str) -> Result<Self, Error> {
        let failed = |error| Error::new(format!("start of {name}"), error);
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(THIS_PROGRAM);
        command.args(arguments).env_clear().current_dir("/").stdout(Stdio::null());
        let child = command.stdin(OwnedFd::from(other)).spawn().map_err(failed)?;
        Ok(Self { socket, child })
    }

    /// Whether the process has closed the socket, as at its end.
    pub(crate) fn has_closed(&self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let read = SockRef::from(&self.socket).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
        // The error that nothing can be read means that the process is alive.
        matches!(read, Ok(0))
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // The process ends after its current work. In the sandbox this process may not wait for it, and
        // need not: it is about to end itself.
        let _ = self.socket.shutdown(Shutdown::Both);
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > END_TIMEOUT {
                let _ = self.child.kill().and_then(|()| self.child.wait());
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
