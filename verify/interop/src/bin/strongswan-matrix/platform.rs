//! Platform of a side, on which its peer runs and its traffic starts: a namespace of the host, a guest with
//! its own kernel, or a device with its own stack.

mod firmware;
mod guest;
mod namespace;
mod tap;

pub(crate) use firmware::FirmwarePlatform;
pub(crate) use guest::Guests;
pub(crate) use namespace::NamespacePlatform;
pub(crate) use tap::DevicePlatform;

use crate::side::{Family, Side};
use crate::xfrm::Xfrm;
use casemate_interop::{Netns, Output, Result};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Limit for a program that ends by itself.
const RUN_LIMIT: Duration = Duration::from_secs(20);
const START_LIMIT: Duration = Duration::from_secs(15);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Program to run, with its environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) path: &'a Path,
    /// Names of environment variables, with the files that they refer to.
    pub(crate) environment: &'a [(&'a str, &'a Path)],
}

/// One of the two ends of the path.
pub(crate) trait Platform {
    /// Connects the platform to the router. The interface name in the router is that of `path::interface`.
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()>;

    /// Configures the addresses and routes of the platform, after those of the router. State of earlier
    /// cases is removed.
    fn bring_up(&self) -> Result<()>;

    /// Disconnects devices that must outlive the router.
    fn disconnect(&self, router: &Netns);

    /// Runs `probe ARGUMENTS` to its end, or an equivalent.
    fn probe(&self, arguments: &[&str]) -> Result<Output>;

    /// Starts `probe flow`.
    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn Flow>>;

    /// Returns the SAs of the kernel on the platform; `None` if the kernel does not process ESP.
    fn xfrm(&self) -> Result<Option<Xfrm>>;
}

/// Platform that runs programs.
pub(crate) trait ProgramHost: Platform {
    /// Makes the files below a directory available on the platform at the same paths.
    fn copy_files(&self, directory: &Path) -> Result<()>;

    /// Returns the contents of a file on the platform, or an empty string if the file does not exist.
    fn read(&self, file: &Path) -> String;

    /// Runs a program to its end.
    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output>;

    /// Starts a daemon and waits until the Unix socket `socket` accepts connections. The output of the
    /// program goes to the file `output`, in the directory of its other files.
    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>>;
}

/// Daemon that runs until it is stopped or dropped.
pub(crate) trait Daemon {
    /// Stops the daemon with SIGTERM. Returns an error if its exit status is not 0.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Flow of echo requests at a constant rate. It ends when the value is dropped.
pub(crate) trait Flow {
    /// Ends the flow and returns the result that `probe flow` prints.
    fn stop(self: Box<Self>) -> Result<String>;
}

/// IP versions with their prefix lengths on the wire.
pub(crate) const FAMILIES: [(Family, u8); 2] = [(Family::V4, 24), (Family::V6, 64)];

/// Returns lines of `ip -batch` that configure the addresses of a platform, on `wire` and on the loopback
/// interface, and its routes.
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

/// Returns a line that brings an interface up with a fixed link-local address, which neighbor discovery
/// needs. For an address that the kernel generates, the kernel would run duplicate address detection.
pub(crate) fn up(interface: &str, address: &str) -> String {
    // In a single line, the kernel would bring the interface up first.
    format!(
        "link set dev {interface} addrgenmode none\nlink set dev {interface} up\n\
         addr add {address}/64 dev {interface} nodad\n"
    )
}

/// Option that disables duplicate address detection, which would delay the first packets.
pub(crate) fn no_dad(family: Family) -> &'static str {
    if family == Family::V6 { " nodad" } else { "" }
}
