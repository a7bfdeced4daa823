//! Starts `casemate run` as an IPsec gateway at one end of a veth pair.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use crate::{Background, Error, Netns, Result, run};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit until a started program is ready.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The program `casemate` and its environment, which selects its crypto providers.
#[derive(Debug, Clone)]
pub struct Gateway {
    program: PathBuf,
    /// Environment variables.
    environment: Vec<(&'static str, OsString)>,
}

impl Gateway {
    /// Finds the program `casemate` in the directory `programs`. It uses every provider that it finds.
    pub fn in_directory(programs: &Path) -> Result<Self> {
        let program = programs.join("casemate");
        if !program.is_file() {
            return Err(Error::new(format!("{} not found", program.display())));
        }
        Ok(Self { program, environment: Vec::new() })
    }

    /// Hides Intel's library (ipsec-mb): an invalid file of the same name in `directory` precedes it in the
    /// library search path.
    pub fn without_ipsec_mb(mut self, directory: &Path) -> Result<Self> {
        let directory = directory.join("none");
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join("libIPSec_MB.so.1"), ""))
            .map_err(Error::context(directory.display()))?;
        self.environment.push(("LD_LIBRARY_PATH", directory.into()));
        Ok(self)
    }

    /// Hides the AES instructions of the processor. This hides Intel's library, too, which requires them, and
    /// the program then leaves out ring, which would use them.
    pub fn without_aes_instructions(self, directory: &Path) -> Result<Self> {
        let mut gateway = self.without_ipsec_mb(directory)?;
        let variable = CpuFeatureMask::NO_AES.map(CpuFeatureMask::env_var);
        gateway.environment.extend(variable.map(|(name, value)| (name, value.into())));
        Ok(gateway)
    }

    /// Keeps the files that survive a reboot in `directory`, which no other user may enter.
    pub fn with_state_in(mut self, directory: &Path) -> Self {
        self.environment.push(("STATE_DIRECTORY", directory.into()));
        self
    }

    /// Returns the drop reasons of one end that have occurred, with their counts.
    pub fn drops(&self, veth: &VethPair, end: usize) -> Result<Vec<(String, u64)>> {
        let status = self.status(veth, end)?;
        let drops = status["drops"].as_object().into_iter().flatten();
        let drops = drops.map(|(reason, count)| (reason.clone(), count.as_u64().unwrap_or_default()));
        Ok(drops.filter(|(_, count)| *count > 0).collect())
    }

    /// Returns the JSON object of `casemate status` at one end.
    pub fn status(&self, veth: &VethPair, end: usize) -> Result<Value> {
        let output = run(&veth.ends[end], START_TIMEOUT, &self.program, &["status", "--json"])?;
        serde_json::from_str(&output.stdout).map_err(|_| {
            Error::new(format!("casemate status ended with {}: {}", output.status, output.stdout))
        })
    }

    /// Starts the gateway with these arguments and waits until it is ready. Its output goes to the file `END`
    /// in `directory`.
    pub fn start<A: AsRef<OsStr>>(
        &self,
        veth: &VethPair,
        end: usize,
        arguments: impl IntoIterator<Item = A>,
        directory: &Path,
    ) -> Result<Background> {
        self.start_in(&veth.ends[end], arguments, &directory.join(end.to_string()))
    }

    /// Starts the gateway in any namespace. Its output goes to the file `output`.
    pub fn start_in<A: AsRef<OsStr>>(
        &self,
        netns: &Netns,
        arguments: impl IntoIterator<Item = A>,
        output: &Path,
    ) -> Result<Background> {
        let mut command = netns.command(&self.program);
        command.arg("run").args(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Background::start("casemate", command, output)?;
        process.wait_until(START_TIMEOUT, |said| said.lines().any(|line| line.trim_end() == "ready"))?;
        Ok(process)
    }
}

/// IKEv2 tunnel between both gateways, with a pre-shared key.
#[derive(Debug)]
pub struct IkeTunnel<'a> {
    /// ESP proposal, as in `esp_proposals`.
    pub suite: &'a str,
    /// Additional lines for the section of the connection.
    pub connection: &'a str,
    /// Additional lines for the section of the child.
    pub child: &'a str,
    /// Section `scheduler`, or an empty string.
    pub scheduler: &'a str,
}

impl IkeTunnel<'_> {
    /// Returns `swanctl.conf` of one end. The first packet triggers the tunnel, and no packet is sent in
    /// clear.
    pub fn swanctl_conf(&self, end: usize) -> String {
        let Self { suite, connection, child, scheduler } = self;
        let (local, remote) = (LINK_ADDRS[end], LINK_ADDRS[1 - end]);
        let (local_ts, remote_ts) = (INNER_ADDRS[end], INNER_ADDRS[1 - end]);
        format!(
            "connections {{\n tunnel {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
             proposals = aes128-sha256-x25519\n {connection}\n \
             local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
             children {{\n child {{\n local_ts = {local_ts}/32\n remote_ts = {remote_ts}/32\n \
             esp_proposals = {suite}\n start_action = trap\n {child}\n }}\n }}\n }}\n}}\n\
             secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n{scheduler}\n"
        )
    }

    /// Starts the gateway of one end, with its files in `directory`.
    pub fn start(
        &self,
        gateway: &Gateway,
        veth: &VethPair,
        end: usize,
        directory: &Path,
    ) -> Result<Background> {
        veth.route_via_link(end)?;
        let file = directory.join(format!("{end}.conf"));
        fs::write(&file, self.swanctl_conf(end)).map_err(Error::context(file.display()))?;
        gateway.start(veth, end, ["--config".into(), file], directory)
    }
}

/// Environment variable that AWS-LC and OpenSSL read at start to disable CPU instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuFeatureMask {
    name: &'static str,
    value: &'static str,
}

impl CpuFeatureMask {
    /// Disables the instructions for AES and for carry-less multiplication, which GCM uses; `None` on
    /// architectures without such a variable.
    ///
    /// On x86-64: bits 57 (AES) and 33 (PCLMULQDQ) of the first word, 41 (VAES) and 42 (VPCLMULQDQ) of the
    /// second (OPENSSL_ia32cap(3)). On ARM: bits 2 (AES) and 5 (PMULL) of AWS-LC's variable (`arm_arch.h`);
    /// OpenSSL does not interpret this value in the same way.
    pub const NO_AES: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self { name: "OPENSSL_ia32cap", value: "~0x200000200000000:~0x60000000000" })
    } else if cfg!(target_arch = "aarch64") {
        Some(Self { name: "OPENSSL_armcap", value: "~0x24" })
    } else {
        None
    };

    /// Name and value of the variable.
    pub const fn env_var(self) -> (&'static str, &'static str) {
        (self.name, self.value)
    }

    /// Whether this process runs with the instructions disabled.
    pub fn is_active(self) -> bool {
        std::env::var(self.name).is_ok_and(|value| value == self.value)
    }
}
