//! Where a peer runs and where the traffic of its side starts: a namespace of the host, a guest with a kernel of its own, or a
//! device with a stack of its own.

mod firmware;
mod guest;
mod namespace;
mod tap;

pub(crate) use firmware::OnQemu;
pub(crate) use guest::Guests;
pub(crate) use namespace::InNamespace;
pub(crate) use tap::OnTap;

use crate::side::{Family, Side};
use crate::xfrm::Xfrm;
use casemate_interop::{Netns, Output, Result};
use std::path::Path;
use std::time::Duration;

/// How long a program may take that comes to an end by itself.
const RUN_LIMIT: Duration = Duration::from_secs(20);
const START_LIMIT: Duration = Duration::from_secs(15);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A program to run, with its environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) path: &'a Path,
    /// Names of variables, and the files that they name.
    pub(crate) environment: &'a [(&'a str, &'a Path)],
}

/// One of the two ends of the path.
pub(crate) trait Place {
    /// Plugs the end into the router, where its interface is called as `path::interface` says.
    fn plug_into(&self, router: &Netns) -> Result<()>;

    /// Gives the end its addresses and routes, once the router has its own. Nothing of earlier cases is left there.
    fn bring_up(&self) -> Result<()>;

    /// Takes out what has to outlive the router.
    fn unplug(&self, router: &Netns);

    /// Runs `probe ARGUMENTS` to its end, or does what that would do.
    fn probe(&self, arguments: &[&str]) -> Result<Output>;

    /// Starts `probe flow`.
    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn Flow>>;

    /// What the kernel there says of its SAs; none where ESP is not the kernel's.
    fn xfrm(&self) -> Result<Option<Xfrm>>;
}

/// A place where programs run.
pub(crate) trait Host: Place {
    /// Makes the files below a directory known there, at the same paths.
    fn publish(&self, directory: &Path) -> Result<()>;

    /// A file as it is there; empty when it is not.
    fn read(&self, file: &Path) -> String;

    /// Runs a program to its end.
    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output>;

    /// Starts a program that serves, and waits until the Unix socket `socket` takes connections. What it prints goes to
    /// `output`, a file beside all that the program writes.
    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>>;
}

/// A program that serves until it is stopped; dropping it ends it.
pub(crate) trait Daemon {
    /// Ends it by SIGTERM. That it fails then is an error.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Echo requests at a steady pace; dropping it ends them.
pub(crate) trait Flow {
    /// Ends them and returns what `probe flow` says of them.
    fn stop(self: Box<Self>) -> Result<String>;
}

/// IP versions and how many bits of an address are its network's, on the wire.
pub(crate) const FAMILIES: [(Family, u8); 2] = [(Family::V4, 24), (Family::V6, 64)];

/// Lines of `ip -batch` that give an end its addresses, on `wire` and on the loopback interface, and its routes.
fn addresses(side: Side, wire: &str) -> String {
    let mut lines = up(wire, "fe80::2");
    for (family, bits) in FAMILIES {
        lines.push_str(&format!("addr add {}/{bits} dev {wire}{}\n", side.wire(family), no_dad(family)));
        lines.push_str(&format!("addr add {} dev lo{}\n", side.behind(family), no_dad(family)));
        lines.push_str(&format!("route add default via {}\n", side.router(family)));
    }
    lines.push_str(&format!("addr add {} dev lo\n", side.second()));
    lines
}

/// Brings an interface up with a link-local address of our own, which neighbour discovery needs: the kernel would look for
/// duplicates of one that it makes.
pub(crate) fn up(interface: &str, address: &str) -> String {
    // In one line, the kernel would bring it up first.
    format!(
        "link set dev {interface} addrgenmode none\nlink set dev {interface} up\n\
         addr add {address}/64 dev {interface} nodad\n"
    )
}

/// Duplicate address detection would delay the first packets.
pub(crate) fn no_dad(family: Family) -> &'static str {
    if family == Family::V6 { " nodad" } else { "" }
}
