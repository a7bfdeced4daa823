//! smoltcp behind Casemate as a peer: `casemate-device` on a tap. One process for all cases: a tap whose other end comes and
//! goes would lose the first packets.

use crate::case::{Case, Family};
use crate::link::SECOND_TAP;
use crate::peer::Peer;
use crate::xfrm::{self, Side};
use casemate_interop::{Error, Netns, Output, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The bridge passes frames when the kernel has noticed that its port has a carrier.
const SETTLING: Duration = Duration::from_secs(2);

/// The running program.
pub(crate) struct Device {
    program: casemate_interop::Device,
    directory: PathBuf,
}

impl Device {
    /// In `netns`, with the file of each case in `directory`.
    pub(crate) fn start(netns: &Netns, program: &Path, directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
        let mut command = netns.command(program);
        command.args(["--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--neighbour", Side::Guest.mac()]);
        // Those behind tunnels first: they are the sources where no other address is nearer.
        for (family, link, behind) in [(Family::V4, 24, 32), (Family::V6, 64, 128)] {
            command.arg("--address").arg(format!("{}/{behind}", Side::Ours.behind(family)));
            command.arg("--address").arg(format!("{}/{link}", Side::Ours.link(family)));
        }
        let program = casemate_interop::Device::start(command, &directory.join("log"))?;
        std::thread::sleep(SETTLING);
        Ok(Self { program, directory: directory.into() })
    }
}

impl Peer for Device {
    fn start(&mut self, case: &Case) -> Result<()> {
        let file = self.directory.join("xfrm");
        fs::write(&file, xfrm::lines(case, Side::Ours)).map_err(Error::in_front(file.display()))?;
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
