//! The handshake between application and server over a Unix socket. After a connection the server sends
//! the protocol version and the ring sizes, and passes the shared memory, or it sends the reason of a
//! rejection.
//!
//! Before the handshake the application checks that the process at the other end is a trusted stack server.
//! A path proves nothing: in a shared directory another user may have created the socket. Therefore no
//! other user may be able to replace entries in the socket's directory, and the kernel must report root
//! or this user as the owner of the other process (SO_PEERCRED, see unix(7): the user at the time of
//! `listen`, so a server that root starts with `--user` counts as root's).

use crate::{SharedMemory, ShmTransport};
use casemate_socketd_protocol::{RingSizes, VERSION};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg, sockopt,
};
use rustix::process::geteuid;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Length of the server's greeting: `CSMK`, version, status, the ring sizes as powers of two of words.
const GREETING_LEN: usize = 10;
const MAGIC: [u8; 4] = *b"CSMK";
const ACCEPTED: u8 = 0;
const REJECTED: u8 = 1;

/// The Unix socket on which the server accepts applications.
#[derive(Debug)]
pub struct SessionListener {
    listener: UnixListener,
    path: PathBuf,
}

impl SessionListener {
    /// Creates a socket at `path`. `mode` is the file mode of the socket; the permissions of its
    /// directories apply too. A stale socket of a previous server is replaced. Returns
    /// [`io::ErrorKind::AddrInUse`] if another server listens there.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another server listens on this socket",
                ));
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.into() })
    }

    /// Returns the next connected application, or `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<PendingSession>> {
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let peer = sockopt::socket_peercred(&socket)?;
        Ok(Some(PendingSession { socket, uid: peer.uid.as_raw(), pid: peer.pid.as_raw_pid() }))
    }
}

impl AsFd for SessionListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for SessionListener {
    fn drop(&mut self) {
        // A socket file that stays is replaced by the next server.
        let _ = fs::remove_file(&self.path);
    }
}

/// An application that has connected and waits for the handshake.
#[derive(Debug)]
pub struct PendingSession {
    socket: UnixStream,
    /// User ID of the application's process.
    pub uid: u32,
    /// Process ID of the application when it connected.
    pub pid: i32,
}

impl PendingSession {
    /// Accepts the application, with rings of these sizes.
    pub fn accept(self, sizes: RingSizes) -> io::Result<ShmTransport> {
        let (memory, file) = SharedMemory::create(sizes.words())?;
        send_greeting(&self.socket, ACCEPTED, sizes, Some(file.as_fd()))?;
        Ok(ShmTransport::new(memory, self.socket))
    }

    /// Rejects the application because the server is full.
    pub fn reject(self, sizes: RingSizes) {
        // If the greeting cannot be sent, the application sees the end of the stream.
        let _ = send_greeting(&self.socket, REJECTED, sizes, None);
    }
}

fn send_greeting(
    socket: &UnixStream,
    status: u8,
    sizes: RingSizes,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let (request_bits, response_bits) = sizes.bits();
    let [high, low] = VERSION.to_be_bytes();
    let [m0, m1, m2, m3] = MAGIC;
    let greeting: [u8; GREETING_LEN] = [m0, m1, m2, m3, high, low, status, request_bits, response_bits, 0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(&greeting)], &mut control, flags)?;
    if sent == GREETING_LEN { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The application's side: connects to the server at `path`, which must belong to root or to this user.
pub(crate) fn connect_to_server(path: &Path) -> io::Result<(ShmTransport, RingSizes)> {
    check_directory(path)?;
    let socket = UnixStream::connect(path)?;
    check_server(&socket)?;
    let (greeting, file) = receive_greeting(&socket)?;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let [m0, m1, m2, m3, high, low, status, request_bits, response_bits, _] = greeting;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(invalid("the process at the other end is not a stack server".into()));
    }
    let version = u16::from_be_bytes([high, low]);
    if version != VERSION {
        return Err(invalid(format!("the server uses protocol version {version}: {VERSION} was expected")));
    }
    if status != ACCEPTED {
        let what = "the server has reached its limit of applications";
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
    }
    let sizes = RingSizes::new(request_bits, response_bits).ok_or_else(|| {
        invalid(format!("the server sent invalid ring sizes: 2^{request_bits} and 2^{response_bits} words"))
    })?;
    let file = file.ok_or_else(|| invalid("the server passed no shared memory".into()))?;
    Ok((ShmTransport::new(SharedMemory::open(file.as_fd(), sizes.words())?, socket), sizes))
}

fn receive_greeting(socket: &UnixStream) -> io::Result<([u8; GREETING_LEN], Option<OwnedFd>)> {
    let mut greeting = [0; GREETING_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut greeting)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes != GREETING_LEN {
        let what = "the server closed the connection before the handshake was complete";
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((greeting, file))
}

/// Write permission for group or others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The sticky bit: only the owner may replace an entry, as in /tmp.
const STICKY: u32 = 0o1000;

/// Checks the directory of the socket.
fn check_directory(socket: &Path) -> io::Result<()> {
    let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let metadata = fs::metadata(directory)?;
    let (owner, mode) = (metadata.uid(), metadata.mode());
    // In a user namespace, root's directories such as `/` belong to a user that has no number in the
    // namespace.
    if !is_trusted(owner) && owner != fs::metadata("/")?.uid() {
        return Err(refused(&format!("{} belongs to user {owner}", directory.display())));
    }
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        let mode = mode & 0o7777;
        return Err(refused(&format!("other users can write to {} (mode {mode:04o})", directory.display())));
    }
    Ok(())
}

/// Checks the owner of the process at the other end.
fn check_server(stream: &UnixStream) -> io::Result<()> {
    let user = sockopt::socket_peercred(stream)?.uid.as_raw();
    if is_trusted(user) {
        return Ok(());
    }
    Err(refused(&format!("the server at the other end was started by user {user}")))
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

fn refused(what: &str) -> io::Error {
    let reason = format!("{what}: root or this user was expected");
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerState;
    use casemate_socketd_protocol::{
        ClientChannel, Request, RequestId, Response, ServerChannel, SocketId, Transport,
    };
    use casemate_test_support::TempDir;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::{Duration, Instant};

    const CHILD: &str = "CASEMATE_TEST_SERVE";
    const OTHER_USER: u32 = 12_345;
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn sizes() -> RingSizes {
        RingSizes::new(8, 8).unwrap()
    }

    #[test]
    fn after_the_handshake_both_ends_share_memory() {
        let directory = TempDir::new("handshake").unwrap();
        let path = directory.file("socket");
        let listener = SessionListener::bind(&path, 0o600).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let socket_path = path.clone();
        let application = thread::spawn(move || connect_to_server(&socket_path).unwrap());
        let pending = wait(&listener);
        assert_eq!(pending.pid, std::process::id().cast_signed());
        let server_end = pending.accept(sizes()).unwrap();
        let (application_end, known) = application.join().unwrap();
        assert_eq!(known, sizes());
        let mut client = ClientChannel::new(application_end, known).unwrap();
        let mut server = ServerChannel::new(server_end, known).unwrap();
        client.send_request(RequestId(1), &Request::Close { socket: SocketId(0) }, &[]).unwrap();
        assert_eq!(server.peek_request().unwrap().unwrap().id, RequestId(1));
        server.pop_request().unwrap();
        server.send_response(RequestId(1), Ok(Response::Done), &[]).unwrap();
        assert_eq!(client.peek_response().unwrap().unwrap().response, Ok(Response::Done));
        assert_eq!(server.transport().clear_notifications(), PeerState::Alive);
        drop(client);
        assert_eq!(server.transport().clear_notifications(), PeerState::Closed);
        server.transport().notify();
        assert!(SessionListener::bind(&path, 0o600).is_err(), "the socket is in use");
        drop(listener);
        assert!(!path.exists());
    }

    fn wait(listener: &SessionListener) -> PendingSession {
        (0..1_000)
            .find_map(|_| {
                thread::sleep(Duration::from_millis(2));
                listener.accept().unwrap()
            })
            .unwrap()
    }

    #[test]
    fn a_rejected_application_gets_the_reason() {
        let directory = TempDir::new("handshake").unwrap();
        let path = directory.file("socket");
        let listener = SessionListener::bind(&path, 0o600).unwrap();
        let socket_path = path.clone();
        let application = thread::spawn(move || connect_to_server(&socket_path).err().unwrap());
        wait(&listener).reject(sizes());
        assert_eq!(application.join().unwrap().kind(), io::ErrorKind::QuotaExceeded);
        let socket_path = path.clone();
        let application = thread::spawn(move || connect_to_server(&socket_path).err().unwrap());
        drop(wait(&listener));
        assert_eq!(application.join().unwrap().kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn notifications_to_a_peer_that_does_not_read_do_not_block() {
        let (one, other) = UnixStream::pair().unwrap();
        // The peer cannot make our end blocking: each end of the socket pair is an open file of its own.
        other.set_nonblocking(false).unwrap();
        let (memory, _file) = SharedMemory::create(sizes().words()).unwrap();
        let transport = ShmTransport::new(memory, one);
        for _ in 0..100_000 {
            transport.notify();
        }
        assert_eq!(transport.memory()[0].load(Ordering::Relaxed), 0);
        assert_eq!(crate::transport::drain_notifications(&other), PeerState::Alive);
    }

    #[test]
    fn a_server_of_another_user_is_refused() {
        if let Some(path) = std::env::var_os(CHILD) {
            // Renamed after `listen`: a connection between `bind` and `listen` would be refused.
            let unnamed = Path::new(&path).with_extension("unnamed");
            let _listener = UnixListener::bind(&unnamed).unwrap();
            std::fs::rename(unnamed, path).unwrap();
            thread::sleep(TIMEOUT);
            return;
        }
        let directory = TempDir::new("trust").unwrap();
        set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = directory.file("socket");
        let mut other_user = Command::new(std::env::current_exe().unwrap());
        other_user.args(["--exact", "listener::tests::a_server_of_another_user_is_refused"]);
        other_user
            .env(CHILD, &path)
            .uid(OTHER_USER)
            .gid(OTHER_USER)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut other_user = match other_user.spawn() {
            Ok(child) => child,
            Err(error) => return casemate_test_support::skip(format!("a process of another user: {error}")),
        };
        let end = Instant::now() + TIMEOUT;
        while !path.exists() && other_user.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let (sender, entered) = std::sync::mpsc::channel();
        // A client that trusted the server would wait for its greeting.
        thread::spawn(move || {
            drop(sender.send(connect_to_server(&path).err().map(|error| error.to_string())))
        });
        let refusal = entered.recv_timeout(TIMEOUT / 2);
        other_user.kill().unwrap();
        other_user.wait().unwrap();
        let refusal = refusal.unwrap().unwrap();
        assert!(refusal.contains("was started by user 12345"), "{refusal}");
    }

    #[test]
    fn a_socket_in_a_directory_of_others_is_refused() {
        let directory = TempDir::new("trust").unwrap();
        let path = directory.file("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let refusal = || connect_to_server(&path).err().map(|error| error.to_string()).unwrap_or_default();
        set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(refusal().contains("other users can write"), "{}", refusal());
        set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        if let Err(error) = chown(directory.path(), Some(OTHER_USER), None) {
            return casemate_test_support::skip(format!("a directory of another user: {error}"));
        }
        assert!(refusal().contains("belongs to user 12345"), "{}", refusal());
    }
}
