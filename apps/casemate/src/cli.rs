//! The command line: every command, its arguments, and help that teaches by example.

use crate::advise::args::AdviseArgs;
use crate::calls::args::CallsArgs;
use crate::lab::args::LabArgs;
use crate::stack::GrantRule;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use smoltcp::wire::{EthernetAddress, IpCidr};
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  casemate demo                                      see it work: two hosts, a tunnel, real HTTP and ping
  casemate run --xfrm tunnel.xfrm --dry-run          show what a file would set up
  casemate run --xfrm tunnel.xfrm --counters state   set it up, until Ctrl-C; `state` keeps counters across restarts
  casemate run --config swanctl.conf                 keys negotiated with IKEv2; strongSwan's configuration works as it is
  casemate initiate gw                               set up what the connection `gw` says
  casemate status                                    SAs, policies, counters and drops of the running instance
  casemate stack --tap tap0 --address 192.0.2.1/24   a TCP/IP stack behind IPsec, for applications that share memory with it
  casemate inspect wire.pcapng --xfrm tunnel.xfrm    decrypt a capture and say why packets would be dropped
  casemate calls --line 2M                           how many calls a line carries, and how they sound
  casemate advise                                    which settings to use on this device, because of measurements
  casemate lab run streams --quick                   an experiment of a paper on IPsec, done again on this machine

The file holds lines of ip-xfrm(8), so that it also loads into a Linux kernel with `ip -batch` or `sh`:
  ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \\
      aead 'rfc4106(gcm(aes))' 0x5f0e...(40 digits) 128
  ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out \\
      tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel

Exit status: 0 success, 1 failure, 2 wrong arguments or wrong input.";

const RUN_EXAMPLES: &str = "\
Examples:
  casemate run                                                   /etc/casemate/swanctl.conf, or /etc/swanctl/swanctl.conf
  casemate run --config gw/swanctl.conf --dry-run                read it with all its certificates and keys, change nothing
  casemate run --xfrm tunnel.xfrm --dry-run                      show routes, rules and sockets, change nothing
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters --dummy-packets 20

An error in the file is shown as `file:line: what is wrong and what was expected`, and nothing at all is applied.

Counter-mode ciphers (GCM, CCM, CTR, GMAC, ChaCha20-Poly1305) must never use an IV twice with one key. Keys from a file
outlive the program, so such SAs are refused unless --counters names a file that keeps their counters across restarts.";

const CONTROL_EXAMPLES: &str = "\
Examples:
  casemate initiate gw            the IKE SA of the connection `gw`, with all its Child SAs
  casemate initiate gw --ike      the IKE SA alone
  casemate initiate net           the Child SA `net`; `gw/net` where several connections have one of this name
  casemate rekey net              other keys for a Child SA
  casemate rekey gw --ike         other keys for an IKE SA
  casemate terminate net          close a Child SA
  casemate terminate gw           close an IKE SA with everything in it

They speak to the instance that runs in this network namespace.";

const CLEANUP_EXAMPLES: &str = "\
Examples:
  casemate cleanup                  after a crash, if Casemate is not to run again
  casemate cleanup --tun ipsec1

A run that is killed or ends with an error leaves its guard in place: what was protected cannot leave in clear. The next
`casemate run` with the same --tun takes it over. This command removes it instead: from then on traffic flows in clear.";

const STACK_EXAMPLES: &str = "\
Examples:
  casemate stack --tap tap0 --address 192.0.2.1/24 --config swanctl.conf
  casemate stack --tap tap0 --address 10.0.0.2/24 --address fd00::2/64 --gateway 10.0.0.1 --config swanctl.conf
  casemate stack --tap tap0 --address 192.0.2.1/24 --clear                    no IPsec, to try it
  casemate stack --tap tap0 --address 192.0.2.1/24 --config swanctl.conf --user 900 --grant 1000=80,443

This process has the interface, the TCP/IP stack, the keys and all sockets. Applications connect to --socket and use sockets over
memory that each of them shares with it alone; the crate casemate-shm has sockets for them like those of Rust's std::net. The
host's own network stack takes no part: the interface is a cable to the host, or to the bridge that it is put into.

Who may connect is a matter of the socket's mode and of the directories above it. Ports below 1024 need a --grant.

What no connection of the configuration names is dropped, unless --clear is given. There is no reload: restart it.

When everything is set up, it gives up all capabilities, for ever; with --user it becomes another user before. Its memory cannot be
read by processes of the same user.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  casemate inspect wire.pcapng --xfrm tunnel.xfrm
  casemate inspect wire.pcapng --ike-keys ikev2_decryption_table
  casemate inspect wire.pcapng --xfrm tunnel.xfrm --json | jq 'select(.verdict == \"drop\")'
  casemate inspect wire.pcap --xfrm tunnel.xfrm --write opened.pcapng && wireshark opened.pcapng
  tcpdump -w - esp | casemate inspect - --xfrm tunnel.xfrm

Verdicts:
  ok         opened; `inner` is the whole IP packet that would be delivered
  drop       dropped, for `reason` (the names that `casemate status` counts)
  clear      not protected
  held       a fragment, kept until its datagram is whole
  dummy      traffic-flow confidentiality: rightly nothing in it
  keepalive  NAT keepalive
  ike        an IKE message (UDP ports 500 and 4500); with --ike-keys its encrypted payloads are opened
  cut        captured in part only (use a larger snap length)
  other      no IP packet, such as ARP

Packets are taken in order, so that the second copy of one is a replay. Policies of the file are not needed and not
looked at, and lifetimes do not count, because nobody knows what passed before the capture.";

const DEMO_EXAMPLES: &str = "\
Examples:
  casemate demo
  casemate demo --keep seen && casemate inspect seen/wire.pcapng --xfrm seen/states.xfrm

It takes some ten seconds and leaves nothing behind but DIR. It needs root, or user namespaces, in which it is root.";

/// IPsec in memory-safe Rust: ESP and AH on Linux without the kernel's IPsec.
#[derive(Debug, Parser)]
#[command(name = "casemate", version, about, after_help = EXAMPLES)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Protect this host's traffic: with IKEv2 as swanctl.conf says, or with manual keys from `ip xfrm` lines.
    Run(RunArgs),
    /// Set up an IKE SA or a Child SA, and wait until it stands.
    Initiate(InitiateArgs),
    /// Close an IKE SA or a Child SA.
    Terminate(NameArgs),
    /// Give an IKE SA or a Child SA other keys.
    Rekey(RekeyArgs),
    /// Read the configuration again; connections that are as they were stay as they are.
    Reload,
    /// Show what happens, as it happens.
    Log(LogArgs),
    /// Show the SAs, policies and counters of a running instance.
    Status(StatusArgs),
    /// Take back what a run left behind that ended with an error or was killed: its guard, routes and rules.
    Cleanup(CleanupArgs),
    /// Be a TCP/IP stack behind IPsec for other processes, which share memory with this one.
    Stack(StackArgs),
    /// Say of each packet in a capture what the data path makes of it.
    Inspect(InspectArgs),
    /// Say how many calls a line carries with IPsec and without, and how they sound.
    Calls(CallsArgs),
    /// Measure this device and say which settings to use on it, and why.
    Advise(AdviseArgs),
    /// Build two hosts and a tunnel between them, send real traffic, and show what happens.
    Demo(DemoArgs),
    /// Do experiments of papers on IPsec again, and set the results beside the papers'.
    Lab(LabArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages.
    Man(ManArgs),
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Connections, as in swanctl.conf(5) [default: /etc/casemate/swanctl.conf, then /etc/swanctl/swanctl.conf]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["xfrm", "counters", "dummy_packets"])]
    pub config: Option<PathBuf>,
    /// Manual keys instead: states and policies, as lines of ip-xfrm(8).
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
    /// Write the keys of all SAs to Wireshark's tables in this directory. Whoever has them reads everything.
    #[arg(long, value_name = "DIR", conflicts_with = "xfrm")]
    pub save_keys: Option<PathBuf>,
    /// Keeps the counters of counter-mode ciphers across restarts.
    #[arg(long, value_name = "FILE", requires = "xfrm")]
    pub counters: Option<PathBuf>,
    /// Show what would be set up, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Send so many dummy packets a second through each outbound ESP SA, on average.
    ///
    /// They hide when real packets flow, and how many (RFC 4303 section 2.6). They come at random moments and have random
    /// lengths; the other side drops them silently. An SA inside of another one gets none.
    #[arg(long, value_name = "PER_SECOND", requires = "xfrm")]
    pub dummy_packets: Option<NonZeroU16>,
    /// Name of the TUN interface.
    #[arg(long, value_name = "NAME", default_value = "casemate0")]
    pub tun: String,
    /// How many threads may move packets [default: one for each processor, four at most].
    ///
    /// One works alone while it can keep up. While more packets wait, the others take turns with it; otherwise they sleep. All serve the same
    /// SAs, and packets keep their order.
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,
}

impl RunArgs {
    /// How many threads may move packets.
    pub fn threads(&self) -> NonZeroUsize {
        let most = NonZeroUsize::MIN.saturating_add(3);
        let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.threads.unwrap_or_else(|| processors().min(most))
    }
}

/// Arguments of `initiate`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct InitiateArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The name is that of a connection, and only its IKE SA is meant.
    #[arg(long)]
    pub ike: bool,
    /// How many seconds to wait for it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u16,
}

/// Arguments of `terminate`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct NameArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How many seconds to wait for it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u16,
}

/// Arguments of `rekey`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct RekeyArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The name is that of a connection, and its IKE SA is meant.
    #[arg(long)]
    pub ike: bool,
}

/// Arguments of `log`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  casemate log\n  casemate log --follow")]
pub struct LogArgs {
    /// Go on showing what happens, until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cleanup`.
#[derive(Debug, Args)]
#[command(after_help = CLEANUP_EXAMPLES)]
pub struct CleanupArgs {
    /// The TUN interface of the run.
    #[arg(long, value_name = "NAME", default_value = "casemate0")]
    pub tun: String,
}

/// Arguments of `stack`.
#[derive(Debug, Args)]
#[command(after_help = STACK_EXAMPLES)]
pub struct StackArgs {
    /// TAP interface; it is made if it is not there.
    #[arg(long, value_name = "NAME")]
    pub tap: String,
    /// An address of the stack, with the length of its network: 192.0.2.1/24. Can be given several times.
    #[arg(long = "address", value_name = "ADDRESS/LEN", required = true, value_parser = own_address)]
    pub addresses: Vec<IpCidr>,
    /// Where everything else is. One for IPv4 and one for IPv6 at most.
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub gateways: Vec<IpAddr>,
    /// Connections, as in swanctl.conf(5).
    #[arg(long, value_name = "FILE", required_unless_present = "clear")]
    pub config: Option<PathBuf>,
    /// What no connection names passes in clear.
    #[arg(long)]
    pub clear: bool,
    /// Where applications connect.
    #[arg(long, value_name = "PATH", default_value = "/run/casemate/stack.sock")]
    pub socket: PathBuf,
    /// The socket's mode: who may connect.
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = mode)]
    pub mode: u32,
    /// Ports below 1024 for the applications of a user: 1000=80,400-410. Can be given several times.
    #[arg(long = "grant", value_name = "UID=PORTS")]
    pub grants: Vec<GrantRule>,
    /// Become this user, by its number, when everything is set up.
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Ethernet address of the stack; a random one otherwise.
    #[arg(long, value_name = "ADDRESS", value_parser = ethernet_address)]
    pub mac: Option<EthernetAddress>,
    /// Applications at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub applications: u16,
    /// Sockets of one application. Each place in a backlog is one.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub sockets: u16,
    /// KiB of a socket's buffer, of which it has one in each direction.
    #[arg(long, value_name = "KIB", default_value_t = 128, value_parser = clap::value_parser!(u16).range(4..=16_384))]
    pub buffer: u16,
}

pub(crate) fn own_address(text: &str) -> Result<IpCidr, String> {
    let cidr: IpCidr = text.parse().map_err(|()| "192.0.2.1/24 or fd00::1/64 was expected")?;
    if cidr.address().is_unicast() { Ok(cidr) } else { Err("the address of one host was expected".into()) }
}

fn ethernet_address(text: &str) -> Result<EthernetAddress, String> {
    let address: EthernetAddress = text.parse().map_err(|()| "02:00:00:00:00:01 was expected")?;
    if address.is_unicast() { Ok(address) } else { Err("the address of one host was expected".into()) }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits such as 660 were expected".into())
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub struct InspectArgs {
    /// A pcap or pcapng file; `-` is standard input.
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// The states, as lines of ip-xfrm(8).
    #[arg(long, value_name = "FILE", required_unless_present = "ike_keys")]
    pub xfrm: Option<PathBuf>,
    /// Keys of IKE SAs, as rows of Wireshark's ikev2_decryption_table.
    #[arg(long, value_name = "FILE")]
    pub ike_keys: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Write the opened packets to a capture of their own.
    #[arg(long, value_name = "OUT.pcapng")]
    pub write: Option<PathBuf>,
    /// Do not drop replayed packets.
    #[arg(long)]
    pub no_replay: bool,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Keep what was on the wire, and both hosts' files, in this directory.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  casemate completions bash > /usr/share/bash-completion/completions/casemate"
)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  casemate man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the pages; must exist.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_teaches_with_examples() {
        let mut command = Cli::command();
        let help = command.render_help().to_string();
        assert!(help.contains("Examples:\n  casemate demo"), "{help}");
        for name in ["run", "stack", "inspect", "calls", "advise", "demo", "lab"] {
            let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert!(help.contains(&format!("Examples:\n  casemate {name}")), "{help}");
        }
    }
}
