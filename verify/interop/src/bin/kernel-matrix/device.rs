//! A device as a peer: a stack behind Casemate on a tap, smoltcp (`casemate-device`) or lwIP (`lwip.rs`). One process for all
//! cases: a tap whose other end comes and goes would lose the first packets.

use crate::case::{Case, Family};
use crate::link::SECOND_TAP;
use crate::peer::Peer;
use crate::xfrm::Side;
use casemate_interop::{Error, Netns, Output, Result};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The device gives an order up by itself before.
const LIMIT: Duration = Duration::from_secs(60);
/// The bridge passes frames when the kernel has noticed that its port has a carrier.
const SETTLING: Duration = Duration::from_secs(2);

/// The running program.
pub(crate) struct Device {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
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
    pub(crate) fn start(mut command: Command, directory: &Path, keys: fn(&Case) -> String) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::in_front("the device"))?;
        let (Some(orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("the device was started without pipes"));
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let device = Self { child, orders, answers, directory: directory.into(), keys };
        match device.line()?.as_str() {
            "0 ready" => std::thread::sleep(SETTLING),
            other => return Err(Error::new(format!("the device says `{other}`"))),
        }
        Ok(device)
    }

    fn line(&self) -> Result<String> {
        let said = self.answers.recv_timeout(LIMIT);
        said.map_err(|_| {
            Error::new(format!("the device says nothing for {} s, or has ended", LIMIT.as_secs()))
        })
    }

    fn order(&mut self, order: &str) -> Result<Output> {
        writeln!(self.orders, "{order}").map_err(Error::in_front("the device has ended"))?;
        let answer = self.line()?;
        let (status, text) = answer.split_once(' ').unwrap_or(("1", &answer));
        Ok(Output { status: status.parse().unwrap_or(1), stdout: text.into() })
    }

    /// An order that has to succeed; what it says.
    fn demand(&mut self, order: &str) -> Result<String> {
        match self.order(order)? {
            Output { status: 0, stdout } => Ok(stdout),
            Output { stdout, .. } => Err(Error::new(format!("the device: {order}: {stdout}"))),
        }
    }
}

impl Peer for Device {
    fn start(&mut self, case: &Case) -> Result<()> {
        let file = self.directory.join("keys");
        fs::write(&file, (self.keys)(case)).map_err(Error::in_front(file.display()))?;
        self.demand(&format!("keys {}", file.display())).map(drop)
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.order(arguments)
    }

    fn stop(&mut self, _: &Case) -> Result<()> {
        match self.demand("drops")?.as_str() {
            "nothing dropped" => Ok(()),
            other => Err(Error::new(format!("the device {other}"))),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
