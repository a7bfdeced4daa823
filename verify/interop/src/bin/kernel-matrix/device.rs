//! A device as a peer: a stack behind Casemate on a tap, smoltcp (`casemate-device`) or lwIP (`lwip.rs`). One process for all
//! cases: a tap whose other end comes and goes would lose the first packets.

use crate::case::{Case, Family};
use crate::link::SECOND_TAP;
use crate::peer::Peer;
use crate::xfrm::Side;
use casemate_interop::{Error, Netns, Output, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The bridge passes frames when the kernel has noticed that its port has a carrier.
const SETTLING: Duration = Duration::from_secs(2);

/// The running program.
pub(crate) struct Device {
    program: casemate_interop::Device,
    directory: PathBuf,
    keys: fn(&Case) -> String,
}

/// smoltcp's program, in `netns`.
pub(crate) fn smoltcp(netns: &Netns, program: &Path) -> Command {
    let mut command = netns.command(program);
    command.args(["--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--neighbour", Side::Guest.mac()]);
    for address in addresses() {
        command.arg("--address").arg(address);
    }
    command
}

/// The addresses of a device. Those behind tunnels first: they are the sources where no other address is nearer.
pub(crate) fn addresses() -> impl Iterator<Item = String> {
    [(Family::V4, 24, 32), (Family::V6, 64, 128)].into_iter().flat_map(|(family, link, behind)| {
        let (near, far) = (Side::Ours.link(family), Side::Ours.behind(family));
        [format!("{far}/{behind}"), format!("{near}/{link}")]
    })
}

impl Device {
    /// Started by `command`, with the file of each case in `directory`, as `keys` writes it.
    pub(crate) fn start(command: Command, directory: &Path, keys: fn(&Case) -> String) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
        let program = casemate_interop::Device::start(command, &directory.join("log"))?;
        std::thread::sleep(SETTLING);
        Ok(Self { program, directory: directory.into(), keys })
    }
}

impl Peer for Device {
    fn start(&mut self, case: &Case) -> Result<()> {
        let file = self.directory.join("keys");
        fs::write(&file, (self.keys)(case)).map_err(Error::in_front(file.display()))?;
        self.program.demand(&format!("keys {}", file.display())).map(drop)
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.program.order(arguments)
    }

    fn stop(&mut self, _: &Case) -> Result<()> {
        match self.program.demand("drops")?.as_str() {
            "nothing dropped" => Ok(()),
            other => Err(Error::new(format!("the device {other}"))),
        }
    }
}
