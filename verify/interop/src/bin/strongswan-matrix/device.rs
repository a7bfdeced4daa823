//! Peers on devices: a program that executes commands (`casemate_interop::Device`) and reads the same
//! `swanctl.conf` as Casemate, the example of adapters/lwip, and the firmware. The last two report little
//! about their SAs; the firmware gets its whole configuration at the start and accepts no commands
//! afterwards.

use crate::casemate::{dns, ike_sas};
use crate::peer::{IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::plan::{CHILD, CONNECTION, Conf, SidePlan};
use crate::platform::{DevicePlatform, FirmwarePlatform};
use casemate_interop::{Error, Result};
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// IKE on a device, and its files.
pub(crate) struct DevicePeer {
    platform: Rc<DevicePlatform>,
    pki: Arc<Pki>,
    directory: PathBuf,
}

impl DevicePeer {
    /// Creates the peer on the device at `platform` with all its files in `directory`.
    pub(crate) fn new(platform: Rc<DevicePlatform>, pki: Arc<Pki>, directory: PathBuf) -> Self {
        Self { platform, pki, directory }
    }

    /// Executes a command and returns an error unless it succeeds.
    fn execute_ok(&self, command: &str) -> Result<String> {
        let reply = self.platform.execute(command)?;
        if reply.status == 0 {
            Ok(reply.stdout)
        } else {
            Err(Error::new(format!("{command}: {}", reply.stdout)))
        }
    }

    fn report(&self) -> Result<Vec<Value>> {
        let text = self.execute_ok("status")?;
        serde_json::from_str(&text).map_err(Error::context(format!("status: {text}")))
    }
}

impl Peer for DevicePeer {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        let file = plan.write(&self.directory, &self.pki)?;
        self.execute_ok(&format!("connections {}", file.display())).map(drop)
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.start(plan)
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        self.execute_ok(&format!("initiate {}", target_arguments(target))).map(drop)
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (Target::Ike(name) | Target::Child(name)) = target;
        self.execute_ok(&format!("terminate {name}")).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        self.execute_ok(&format!("rekey {}", target_arguments(target))).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        ike_sas(&self.report()?)
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        dns(&self.report()?)
    }

    fn dpd_timeout(&self) -> Duration {
        // The delay itself, five timeouts of one second, and a margin.
        Duration::from_secs(8)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        Err(Error::new("a device cannot save keys"))
    }

    fn log(&self) -> String {
        self.platform.log()
    }

    fn stop(&mut self) -> Result<()> {
        // The device ends together with the router. Until then it must execute commands.
        self.execute_ok("drops").map(drop)
    }
}

fn target_arguments(target: Target<'_>) -> String {
    match target {
        Target::Ike(name) => format!("{name} --ike"),
        Target::Child(name) => name.into(),
    }
}

/// IKE in lwIP, and its files.
pub(crate) struct LwipPeer {
    platform: Rc<DevicePlatform>,
    pki: Arc<Pki>,
    directory: PathBuf,
    initiates: bool,
}

impl LwipPeer {
    /// Creates the peer in the program at `platform` with all its files in `directory`. If `initiates` is
    /// true, it initiates as soon as it has its connection.
    pub(crate) fn new(
        platform: Rc<DevicePlatform>,
        pki: Arc<Pki>,
        directory: PathBuf,
        initiates: bool,
    ) -> Self {
        Self { platform, pki, directory, initiates }
    }

    /// Executes a command and returns an error unless it succeeds.
    fn execute_ok(&self, command: &str) -> Result<()> {
        let reply = self.platform.execute(command)?;
        if reply.status == 0 { Ok(()) } else { Err(Error::new(format!("{command}: {}", reply.stdout))) }
    }
}

/// Returns the connection as a line of the configuration of the example, from the parts of `swanctl.conf`
/// that the example supports.
fn connection(conf: &Conf, directory: &Path, initiates: bool) -> String {
    let of = |path: &str| conf.get(&format!("connections.{CONNECTION}.{path}"));
    let child = |path: &str| of(&format!("children.{CHILD}.{path}"));
    let file = |folder: &str, name: &str| directory.join(folder).join(name).display().to_string();
    let (certificate, public) = (of("local.certs"), of("local.pubkeys"));
    let proof = match (certificate, public) {
        ("", "") => format!("psk secret {}", conf.get("secrets.ike-t.secret").trim_matches('"')),
        ("", own) => {
            let peer = file("pubkey", of("remote.pubkeys"));
            format!("raw key {} peer-key {peer}", file("private", own))
        }
        (own, _) => {
            let (key, certs) = (file("private", own), file("x509", own));
            format!("cert key {key} certs {certs} cas {}", file("x509ca", AUTHORITY))
        }
    };
    let start = if initiates { "now traffic" } else { "" };
    let ppk = match of("ppk_id") {
        "" => String::new(),
        id => {
            let required = if of("ppk_required") == "yes" { " ppk-required" } else { "" };
            format!("ppk-id {id} ppk {}{required}", conf.get("secrets.ppk-t.secret").trim_matches('"'))
        }
    };
    format!(
        "ike {CONNECTION} local {} remote {} local-id {} remote-id {} proposals {} {proof} {ppk} {} esp {} \
         {start}",
        of("local_addrs"),
        of("remote_addrs"),
        of("local.id"),
        of("remote.id"),
        of("proposals"),
        child("mode"),
        child("esp_proposals"),
    )
}

/// Root of the certificates in the cases for lwIP.
const AUTHORITY: &str = "ca-ecdsa.pem";

fn unsupported<T>() -> Result<T> {
    Err(Error::new("lwIP does not support this command"))
}

impl Peer for LwipPeer {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        plan.write(&self.directory, &self.pki)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Error::context("clock"))?;
        self.execute_ok(&format!("clock {}", now.as_secs()))?;
        self.execute_ok(&connection(&plan.conf, &self.directory, self.initiates))
    }

    fn reload(&mut self, _: &SidePlan) -> Result<()> {
        unsupported()
    }

    fn initiate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn terminate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn rekey(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        unsupported()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        unsupported()
    }

    fn dpd_timeout(&self) -> Duration {
        // The delay itself, and retransmissions after 1, 2, 4, 8, 16, 32 and 60 seconds.
        Duration::from_secs(160)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        unsupported()
    }

    fn log(&self) -> String {
        let told = self.platform.log();
        let commands = ["events", "counts", "faults", "drops"];
        let reply = commands.map(|command| match self.platform.execute(command) {
            Ok(reply) => format!("{command}: {}\n", reply.stdout),
            Err(error) => format!("{command}: {error}\n"),
        });
        told + &reply.concat()
    }

    fn stop(&mut self) -> Result<()> {
        // lwIP ends together with the router. Until then it must execute commands; this proves that no
        // sanitizer aborted it.
        self.execute_ok("drops")
    }
}

/// IKE in the firmware.
pub(crate) struct FirmwarePeer(Rc<FirmwarePlatform>);

impl FirmwarePeer {
    /// Creates the peer in the machine at `platform`.
    pub(crate) fn new(platform: Rc<FirmwarePlatform>) -> Self {
        Self(platform)
    }
}

fn unsupported_by_firmware<T>() -> Result<T> {
    Err(Error::new("the firmware accepts no commands"))
}

impl Peer for FirmwarePeer {
    fn start(&mut self, _: &SidePlan) -> Result<()> {
        self.0.boot()
    }

    fn reload(&mut self, _: &SidePlan) -> Result<()> {
        unsupported_by_firmware()
    }

    fn initiate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported_by_firmware()
    }

    fn terminate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported_by_firmware()
    }

    fn rekey(&mut self, _: Target<'_>) -> Result<()> {
        unsupported_by_firmware()
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        unsupported_by_firmware()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        unsupported_by_firmware()
    }

    fn dpd_timeout(&self) -> Duration {
        // The delay itself, and retransmissions after 1, 2, 4, 8, 16, 32 and 60 seconds.
        Duration::from_secs(160)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        unsupported_by_firmware()
    }

    fn log(&self) -> String {
        self.0.console()
    }

    fn stop(&mut self) -> Result<()> {
        // The firmware ends together with the router. It restarts after a fatal error, and the restart ends
        // QEMU.
        if self.0.console().contains("panic") { Err(Error::new("the firmware panicked")) } else { Ok(()) }
    }
}
