//! Arguments of `casemate stack`, with the grants of privileged ports.

use casemate_socketd::PortGrant;
use clap::Args;
use smoltcp::wire::{EthernetAddress, IpCidr};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

const STACK_EXAMPLES: &str = "\
Examples:
  casemate stack --tap tap0 --address 192.0.2.1/24 --config swanctl.conf
  casemate stack --tap tap0 --address 10.0.0.2/24 --gateway 10.0.0.1 --address fd00::2/64 --config gw.conf
  casemate stack --tap tap0 --address 192.0.2.1/24 --clear              without IPsec, for a first test
  casemate stack --tap tap0 --address 192.0.2.1/24 --config swanctl.conf --user 900 --grant 1000=80,443

This process owns the interface, the TCP/IP stack, the keys and all sockets. Applications connect to --socket.
Each application has its own shared memory with the stack. The crate casemate-socketd-client provides sockets
with an API like that of Rust's std::net. The network stack of the host is not involved: the TAP interface
acts as a cable to the host or to the bridge that contains the interface.

The mode of the socket and of its parent directories controls which users can connect. Ports below 1024 need
a --grant.

Packets that match no connection of the configuration are dropped, unless --clear is given. The configuration
cannot be reloaded: restart the program.

After setup, the program drops all capabilities for good. With --user, it first changes to that user. Other
processes of the same user cannot read its memory.";

/// Arguments of `stack`.
#[derive(Debug, Args)]
#[command(after_help = STACK_EXAMPLES)]
pub struct StackArgs {
    /// TAP interface, which is created if it does not exist.
    #[arg(long, value_name = "NAME")]
    pub tap: String,
    /// Address of the stack with prefix length, such as 192.0.2.1/24. May be repeated.
    #[arg(long = "address", value_name = "ADDRESS/LEN", required = true, value_parser = interface_address)]
    pub addresses: Vec<IpCidr>,
    /// Default gateway; at most one for IPv4 and one for IPv6.
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub gateways: Vec<IpAddr>,
    /// Connections in the format of swanctl.conf(5).
    #[arg(long, value_name = "FILE", required_unless_present = "clear")]
    pub config: Option<PathBuf>,
    /// Pass traffic without a connection in clear.
    #[arg(long)]
    pub clear: bool,
    /// Socket to which applications connect.
    #[arg(long, value_name = "PATH", default_value = "/run/casemate/stack.sock")]
    pub socket: PathBuf,
    /// File mode of the socket, which controls who may connect.
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = octal_mode)]
    pub mode: u32,
    /// Ports below 1024 that applications of a user may bind, such as 1000=80,400-410. May be repeated.
    #[arg(long = "grant", value_name = "UID=PORTS")]
    pub grants: Vec<GrantRule>,
    /// Switch to this user ID after setup.
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Ethernet address of the stack [default: random].
    #[arg(long, value_name = "ADDRESS", value_parser = ethernet_address)]
    pub mac: Option<EthernetAddress>,
    /// Maximum number of connected applications.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub applications: u16,
    /// Maximum number of sockets per application. Each slot of a listen backlog counts as one.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub sockets: u16,
    /// Size of the buffer of a socket in each direction, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 128, value_parser = clap::value_parser!(u16).range(4..=16_384))]
    pub buffer: u16,
}

/// Parses the address of an interface with its prefix length, such as `192.0.2.1/24`.
pub fn interface_address(text: &str) -> Result<IpCidr, String> {
    let cidr: IpCidr = text
        .parse()
        .map_err(|()| "an address with prefix length such as 192.0.2.1/24 or fd00::1/64 was expected")?;
    if cidr.address().is_unicast() { Ok(cidr) } else { Err("a unicast address was expected".into()) }
}

fn ethernet_address(text: &str) -> Result<EthernetAddress, String> {
    let address: EthernetAddress =
        text.parse().map_err(|()| "an Ethernet address such as 02:00:00:00:00:01 was expected")?;
    if address.is_unicast() { Ok(address) } else { Err("a unicast address was expected".into()) }
}

fn octal_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits such as 660 were expected".into())
}

/// Ports that the applications of one user may bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    uid: u32,
    ports: Vec<RangeInclusive<u16>>,
}

impl FromStr for GrantRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: a user ID and ports were expected, such as 1000=80,8000-8080");
        let (uid, ports) = text.split_once('=').ok_or_else(wrong)?;
        let uid = uid.parse().map_err(|_| wrong())?;
        let ports: Option<Vec<_>> = ports.split(',').map(range).collect();
        Ok(Self { uid, ports: ports.ok_or_else(wrong)? })
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

/// Combines the rules for a user.
pub(super) fn grant(rules: &[GrantRule], uid: u32) -> PortGrant {
    let own = rules.iter().filter(|rule| rule.uid == uid);
    own.flat_map(|rule| rule.ports.clone()).fold(PortGrant::none(), PortGrant::with_ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_and_combined() {
        let rules: Vec<GrantRule> =
            ["0=80", "1000=25,400-410", "0=443"].map(|text| text.parse().unwrap()).into();
        for (uid, port, permitted) in [
            (0, 80, true),
            (0, 443, true),
            (0, 25, false),
            (1_000, 405, true),
            (1_000, 80, false),
            (7, 80, false),
        ] {
            assert_eq!(grant(&rules, uid).permits(port), permitted, "{uid} {port}");
        }
        for wrong in
            ["", "80", "=80", "root=80", "0=", "0=0", "0=90-80", "0=80,", "0=80-", "0=65536", "-1=80"]
        {
            assert!(wrong.parse::<GrantRule>().is_err(), "{wrong}");
        }
    }
}
