//! The command line of the program, and the completions and manual pages made from it.

use crate::calls::CallsArgs;
use crate::cell::CellArgs;
use crate::control::{InitiateArgs, LogArgs, NameArgs, RedirectArgs, RekeyArgs};
use crate::demo::DemoArgs;
use crate::failure::Failure;
use crate::import::ImportArgs;
use crate::inspect::InspectArgs;
use crate::lab_program::{self, AddedCommand, LabProgramArgs};
use crate::output;
use crate::run::{CleanupArgs, RunArgs};
use crate::stack::args::StackArgs;
use crate::status::StatusArgs;
use crate::trace::TraceArgs;
use crate::why::WhyArgs;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  casemate demo                                     send HTTP and ping through a tunnel between two hosts
  casemate run --config swanctl.conf                negotiate keys with IKEv2, configured as for strongSwan
  casemate run --xfrm tunnel.xfrm --dry-run         show the changes that manual keys would make
  casemate run --xfrm tunnel.xfrm --counters state  use manual keys until Ctrl-C; `state` keeps their counters
  casemate initiate gw                              set up the connection `gw`
  casemate status                                   show SAs, policies, counters and drops
  casemate trace dst 10.2.0.5 proto icmp            follow the next packets of a flow, step by step
  casemate stack --tap tap0 --address 192.0.2.1/24  run a TCP/IP stack behind IPsec for applications
  casemate inspect wire.pcapng --xfrm tunnel.xfrm   decrypt a capture and show why packets would be dropped
  casemate import wg0.conf -o swanctl.conf          convert a WireGuard configuration
  casemate calls --line 2M                          calculate how many calls a link carries, and their quality
  casemate advise                                   measure this device and recommend settings
  casemate lab run streams --quick                  reproduce an experiment of a paper on IPsec

The file of --xfrm holds lines of ip-xfrm(8). `ip -batch` and `sh` load the same file into a Linux kernel:
  ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \\
      aead 'rfc4106(gcm(aes))' 0x5f0e...(40 digits) 128
  ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out \\
      tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel

Exit status: 0 success; 1 the operation failed; 2 wrong arguments, or a file that is missing,
unreadable or wrong.";

/// IPsec in memory-safe Rust: ESP and AH on Linux without the kernel's IPsec.
#[derive(Debug, Parser)]
#[command(name = "casemate", bin_name = "casemate", version, about, after_help = EXAMPLES)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Protect the traffic of this host with IKEv2 (swanctl.conf) or with manual keys (`ip xfrm` lines).
    Run(RunArgs),
    /// Set up an IKE SA or a Child SA and wait until it is established.
    Initiate(InitiateArgs),
    /// Close an IKE SA or a Child SA.
    Terminate(NameArgs),
    /// Rekey an IKE SA or a Child SA.
    Rekey(RekeyArgs),
    /// Redirect the peers of a connection to another gateway (RFC 5685).
    Redirect(RedirectArgs),
    /// Reload the configuration; unchanged connections keep their SAs.
    Reload,
    /// Show the log of the running instance.
    Log(LogArgs),
    /// Explain why a connection is in its state, and what to try.
    Why(WhyArgs),
    /// Follow the next packets of a flow: each step and its verdict.
    Trace(TraceArgs),
    /// Show the SAs, policies and counters of the running instance.
    Status(StatusArgs),
    /// Show the nodes of a cell of gateways, and drain this one.
    Cell(CellArgs),
    /// Remove the guard, routes and rules that a crashed or failed run left behind.
    Cleanup(CleanupArgs),
    /// Run a TCP/IP stack behind IPsec for applications that share memory with it.
    Stack(StackArgs),
    /// Decrypt the packets of a capture and show the verdict on each.
    Inspect(InspectArgs),
    /// Convert a WireGuard configuration to a swanctl.conf.
    Import(ImportArgs),
    /// Calculate how many voice calls a link carries with and without IPsec, and their quality.
    Calls(CallsArgs),
    /// Measure this device and recommend settings for it, with reasons.
    Advise(LabProgramArgs),
    /// Build two hosts with a tunnel between them, send real traffic, and check the result.
    Demo(DemoArgs),
    /// Reproduce experiments of papers on IPsec and compare the results.
    Lab(LabProgramArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages.
    Man(ManArgs),
}

/// The whole command line, with the added commands.
pub fn command(added: &[AddedCommand]) -> clap::Command {
    added.iter().fold(Cli::command(), |command, added| {
        command.mut_subcommand(added.name(), |known| {
            let about = known.get_about().cloned().unwrap_or_default();
            added.definition().about(about).long_about(None)
        })
    })
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  casemate completions bash > /usr/share/bash-completion/completions/casemate"
)]
pub struct CompletionsArgs {
    /// Shell to complete in.
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  casemate man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Existing directory for the pages.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Prints a completion script for all commands.
pub fn completions(args: &CompletionsArgs, added: &[AddedCommand]) -> Result<(), Failure> {
    if lab_program::exists() {
        return lab_program::run();
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(added), "casemate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes `casemate.1` and a page for each command.
pub fn man(args: &ManArgs, added: &[AddedCommand]) -> Result<(), Failure> {
    if lab_program::exists() {
        return lab_program::run();
    }
    let directory = &args.directory;
    if !directory.is_dir() {
        return Err(Failure::bad_input(format!("{}: a directory was expected", directory.display())));
    }
    clap_mangen::generate_to(command(added), directory)
        .map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_contains_examples() {
        let mut command = Cli::command();
        let help = command.render_help().to_string();
        assert!(help.contains("Examples:\n  casemate demo"), "{help}");
        for name in ["run", "trace", "stack", "inspect", "import", "calls", "demo"] {
            let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert!(help.contains(&format!("Examples:\n  casemate {name}")), "{help}");
        }
    }
}
