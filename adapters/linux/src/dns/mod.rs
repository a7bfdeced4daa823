//! Name servers that peers have assigned, and how this host uses them.
//!
//! ```text
//!  IKE events -> tunnels: which servers, for which names -> applier: journal, then a request to the runner
//!             -> runner (a process): managers (their programs) or resolv_conf (the file)
//! ```
//!
//! The engine's process may not start programs, so a process of its own changes the name servers
//! (`runner`). It starts before the sandbox, and only if a connection may need it. Each
//! change is in the journal before it is made. docs/decisions/0114-name-servers.md has the reasons.

mod applier;
mod managers;
mod method;
mod request;
mod resolv_conf;
mod tunnels;

pub(crate) use applier::NameServers;
pub use method::{DnsMethod, DnsMode};
pub use request::{DnsHandle, DnsTarget};

use crate::{Error, sandbox};
use casemate_ike::config::DomainName;
use resolv_conf::ResolvConf;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// Name servers, and the names for which this host asks them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsSettings {
    /// Name servers, the preferred one first. Each is reached through a tunnel.
    pub servers: Vec<IpAddr>,
    /// Domains for which they are asked.
    pub domains: Vec<DomainName>,
    /// Whether they are asked for all other names, too, in place of the servers of the local network.
    pub all_names: bool,
}

impl fmt::Display for DnsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |texts: Vec<String>| texts.join(" ");
        let names = match (self.all_names, &*self.domains) {
            (true, _) => "all names".to_owned(),
            (false, domains) => join(domains.iter().map(ToString::to_string).collect()),
        };
        write!(f, "{} for {names}", join(self.servers.iter().map(ToString::to_string).collect()))
    }
}

/// What this host does with the name servers of peers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsState {
    /// Settings that are in use, and how they were set; `None` if there are none.
    pub applied: Option<(DnsMethod, DnsSettings)>,
    /// Why name servers of a peer are not in use, one reason each.
    pub unused: Vec<String>,
}

/// Restores what a former run has left in /etc/resolv.conf, also before a reboot. Does nothing if a live
/// process has changed the file. Returns what the user should know.
pub fn restore_former() -> Result<Option<String>, Error> {
    ResolvConf::of_system().restore_former()
}

/// Main loop of the process that changes name servers for its parent.
pub fn run_dns_server() -> Result<(), Error> {
    let mut changer = request::Changer::default();
    crate::runner::serve(sandbox::keep_for_dns, |request| changer.handle(request))
}

/// Directory of the files that the resolver of the C library reads.
const ETC: &str = "/etc";

fn etc() -> &'static Path {
    Path::new(ETC)
}
