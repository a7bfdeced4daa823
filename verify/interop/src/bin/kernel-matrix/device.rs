//! Device as a peer: a stack behind Casemate on a TAP interface, smoltcp (`casemate-device`) or lwIP
//! (`lwip.rs`). One process runs all cases: a TAP interface whose other end is closed and opened again
//! would lose the first packets.

use crate::case::Peer;
use crate::case::{Case, Family};
use crate::link::SECOND_TAP;
use crate::xfrm::Side;
use casemate_interop::{Error, Netns, Output, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The bridge forwards frames after the kernel has noticed the carrier of its port.
const SETTLING: Duration = Duration::from_secs(2);

/// Running device program.
pub(crate) struct Device {
    program: casemate_interop::Device,
    directory: PathBuf,
    keys: fn(&Case) -> String,
}

/// Command of the smoltcp device in `netns`.
pub(crate) fn smoltcp(netns: &Netns, program: &Path) -> Command {
    let mut command = netns.command(program);
    command.args(["--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--neighbour", Side::Guest.mac()]);
    for address in addresses() {
        command.arg("--address").arg(address);
    }
    command
}

/// Addresses of a device. Those behind tunnels come first: they are the sources if no other address is
/// nearer.
pub(crate) fn addresses() -> impl Iterator<Item = String> {
    [(Family::V4, 24, 32), (Family::V6, 64, 128)].into_iter().flat_map(|(family, link, behind)| {
        let (near, far) = (Side::Ours.link(family), Side::Ours.behind(family));
        [format!("{far}/{behind}"), format!("{near}/{link}")]
    })
}

impl Device {
    /// Device that `command` starts, with the file of each case in `directory`; `keys` returns its
    /// contents.
    pub(crate) fn start(command: Command, directory: &Path, keys: fn(&Case) -> String) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        let program = casemate_interop::Device::start(command, &directory.join("log"))?;
        std::thread::sleep(SETTLING);
        Ok(Self { program, directory: directory.into(), keys })
    }
}

impl Peer for Device {
    fn start(&mut self, case: &Case) -> Result<()> {
        let file = self.directory.join("keys");
        fs::write(&file, (self.keys)(case)).map_err(Error::context(file.display()))?;
        self.program.execute_ok(&format!("keys {}", file.display())).map(drop)
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.program.execute(arguments)
    }

    fn stop(&mut self, _: &Case) -> Result<()> {
        match self.program.execute_ok("drops")?.as_str() {
            "nothing dropped" => Ok(()),
            other => Err(Error::new(format!("the device {other}"))),
        }
    }
}
