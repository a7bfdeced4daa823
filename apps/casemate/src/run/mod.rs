//! `casemate run`: checks the configuration, sets up the system, moves packets, and undoes the setup at
//! the end.
//!
//! Nothing in the system changes until the whole configuration has been found valid. `start` contains the
//! steps of every run. With manual keys, `manual` determines the direction of each SA and
//! `datapath_builder` makes the data path. With IKE, `ike` makes an endpoint that adds and removes policies
//! at run time. [`casemate_linux::setup`] plans the changes to the system, and `controller` handles control
//! requests and events while the engine runs.

mod controller;
mod datapath_builder;
mod description;
mod ike;
mod key_log;
mod manual;
mod radius;
mod reload;
mod start;
mod vici;

use crate::failure::Failure;
use crate::log::LogOptions;
use crate::metrics::MetricsAddress;
use crate::output;
use crate::vici::DEFAULT_SOCKET;
use casemate_linux::instance::Instance;
use casemate_linux::journal::{self, CleanUp, Leftovers};
use casemate_linux::{nft, sandbox};
use clap::Args;
use start::{RunMode, SharedLeftovers};
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::sync::PoisonError;

const RUN_EXAMPLES: &str = "\
Examples:
  casemate run                                      /etc/casemate/swanctl.conf or /etc/swanctl/swanctl.conf
  casemate run --config gw/swanctl.conf --dry-run   load all certificates and keys, change nothing
  casemate run --vici                               swanctl and other programs load the configuration
  casemate run --metrics unix:/run/casemate/metrics serve metrics for Prometheus on a Unix socket
  casemate run --xfrm tunnel.xfrm --dry-run         show routes, rules and sockets, change nothing
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters --dummy-packets 20

Errors in the file are shown as `file:line: problem: what was expected`. A file with an error changes nothing.

Counter-mode ciphers (GCM, CCM, CTR, GMAC, ChaCha20-Poly1305) must never use an IV twice with the same key.
Manual keys stay the same when the program restarts. SAs with such ciphers are therefore refused unless
--counters names a file that keeps their counters across restarts.";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Connections in the format of swanctl.conf(5) [default: /etc/casemate/swanctl.conf, then
    /// /etc/swanctl/swanctl.conf]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["xfrm", "counters", "dummy_packets"])]
    pub config: Option<PathBuf>,
    /// Serve clients of strongSwan's interface vici, such as swanctl, on this Unix socket. Without --config,
    /// they load the whole configuration.
    #[arg(long, value_name = "SOCKET", conflicts_with = "xfrm", num_args = 0..=1)]
    #[arg(default_missing_value = DEFAULT_SOCKET)]
    pub vici: Option<PathBuf>,
    /// Serve metrics for Prometheus on this Unix socket (unix:/PATH) or loopback port (127.0.0.1:PORT).
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<MetricsAddress>,
    /// Manual keys instead of IKE: states and policies as lines of ip-xfrm(8)
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
    /// Save the keys of all SAs in this directory in Wireshark's formats. Anyone who has them can decrypt
    /// all traffic.
    #[arg(long, value_name = "DIR", conflicts_with = "xfrm")]
    pub save_keys: Option<PathBuf>,
    /// File that keeps the sequence numbers of counter-mode SAs across restarts.
    #[arg(long, value_name = "FILE", requires = "xfrm")]
    pub counters: Option<PathBuf>,
    /// Show the changes to the system without making them.
    #[arg(long)]
    pub dry_run: bool,
    /// Send this many dummy packets per second through each outbound ESP SA, on average.
    ///
    /// Dummy packets hide the times and the number of real packets (RFC 4303 section 2.6). They have
    /// random times and lengths, and the peer discards them. An SA nested inside another SA gets none.
    #[arg(long, value_name = "PER_SECOND", requires = "xfrm")]
    pub dummy_packets: Option<NonZeroU16>,
    /// Name of the TUN interface.
    #[arg(long, value_name = "NAME", default_value = "casemate0")]
    pub tun: String,
    /// Maximum number of threads that process packets [default: one per processor, at most four].
    ///
    /// One thread works alone while it can keep up. When packets queue, further threads join in;
    /// otherwise they sleep. All threads serve the same SAs, and packets keep their order.
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,
    /// Format and level of the log.
    #[command(flatten)]
    pub log: LogOptions,
}

impl RunArgs {
    /// The maximum number of threads that process packets.
    pub fn threads(&self) -> NonZeroUsize {
        let four = NonZeroUsize::MIN.saturating_add(3);
        let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.threads.unwrap_or_else(|| processors().min(four))
    }
}

/// The only argument of the internal process that applies nftables scripts for an instance.
pub(crate) const NFT_RUNNER: &str = "internal-nft-runner";

/// Runs the internal nftables process until its parent ends.
pub(crate) fn nft_runner() -> Result<(), Failure> {
    nft::run_script_server().map_err(Failure::failed)
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    // Before any key is in memory.
    if !args.dry_run {
        sandbox::protect_memory().map_err(Failure::failed)?;
    }
    let mode = RunMode::load(args)?;
    let mut leftovers = None;
    let result = start::start(mode, args, &mut leftovers);
    // The journal was dropped, so the leftovers are final.
    result.map_err(|failure| with_leftovers(failure, leftovers))
}

/// Adds the state of the guard and of the setup to an error message.
fn with_leftovers(failure: Failure, leftovers: SharedLeftovers) -> Failure {
    let leftovers =
        leftovers.map(|leftovers| leftovers.lock().unwrap_or_else(PoisonError::into_inner).clone());
    match leftovers.unwrap_or_default() {
        Leftovers::Nothing => failure,
        Leftovers::GuardStands => {
            failure.with_line("protected traffic stays blocked until `casemate run` or `casemate cleanup`")
        }
        Leftovers::GuardMissing(reason) => failure.with_line(&format!(
            "the guard is not installed ({reason}): protected traffic leaves in clear until `casemate run`"
        )),
        Leftovers::UndoFailed(error) => {
            let next = "the change stays until `casemate run` or `casemate cleanup`";
            let is_included = failure.reason().contains(&error);
            failure.with_line(&if is_included { next.into() } else { format!("{error}\n{next}") })
        }
    }
}

const CLEANUP_EXAMPLES: &str = "\
Examples:
  casemate cleanup                  after a crash, if Casemate is not started again
  casemate cleanup --tun ipsec1

A run that is killed or ends with an error leaves its guard in place, so that protected traffic cannot leave
in clear. The next `casemate run` with the same --tun takes the guard over. This command removes the guard:
from then on, the traffic flows in clear.";

/// Arguments of `cleanup`.
#[derive(Debug, Args)]
#[command(after_help = CLEANUP_EXAMPLES)]
pub struct CleanupArgs {
    /// TUN interface of the run.
    #[arg(long, value_name = "NAME", default_value = "casemate0")]
    pub tun: String,
}

/// Runs `casemate cleanup`. It fails if the instance is running, or if something may be left.
pub(crate) fn cleanup(args: &CleanupArgs) -> Result<(), Failure> {
    let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
    let CleanUp { removed, problem } = journal::clean_up(&instance).map_err(Failure::failed)?;
    let lines: String = removed.iter().map(|what| format!("removed: {what}\n")).collect();
    match problem {
        Some(problem) => output::print(&lines).and(Err(Failure::failed(problem))),
        None if removed.is_empty() => output::print("nothing to clean up\n"),
        None => output::print(&lines),
    }
}
