//! lwIP behind Casemate as a peer: the example program of adapters/lwip, with Casemate inside IP or below
//! it.

use crate::case::{Case, Mode, Protocol, Sa};
use crate::device;
use crate::link::SECOND_TAP;
use crate::xfrm::{self, Side};
use casemate_interop::{ENCAP_PORT, Error, Netns, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Algorithms that the library for devices does not contain.
const LEGACY: [&str; 3] = ["md5", "des", "3des"];

/// Whether the library contains the algorithms of a case.
pub(crate) fn knows(case: &Case) -> bool {
    case.sas.iter().all(|sa| !sa.suite.name.split('-').any(|part| LEGACY.contains(&part)))
}

/// Command of the program in `netns`. Writes its configuration to `directory`.
pub(crate) fn command(netns: &Netns, program: &Path, is_below: bool, directory: &Path) -> Result<Command> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let file = directory.join("config");
    // An interface of lwIP has one IPv4 address: the one on the link comes first.
    let mut addresses: Vec<String> = device::addresses().collect();
    addresses.reverse();
    let lines: String = addresses.iter().map(|address| format!("address {address}\n")).collect();
    let text = format!("{lines}neighbour {}\nunmatched bypass\n", Side::Guest.mac());
    fs::write(&file, text).map_err(Error::context(file.display()))?;
    let mut command = netns.command(program);
    command.args(["--console", "--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--config"]).arg(file);
    if is_below {
        command.arg("--below");
    }
    Ok(command)
}

/// Configuration of the program for a case.
pub(crate) fn lines(case: &Case) -> String {
    let mut text = String::from("unmatched bypass\n");
    for (layer, sa) in case.sas.iter().enumerate() {
        for from in [Side::Ours, Side::Guest] {
            text.push_str(&state(case, (layer, sa), from));
        }
    }
    text.push_str(&policy(case, Side::Ours));
    text.push_str(&policy(case, Side::Guest));
    text
}

fn direction(from: Side) -> &'static str {
    if from == Side::Ours { "out" } else { "in" }
}

fn state(case: &Case, (layer, sa): (usize, &Sa), from: Side) -> String {
    let (src, dst) = (from.link(case.outer), from.other().link(case.outer));
    let Sa { protocol, mode, window, used, .. } = sa;
    let mut line = format!(
        "sa {} {protocol} {mode} src {src} dst {dst} spi {:#x} suite {} window {window} last {used}",
        direction(from),
        xfrm::spi(layer, from),
        sa.suite.name,
    );
    if sa.esn {
        line.push_str(" esn");
    }
    if sa.encap {
        let _ = write!(line, " udp {ENCAP_PORT}");
    }
    if sa.protocol == Protocol::Ah {
        // Default alignment of Linux.
        line.push_str(" align8");
    }
    for (name, key) in xfrm::keys(case, layer, sa, from) {
        let _ = write!(line, " {name} {key}");
    }
    line.push('\n');
    line
}

fn policy(case: &Case, from: Side) -> String {
    let (src, dst) = (from.user(case), from.other().user(case));
    let mut line = format!("policy {} src {src} dst {dst} priority 100 protect", direction(from));
    for (layer, sa) in case.sas.iter().enumerate() {
        let around = if layer > 0 { " around" } else { "" };
        let _ = write!(line, "{around} {} {}", sa.protocol, sa.mode);
        if case.is_tunnel() || sa.mode == Mode::Tunnel {
            let _ = write!(line, " from {} to {}", from.link(case.outer), from.other().link(case.outer));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn cases_with_missing_algorithms_are_excluded() {
        let (known, unknown): (Vec<_>, Vec<_>) = case::all().into_iter().partition(knows);
        assert!(unknown.iter().all(|case| case.name.contains("md5") || case.name.contains("des")));
        assert_eq!((known.len(), unknown.len()), (317, 24));
    }

    #[test]
    fn bundle_is_configured() {
        let case =
            case::all().into_iter().find(|case| case.name == "ah+esp/aes128-sha1+sha1/tunnel/v4").unwrap();
        let text = lines(&case);
        assert!(text.contains(
            "policy out src 10.99.1.1 dst 10.99.2.1 priority 100 protect esp tunnel from 10.9.0.1 to 10.9.0.2 around ah \
             transport from 10.9.0.1 to 10.9.0.2\n"
        ));
        assert!(text.contains(
            "sa in ah transport src 10.9.0.2 dst 10.9.0.1 spi 0x1102 suite sha1 window 64 last 0 align8"
        ));
    }
}
