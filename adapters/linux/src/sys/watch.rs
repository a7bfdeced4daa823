//! Waiting for many descriptors again and again (epoll(7)): what is waited for is told the kernel once.

use super::{check, millis};
use libc::{c_int, epoll_event};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Descriptors that are told about in one wait. Who is left out is told about in the next.
const AT_ONCE: usize = 32;

/// `struct __kernel_timespec`, which is the same on all processors.
#[repr(C)]
struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

/// Descriptors that are waited for, each with a number, which may be that of others, too.
#[derive(Debug)]
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// Waits for these to be readable.
    pub(crate) fn over<'f>(fds: impl Iterator<Item = (usize, BorrowedFd<'f>)>) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        for (number, fd) in fds {
            let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
            // SAFETY: `event` is a valid epoll_event for the call, which keeps no pointer to it. A descriptor that is closed later
            // leaves the set by itself.
            check(unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
            })?;
        }
        Ok(Self(epoll))
    }

    /// Waits until one can be read, or `timeout` is over, and sets the place of the number of each that can
    /// be read. A signal ends the wait early.
    pub(crate) fn wait(&self, ready: &mut [bool], timeout: Duration) -> io::Result<()> {
        let mut events = [epoll_event { events: 0, u64: 0 }; AT_ONCE];
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
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let number = usize::try_from(event.u64).unwrap_or(usize::MAX);
            if let Some(ready) = ready.get_mut(number) {
                *ready = true;
            }
        }
        Ok(())
    }

    /// Dummy packets leave when a wait is over: whole milliseconds would tell them from real ones.
    fn wait_exactly(&self, events: &mut [epoll_event; AT_ONCE], timeout: Duration) -> io::Result<c_int> {
        let timeout = KernelTime {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: timeout.subsec_nanos().into(),
        };
        let signals: *const libc::sigset_t = ptr::null();
        // SAFETY: `events` is a valid array of that many epoll_event and `timeout` a valid time for the whole
        // call. Without a signal mask its size is not looked at.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                AT_ONCE as c_int,
                ptr::from_ref(&timeout),
                signals,
                0_usize,
            )
        };
        // No more than AT_ONCE.
        check(count as c_int)
    }

    /// Before Linux 5.11.
    #[cold]
    fn wait_in_millis(&self, events: &mut [epoll_event; AT_ONCE], timeout: Duration) -> io::Result<c_int> {
        // SAFETY: `events` is a valid array of that many epoll_event for the whole call.
        check(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), AT_ONCE as c_int, millis(timeout))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn tells_which_can_be_read() {
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let numbered = [0, 1, 2, 1].into_iter().zip(pairs.iter().map(|(here, _)| here.as_fd()));
        let watch = Watch::over(numbered).unwrap();
        let wait = |limit| {
            let mut ready = [false; 3];
            watch.wait(&mut ready, Duration::from_millis(limit)).unwrap();
            ready
        };
        assert_eq!(wait(1), [false; 3]);
        (&pairs[3].1).write_all(b"x").unwrap();
        assert_eq!(wait(1_000), [false, true, false]);
        (&pairs[2].1).write_all(b"x").unwrap();
        assert_eq!(wait(1_000), [false, true, true], "and again, as long as nobody has read");
    }

    /// Dummy packets that leave a whole number of milliseconds apart would be known by that.
    #[test]
    fn a_wait_is_no_whole_number_of_milliseconds() {
        let (here, _there) = UnixStream::pair().unwrap();
        let watch = Watch::over([(0, here.as_fd())].into_iter()).unwrap();
        let limit = Duration::from_micros(300);
        let took = |_| {
            let start = std::time::Instant::now();
            watch.wait(&mut [false], limit).unwrap();
            start.elapsed()
        };
        // A machine that is busy elsewhere makes some of them longer.
        let shortest = (0..200).map(took).min().unwrap();
        assert!((limit..limit * 3).contains(&shortest), "{shortest:?}");
    }
}
