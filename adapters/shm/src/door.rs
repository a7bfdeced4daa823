//! Where applications and the server meet: a Unix socket. Whoever connects is told the version and the sizes of the rings, and
//! gets the memory; or is told why not.

use crate::{Link, Memory, trust};
use casemate_rings::{Geometry, VERSION};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg, sockopt,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The first bytes that the server says: `CSMK`, version, status, the rings' sizes as powers of two of words.
const GREETING: usize = 10;
const MAGIC: [u8; 4] = *b"CSMK";
const WELCOME: u8 = 0;
const FULL: u8 = 1;

/// The server's side of the meeting place.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// A socket at this path, for those whom `mode` lets (as of files; the directories above count too). One that a server left
    /// behind is replaced, one that is in use is not.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is there"));
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.into() })
    }

    /// The next application that wants to come in, if there is one.
    pub fn next(&self) -> io::Result<Option<Visitor>> {
        let bell = match self.listener.accept() {
            Ok((bell, _)) => bell,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let who = sockopt::socket_peercred(&bell)?;
        Ok(Some(Visitor { bell, uid: who.uid.as_raw(), pid: who.pid.as_raw_pid() }))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // One that stays is replaced at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

/// An application that has knocked.
#[derive(Debug)]
pub struct Visitor {
    bell: UnixStream,
    /// The user it runs as.
    pub uid: u32,
    /// Its process, when it knocked.
    pub pid: i32,
}

impl Visitor {
    /// Lets it in, with rings of these sizes.
    pub fn welcome(self, geometry: Geometry) -> io::Result<Link> {
        let (memory, file) = Memory::create(geometry.words())?;
        greet(&self.bell, WELCOME, geometry, Some(file.as_fd()))?;
        Ok(Link::new(memory, self.bell))
    }

    /// Sends it away, because there are too many.
    pub fn send_away(self, geometry: Geometry) {
        // It sees the end of file at least.
        let _ = greet(&self.bell, FULL, geometry, None);
    }
}

fn greet(bell: &UnixStream, status: u8, geometry: Geometry, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (calls, answers) = geometry.bits();
    let [high, low] = VERSION.to_be_bytes();
    let [m0, m1, m2, m3] = MAGIC;
    let greeting: [u8; GREETING] = [m0, m1, m2, m3, high, low, status, calls, answers, 0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(bell, &[IoSlice::new(&greeting)], &mut control, flags)?;
    if sent == GREETING { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The application's side: comes in through the door at this path, if root or this user is behind it.
pub(crate) fn enter(path: &Path) -> io::Result<(Link, Geometry)> {
    trust::check_directory(path)?;
    let bell = UnixStream::connect(path)?;
    trust::check_server(&bell)?;
    let (greeting, file) = hear(&bell)?;
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let [m0, m1, m2, m3, high, low, status, calls, answers, _] = greeting;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(wrong("what is there is no stack server".into()));
    }
    let version = u16::from_be_bytes([high, low]);
    if version != VERSION {
        return Err(wrong(format!("the server speaks version {version}: {VERSION} was expected")));
    }
    if status != WELCOME {
        let what = "the server has as many applications as it takes";
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
    }
    let geometry = Geometry::new(calls, answers)
        .ok_or_else(|| wrong(format!("rings of 2^{calls} and 2^{answers} words")))?;
    let file = file.ok_or_else(|| wrong("the server has given no memory".into()))?;
    Ok((Link::new(Memory::open(file.as_fd(), geometry.words())?, bell), geometry))
}

fn hear(bell: &UnixStream) -> io::Result<([u8; GREETING], Option<OwnedFd>)> {
    let mut greeting = [0; GREETING];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = loop {
        match recvmsg(bell, &mut [IoSliceMut::new(&mut greeting)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes != GREETING {
        let what = "the server ended the session before it began";
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((greeting, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rung;
    use casemate_rings::{Answer, Answerer, Call, Caller, Handle, Tag, Transport};
    use casemate_scratch::Scratch;
    use std::sync::atomic::Ordering;

    fn geometry() -> Geometry {
        Geometry::new(8, 8).unwrap()
    }

    #[test]
    fn who_enters_has_memory_in_common_with_the_server() {
        let scratch = Scratch::new("door");
        let path = scratch.file("socket");
        let door = Door::open(&path, 0o600).unwrap();
        assert!(door.next().unwrap().is_none());
        let inside = path.clone();
        let application = std::thread::spawn(move || enter(&inside).unwrap());
        let visitor = wait(&door);
        assert_eq!(visitor.pid, std::process::id().cast_signed());
        let server = visitor.welcome(geometry()).unwrap();
        let (application, known) = application.join().unwrap();
        assert_eq!(known, geometry());
        let mut caller = Caller::new(application, known).unwrap();
        let mut answerer = Answerer::new(server, known).unwrap();
        caller.call(Tag(1), &Call::Close { socket: Handle(0) }, &[]).unwrap();
        assert_eq!(answerer.call().unwrap().unwrap().tag, Tag(1));
        answerer.pass().unwrap();
        answerer.answer(Tag(1), Ok(Answer::Done), &[]).unwrap();
        assert_eq!(caller.answer().unwrap().unwrap().answer, Ok(Answer::Done));
        assert_eq!(answerer.transport().hush(), Rung::Alive);
        drop(caller);
        assert_eq!(answerer.transport().hush(), Rung::Ended);
        answerer.transport().ring();
        assert!(Door::open(&path, 0o600).is_err(), "it is in use");
        drop(door);
        assert!(!path.exists());
    }

    fn wait(door: &Door) -> Visitor {
        (0..1_000)
            .find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                door.next().unwrap()
            })
            .unwrap()
    }

    #[test]
    fn who_is_sent_away_knows_why() {
        let scratch = Scratch::new("door");
        let path = scratch.file("socket");
        let door = Door::open(&path, 0o600).unwrap();
        let inside = path.clone();
        let application = std::thread::spawn(move || enter(&inside).err().unwrap());
        wait(&door).send_away(geometry());
        assert_eq!(application.join().unwrap().kind(), io::ErrorKind::QuotaExceeded);
        let inside = path.clone();
        let application = std::thread::spawn(move || enter(&inside).err().unwrap());
        drop(wait(&door));
        assert_eq!(application.join().unwrap().kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn a_bell_that_nobody_hears_does_not_block() {
        let (one, other) = UnixStream::pair().unwrap();
        // As the other process could do to what both have open; a socket is open for each of them alone.
        other.set_nonblocking(false).unwrap();
        let (memory, _file) = Memory::create(geometry().words()).unwrap();
        let link = Link::new(memory, one);
        for _ in 0..100_000 {
            link.ring();
        }
        assert_eq!(link.memory()[0].load(Ordering::Relaxed), 0);
        assert_eq!(crate::link::hush(&other), Rung::Alive);
    }
}
