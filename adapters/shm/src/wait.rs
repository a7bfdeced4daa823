//! Waiting for several things at a time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until one of the descriptors can be read, or has failed, or the time is over. Answers which, in their order. A signal
/// ends it early.
pub fn wait(descriptors: &[BorrowedFd<'_>], limit: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).unwrap_or_default();
    // If it fails nothing is ready, and the caller comes back.
    let _ = poll(&mut polled, Some(&limit));
    polled.iter().map(|polled| !polled.revents().is_empty()).collect()
}
