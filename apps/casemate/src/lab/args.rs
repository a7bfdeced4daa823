//! Arguments of `lab`.

use crate::cli::own_address;
use casemate_lab::streams::relay::Wiring;
use clap::{Args, Subcommand};
use smoltcp::wire::IpCidr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  casemate lab list                      what there is, and what of it this machine can do
  casemate lab run streams --quick       one experiment, its short form
  casemate lab run streams --out seen    the full form, with its results in the directory `seen`
  casemate lab report seen               make the page anew from the results

Each experiment of a paper on IPsec is done again, with this program, on this machine, and set beside what the paper says.
Results are written as JSON with every sample, and shown on a page, report.html, that a browser opens without a network.

Most experiments make network namespaces and TUN interfaces of their own, which takes root. Nothing else on the machine is touched.";

const RUN_EXAMPLES: &str = "\
Examples:
  casemate lab run streams
  casemate lab run streams --quick --out seen
  casemate lab run streams --json | jq '.parts[].findings[] | select(.agreement == \"differs\")'

The full form of an experiment takes up to five minutes, the short form up to 45 seconds. What this machine cannot do is left out, and
said to be, and the rest is done. Let nothing else run meanwhile: the page says when the machine was noisy.

`bare` boots two machines under QEMU if the environment says where they are: CASEMATE_FIRMWARE names the image that `cargo xtask firmware`
builds, CASEMATE_GUEST_KERNEL a directory with boot/vmlinuz-* and lib/modules of a Linux kernel. `embedded` counts instructions on an
emulated Raspberry Pi if CASEMATE_PI names the image that `cargo xtask pi` builds.

Exit status: 0 done, also where something was missing; 1 something that was tried went wrong.";

/// Arguments of `lab`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Show the experiments, and what this machine lacks for them.
    List(ListArgs),
    /// Do experiments, and write their results and a page that shows them.
    Run(RunArgs),
    /// Make the page anew from the results in a directory.
    Report(ReportArgs),
    /// What `streams` starts in its network namespaces.
    #[command(hide = true)]
    Relay(RelayArgs),
    /// The web server that `bare` starts for Linux.
    #[command(hide = true)]
    Page,
    /// What `embedded` starts as the device.
    #[command(hide = true)]
    Device(DeviceArgs),
}

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Names, as `casemate lab list` shows them.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// The short form: fewer repetitions, and shorter ones.
    #[arg(long)]
    pub quick: bool,
    /// Directory for the results; it is made if it is not there [default: casemate-lab/NAME-DATE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results too, one JSON object a line, instead of what they come to.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A directory that `casemate lab run` wrote.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `lab relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// Which end of the link this is, 0 or 1.
    #[arg(long)]
    pub end: usize,
    /// How modules are joined: functions or queues.
    #[arg(long)]
    pub wiring: Wiring,
    /// States and policies, as lines of ip-xfrm(8). Without them the modules do nothing.
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
}

/// Arguments of `lab device`.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// The application alone, over a stack server.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["tap", "address"])]
    pub socket: Option<PathBuf>,
    /// TAP interface of the stack in this program.
    #[arg(long, value_name = "NAME", required_unless_present = "socket")]
    pub tap: Option<String>,
    /// Its address, with the length of its network.
    #[arg(long, value_name = "ADDRESS/LEN", required_unless_present = "socket", value_parser = own_address)]
    pub address: Option<IpCidr>,
    /// No IPsec in the stack at all.
    #[arg(long, conflicts_with_all = ["xfrm", "config"])]
    pub unguarded: bool,
    /// States and policies, as lines of ip-xfrm(8). Without them, and without a configuration, everything passes in clear.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub xfrm: Option<PathBuf>,
    /// Connections, as in swanctl.conf(5).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sets this connection up so many times, one after the other, and says how long each took.
    #[arg(long, value_name = "COUNT", requires = "config", default_value_t = 0)]
    pub handshakes: u32,
}
