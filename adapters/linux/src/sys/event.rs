//! Events and waiting for them: eventfd(2), and epoll(7) for many descriptors.

use super::{check, check_count, millis};
use casemate_wire::invariant::OrBroken;
use libc::{c_int, epoll_event};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// An event that one thread signals and another one waits for. Readable from the first signal until it is
/// cleared.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    /// Creates an event that is not signalled.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Signals the event.
    pub(crate) fn signal(&self) {
        // Fails only after 2^64 signals without a `clear`, and then the event is signalled.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Clears the event.
    pub(crate) fn clear(&self) {
        // Fails only if the event is not signalled.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Events returned by one wait, at most. The next wait returns the others.
const MAX_EVENTS: usize = 32;

/// `struct __kernel_timespec`, which is the same on all processors.
#[repr(C)]
struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

/// A descriptor to wait for. Several descriptors may have the same number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedFd<'f> {
    /// Identifies the descriptor in the result of [`Epoll::wait`].
    pub(crate) number: usize,
    pub(crate) fd: BorrowedFd<'f>,
}

/// A set of descriptors, each with a number.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// Creates a set that waits for these descriptors to become readable.
    pub(crate) fn new<'f>(fds: impl Iterator<Item = NumberedFd<'f>>) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let epoll = Self(epoll);
        let mut fds = fds;
        fds.try_for_each(|fd| epoll.add(fd))?;
        Ok(epoll)
    }

    /// Adds a descriptor.
    pub(crate) fn add(&self, NumberedFd { number, fd }: NumberedFd<'_>) -> io::Result<()> {
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
        // SAFETY: `event` is a valid epoll_event for the call, which keeps no pointer to it. A descriptor
        // that is closed later leaves the set.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }

    /// Removes a descriptor.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: this operation needs no event.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), ptr::null_mut())
        })?;
        Ok(())
    }

    /// The number of one readable descriptor, or `None`. Does not wait. Of several readable ones, each gets
    /// its turn.
    pub(crate) fn next_ready(&self) -> io::Result<Option<usize>> {
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` is an array of one epoll_event for the whole call.
        let count = check_count(unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, 0) });
        match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            count => Ok(if count? > 0 { usize::try_from(event.u64).ok() } else { None }),
        }
    }

    /// Waits until a descriptor is readable or `timeout` is over. Sets the element of `ready` at the number
    /// of each readable one; there must be an element for each number. A signal ends the wait early.
    pub(crate) fn wait(&self, ready: &mut [bool], timeout: Duration) -> io::Result<()> {
        let mut events = [epoll_event { events: 0, u64: 0 }; MAX_EVENTS];
        let count = match self.wait_exactly(&mut events, timeout) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                self.wait_in_millis(&mut events, timeout)
            }
            result => result,
        };
        let count = match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            count => count?,
        };
        for event in events.iter().take(count) {
            let number = usize::try_from(event.u64).ok();
            let ready = number.and_then(|number| ready.get_mut(number));
            if let Some(ready) = ready.or_report("the caller has an element for each number") {
                *ready = true;
            }
        }
        Ok(())
    }

    /// Waits with microsecond resolution. Dummy packets are sent when a wait is over, and whole milliseconds
    /// would distinguish them from real packets.
    fn wait_exactly(&self, events: &mut [epoll_event; MAX_EVENTS], timeout: Duration) -> io::Result<usize> {
        let timeout = KernelTime {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: timeout.subsec_nanos().into(),
        };
        let signals: *const libc::sigset_t = ptr::null();
        // SAFETY: `events` is a valid array of that many epoll_event and `timeout` a valid time for the whole
        // call. Without a signal mask the kernel ignores its size.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                MAX_EVENTS as c_int,
                ptr::from_ref(&timeout),
                signals,
                0_usize,
            )
        };
        // At most MAX_EVENTS.
        check_count(count as c_int)
    }

    /// Fallback for kernels before Linux 5.11.
    #[cold]
    fn wait_in_millis(&self, events: &mut [epoll_event; MAX_EVENTS], timeout: Duration) -> io::Result<usize> {
        // SAFETY: `events` is a valid array of that many epoll_event for the whole call.
        check_count(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), MAX_EVENTS as c_int, millis(timeout))
        })
    }
}

impl AsFd for Epoll {
    /// Readable while a descriptor of the set is.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::poll_readable;
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn reports_the_readable_descriptors() {
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let numbered = [0, 1, 2, 1].into_iter().zip(&pairs);
        let numbered = numbered.map(|(number, (here, _))| NumberedFd { number, fd: here.as_fd() });
        let epoll = Epoll::new(numbered).unwrap();
        let wait = |limit| {
            let mut ready = [false; 3];
            epoll.wait(&mut ready, Duration::from_millis(limit)).unwrap();
            ready
        };
        assert_eq!(wait(1), [false; 3]);
        (&pairs[3].1).write_all(b"x").unwrap();
        assert_eq!(wait(1_000), [false, true, false]);
        (&pairs[2].1).write_all(b"x").unwrap();
        assert_eq!(wait(1_000), [false, true, true], "reported again until it is read");
    }

    /// Dummy packets sent at whole milliseconds could be recognized.
    #[test]
    fn a_wait_has_microsecond_resolution() {
        let (here, _there) = UnixStream::pair().unwrap();
        let epoll = Epoll::new([NumberedFd { number: 0, fd: here.as_fd() }].into_iter()).unwrap();
        let limit = Duration::from_micros(300);
        let took = |_| {
            let start = std::time::Instant::now();
            epoll.wait(&mut [false], limit).unwrap();
            start.elapsed()
        };
        // A busy machine makes some waits longer.
        let shortest = (0..200).map(took).min().unwrap();
        assert!((limit..limit * 3).contains(&shortest), "{shortest:?}");
    }

    #[test]
    fn readable_until_it_is_cleared() {
        let event = EventFd::new().unwrap();
        let is_signalled = || {
            let mut ready = [false];
            poll_readable(&[event.as_fd()], &mut ready, Duration::ZERO).unwrap();
            ready[0]
        };
        assert!(!is_signalled());
        event.signal();
        event.signal();
        assert!(is_signalled());
        event.clear();
        assert!(!is_signalled());
        event.clear();
    }
}
