//! Unix sockets between processes of one user.
//!
//! A server's socket has mode 0600 from the start, so the kernel lets only processes connect that may write
//! that file. A client's path alone proves nothing: in a shared directory another user may have created the
//! socket. [`crate::instance`] checks the directory, and this module asks the kernel for the user of the
//! other process (SO_PEERCRED of unix(7)).

use crate::Error;
use crate::private_file;
use crate::sys;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Clients that wait to be accepted, as in the standard library.
const BACKLOG: i32 = 128;
/// Time before a client tries again to connect to a server whose queue is full.
const RETRY: Duration = Duration::from_millis(20);

/// Binds a non-blocking listener, for root, this user and processes with CAP_DAC_OVERRIDE. Replaces an
/// existing socket.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Linux creates the file with the mode of the socket, so no other user can connect before it is changed.
    let socket = File::from(OwnedFd::from(Socket::new(Domain::UNIX, Type::STREAM, None)?));
    socket.set_permissions(PermissionsExt::from_mode(0o600))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// Opens the socket as [`listen`] does. Fails if another program serves clients there; a socket that no
/// program serves is replaced. `option` is the option of the command line that names the path.
pub fn listen_alone(path: &Path, option: &str) -> Result<UnixListener, Error> {
    let name = || path.display().to_string();
    if let Ok(stream) = UnixStream::connect(path) {
        let who = peer_program(&stream).map_or_else(|_| String::new(), |who| format!(" ({who})"));
        return Err(Error::other(
            name(),
            format!("another program serves this socket{who}: stop it, or use another path with {option}"),
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()) => Err(
            Error::other(name(), format!("this is not a socket: another path was expected with {option}")),
        ),
        _ => listen(path).map_err(|error| {
            let expected = format!("{option} with a path in an existing directory was expected");
            Error::other(name(), format!("{error}: {expected}"))
        }),
    }
}

/// Connects to a server of root or of this user, within this time.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let (address, end) = (SockAddr::unix(path)?, Instant::now() + timeout);
    socket.set_nonblocking(true)?;
    // A blocking connect would wait without limit for a server that accepts no connection.
    while let Err(error) = socket.connect(&address) {
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if Instant::now() < end => thread::sleep(RETRY),
            io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            _ => return Err(error),
        }
    }
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(OwnedFd::from(socket));
    check_peer(&stream)?;
    Ok(stream)
}

/// Checks that the process at the other end runs as root or as this user.
pub fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let user = sys::peer_process(stream.as_fd())?.user;
    if private_file::is_trusted(user) {
        return Ok(());
    }
    let reason = format!("the process at the other end runs as user {user}: root or this user was expected");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// Name and number of the program at the other end. For a connected client, the program that listens.
pub fn peer_program(stream: &UnixStream) -> io::Result<String> {
    let pid = sys::peer_process(stream.as_fd())?.pid;
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    Ok(format!("{}, pid {pid}", name.trim().escape_debug()))
}

/// A descriptor, what to wait for on it, and the result. The end of the connection is always reported.
#[derive(Debug)]
pub struct PollFd<'f> {
    pub(crate) fd: BorrowedFd<'f>,
    pub(crate) reading: bool,
    pub(crate) writing: bool,
    /// The descriptor can be read without blocking, or the connection has ended.
    pub readable: bool,
    /// The descriptor can be written without blocking.
    pub writable: bool,
    /// The other side has closed both directions, or the connection failed.
    pub hung_up: bool,
}

impl<'f> PollFd<'f> {
    /// Waits until `fd` can be read, written, or either.
    pub fn new(fd: BorrowedFd<'f>, reading: bool, writing: bool) -> Self {
        Self { fd, reading, writing, readable: false, writable: false, hung_up: false }
    }
}

/// Waits until one of the descriptors is ready, or `timeout` is over. A signal ends the wait early.
pub fn poll(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    sys::poll(polled, timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    const CHILD: &str = "CASEMATE_TEST_LISTEN";
    const OTHER_USER: u32 = 12_345;
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Another user listens where an instance of root is expected.
    #[test]
    fn a_server_of_another_user_is_rejected() {
        if let Some(path) = std::env::var_os(CHILD) {
            // The socket gets its name when it listens, and not between `bind` and `listen`.
            let unnamed = Path::new(&path).with_extension("unnamed");
            let _listener = UnixListener::bind(&unnamed).unwrap();
            fs::rename(unnamed, path).unwrap();
            thread::sleep(PATIENCE);
            return;
        }
        let scratch = TempDir::new("local").unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let path = scratch.file("socket");
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.args(["--exact", "unix_socket::tests::a_server_of_another_user_is_rejected"]);
        server.env(CHILD, &path).uid(OTHER_USER).gid(OTHER_USER).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = match server.spawn() {
            Ok(child) => child,
            Err(error) => return casemate_test_support::skip(format!("a process of another user: {error}")),
        };
        let end = Instant::now() + PATIENCE;
        while !path.exists() && server.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let connected = connect(&path, Duration::from_secs(5));
        server.kill().unwrap();
        server.wait().unwrap();
        let error = connected.unwrap_err().to_string();
        assert!(error.contains("runs as user 12345"), "{error}");
    }

    #[test]
    fn a_socket_is_replaced_if_no_program_serves_it() {
        let scratch = TempDir::new("listen").unwrap();
        let path = scratch.file("socket");
        let listener = listen_alone(&path, "--vici").unwrap();
        let error = listen_alone(&path, "--vici").unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(listener);
        assert!(path.exists() && listen_alone(&path, "--vici").is_ok());
        let file = scratch.file("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen_alone(&file, "--vici").is_err() && file.exists());
    }

    #[test]
    fn connecting_to_a_server_that_accepts_nothing_times_out() {
        let scratch = TempDir::new("local").unwrap();
        let path = scratch.file("socket");
        let _listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&path, Duration::from_millis(50)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100_000, "the queue of the server is unbounded");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn poll_reports_readiness_and_hangup() {
        let (here, there) = UnixStream::pair().unwrap();
        let look = |reading, writing| {
            let mut polled = [PollFd::new(here.as_fd(), reading, writing)];
            poll(&mut polled, Duration::ZERO).unwrap();
            let [PollFd { readable, writable, hung_up: gone, .. }] = polled;
            [readable, writable, gone]
        };
        assert_eq!(look(true, false), [false, false, false]);
        assert_eq!(look(false, true), [false, true, false]);
        (&there).write_all(b"x").unwrap();
        assert_eq!(look(true, true), [true, true, false]);
        there.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(look(false, false), [false, false, false], "the other side may still read");
        drop(there);
        assert_eq!(look(false, false), [false, false, true]);
    }
}
