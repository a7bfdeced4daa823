//! What tells the present network namespace from every other one.
//!
//! The number of its file (`/proc/self/ns/net`) is used again when the namespace has ended, and so does not do.
//! The kernel numbers namespaces once more and uses none of these numbers twice before it is started anew
//! (SO_NETNS_COOKIE, Linux 5.14); with the number of the start (`boot_id`) nothing is used twice at all.

use crate::sys;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::str::FromStr;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The first word of its line in a journal.
const WORD: &str = "namespace";

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    boot: String,
    cookie: u64,
}

impl Namespace {
    /// The one of the calling thread; `None` where the kernel does not say.
    pub(crate) fn present() -> Option<Self> {
        let boot = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        let socket = UnixDatagram::unbound().ok()?;
        Some(Self { boot, cookie: sys::netns_cookie(socket.as_fd()).ok()? })
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {} {}", self.boot, self.cookie)
    }
}

impl FromStr for Namespace {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            [WORD, boot, cookie] => {
                Ok(Self { boot: (*boot).into(), cookie: cookie.parse().map_err(|_| ())? })
            }
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    #[test]
    fn namespaces_differ_and_stay_what_they_are() {
        let Some(here) = Namespace::present() else {
            return casemate_left_out::note("SO_NETNS_COOKIE: this kernel has none");
        };
        assert_eq!(here.to_string().parse(), Ok(here.clone()));
        assert_eq!(Namespace::present().as_ref(), Some(&here));
        for line in ["", "namespace", "namespace x", "namespace x y", "namespace x 1 2", "guard x 1"] {
            assert!(line.parse::<Namespace>().is_err(), "{line}");
        }
        let Some(netns) = Netns::new().map_err(casemate_left_out::note).ok() else { return };
        assert_ne!(netns.run(Namespace::present).unwrap(), Some(here));
    }
}
