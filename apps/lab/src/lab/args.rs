//! Arguments of `lab`.

use casemate_app::stack::args::interface_address;
use casemate_lab::streams::relay::Wiring;
use clap::{Args, Subcommand};
use smoltcp::wire::IpCidr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  casemate lab list                        list the experiments and what this machine lacks for them
  casemate lab run streams --quick         run the short form of one experiment
  casemate lab run streams --out results   run the full form and write the results to the directory `results`
  casemate lab report results              regenerate the page from the results

Each experiment reproduces an experiment of a paper on IPsec with this program on this machine, and compares
the results with those of the paper. The results are written as JSON with every sample, and as a page,
report.html, that a browser shows without network access.

Most experiments create network namespaces and TUN interfaces, which needs root. The experiments change
nothing else on the machine.";

const RUN_EXAMPLES: &str = "\
Examples:
  casemate lab run streams
  casemate lab run streams --quick --out results
  casemate lab run streams --json | jq '.parts[].findings[] | select(.agreement == \"differs\")'

The full form of an experiment takes up to five minutes, the short form up to a minute. Parts that this
machine cannot run are skipped and reported. Run nothing else at the same time: the page reports a noisy
machine.

`bare` boots two machines under QEMU. Before the time of the experiment starts, it builds the firmware with
cargo in the checkout that contains this program or the working directory, and downloads Debian's kernel with
apt-get to /var/cache/casemate. Environment variables replace them: CASEMATE_FIRMWARE names an image that
`cargo xtask firmware` has built, and CASEMATE_GUEST_KERNEL a directory with boot/vmlinuz-* and lib/modules of
a Linux kernel. An empty variable leaves the machine out.

`embedded` also measures lwIP, and counts instructions on an emulated Raspberry Pi. In the same way, it builds
the program with lwIP unless casemate-lwip is next to casemate or in the PATH, and the image for the Raspberry
Pi. CASEMATE_LWIP and CASEMATE_PI name files that `cargo xtask lwip --example` and `cargo xtask pi` have
built.

Exit status: 0 done, even if parts were skipped; 1 a part failed.";

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
    /// List the experiments and the requirements that this machine lacks.
    List(ListArgs),
    /// Run experiments and write their results and a page that shows them.
    Run(LabRunArgs),
    /// Regenerate the page from the results in a directory.
    Report(ReportArgs),
    /// Relay that `streams` starts in its network namespaces.
    #[command(hide = true)]
    Relay(RelayArgs),
    /// Web server that `bare` starts for Linux.
    #[command(hide = true)]
    Page,
    /// Device that `embedded` starts.
    #[command(hide = true)]
    Device(DeviceArgs),
}

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct LabRunArgs {
    /// Names of experiments from `casemate lab list`.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Run the short form, with fewer and shorter repetitions.
    #[arg(long)]
    pub quick: bool,
    /// Directory for the results, which is created if it does not exist [default:
    /// lab-results/NAME-DATE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as one JSON object per line instead of a summary.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directory that `casemate lab run` wrote.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `lab relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// End of the link, 0 or 1.
    #[arg(long)]
    pub end: usize,
    /// Connection between modules: functions or queues.
    #[arg(long)]
    pub wiring: Wiring,
    /// States and policies as lines of ip-xfrm(8). Without a file the modules do nothing.
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
}

/// Arguments of `lab device`.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Run only the application, over a stack server.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["tap", "address"])]
    pub socket: Option<PathBuf>,
    /// TAP interface of the stack in this program.
    #[arg(long, value_name = "NAME", required_unless_present = "socket")]
    pub tap: Option<String>,
    /// Address of the stack with prefix length.
    #[arg(long, value_name = "ADDRESS/LEN", required_unless_present = "socket", value_parser = interface_address)]
    pub address: Option<IpCidr>,
    /// Run the stack without IPsec.
    #[arg(long, conflicts_with_all = ["xfrm", "config"])]
    pub unguarded: bool,
    /// States and policies as lines of ip-xfrm(8). Without this file and a configuration, all traffic
    /// passes in clear.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub xfrm: Option<PathBuf>,
    /// Connections in the format of swanctl.conf(5).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Lose this share of the frames in each direction, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        conflicts_with_all = ["config", "socket"],
        value_parser = clap::value_parser!(u8).range(..=100)
    )]
    pub lose: Option<u8>,
    /// Set the connection up this many times and print the time of each handshake.
    #[arg(long, value_name = "COUNT", requires = "config", default_value_t = 0)]
    pub handshakes: u32,
}
