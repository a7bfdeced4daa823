//! Testbed: two hosts joined by a link, and a gateway on each.

use super::openssl::{TlsDownload, TlsFiles, TlsSmallFiles};
use super::scenario::{Aes, Encapsulation, Scenario};
use crate::{Context, hosts};
use casemate_testbed::file_downloads::FileDownloads;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Background, Error, Result, sys};
use std::path::PathBuf;
use std::time::Duration;

/// Interface of the gateways.
const INTERFACE: &str = "casemate0";
/// MTU of the link itself.
pub(super) const LINK_MTU: u32 = 1_500;
/// Length of the paper's small file in bytes.
pub(super) const SMALL_FILE: usize = 50_000;

/// What is downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Download {
    /// An endless file, over a link with this MTU.
    Endless(u32),
    /// Sequential downloads of [`SMALL_FILE`] bytes, each over a new connection, with the MTU of the link.
    SmallFiles,
}

impl From<u32> for Download {
    fn from(mtu: u32) -> Self {
        Self::Endless(mtu)
    }
}

/// Two hosts. Their link has no TCP segmentation offload, like network cards of the paper's time.
pub(super) struct Testbed {
    pub(super) veth: VethPair,
    gateway: Gateway,
    slow_gateway: Gateway,
    scratch: PathBuf,
}

/// The hosts with the running gateways of a scenario.
pub(super) struct RunningScenario<'g> {
    testbed: &'g Testbed,
    programs: Vec<Background>,
    scenario: Scenario,
    /// Files for TLS. Its programs run for one download only.
    content: Option<TlsFiles>,
}

/// Cost of a million bytes of an endless download, or of one small file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Elapsed time in milliseconds.
    pub(super) elapsed: f64,
    /// CPU time (user and system) of sender, receiver and gateways, in milliseconds.
    pub(super) cpu: f64,
}

impl Sample {
    /// Computes the cost per million bytes from the number of bytes.
    pub(super) fn of(bytes: f64, elapsed: Duration, cpu: Duration) -> Self {
        Self::each(bytes / 1e6, elapsed, cpu)
    }

    /// Computes the cost of one of `count` units.
    pub(super) fn each(count: f64, elapsed: Duration, cpu: Duration) -> Self {
        let of_one = |time: Duration| time.as_secs_f64() * 1e3 / count;
        Self { elapsed: of_one(elapsed), cpu: of_one(cpu) }
    }
}

impl Testbed {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let veth = VethPair::new()?;
        for end in 0..2 {
            veth.run_in(end, || sys::disable_tso("wire"))?;
            veth.route_via_link(end)?;
        }
        let programs =
            context.program.parent().ok_or_else(|| Error::new("the path of the program has no directory"))?;
        let gateway = Gateway::in_directory(programs)?;
        let slow_gateway = gateway.clone().without_aes_instructions(&context.scratch)?;
        Ok(Self { veth, gateway, slow_gateway, scratch: context.scratch.clone() })
    }

    /// Starts the gateways of a scenario.
    pub(super) fn start(&self, scenario: Scenario) -> Result<RunningScenario<'_>> {
        let mut programs = Vec::new();
        set_mtu(&self.veth, "wire", LINK_MTU)?;
        if scenario.encapsulation.is_ipsec() {
            let gateway = match scenario.aes {
                Aes::Instructions => &self.gateway,
                Aes::Software => &self.slow_gateway,
            };
            let more = ["--threads", &scenario.threads.to_string()];
            for end in 0..2 {
                let text = scenario.xfrm(end);
                programs.push(hosts::start_gateway(gateway, &self.veth, end, &text, &more, &self.scratch)?);
            }
        }
        let content = (scenario.encapsulation == Encapsulation::Tls)
            .then(|| TlsFiles::new(&self.scratch))
            .transpose()?;
        Ok(RunningScenario { testbed: self, programs, scenario, content })
    }
}

impl RunningScenario<'_> {
    /// Measures a download for this time.
    pub(super) fn measure(&self, download: Download, time: Duration) -> Result<Sample> {
        match download {
            Download::Endless(mtu) => {
                self.set_path_mtu(mtu)?;
                self.download(time)
            }
            Download::SmallFiles => {
                self.set_path_mtu(LINK_MTU)?;
                self.download_small_files(time)
            }
        }
    }

    /// Limits the length of the packets on the link.
    fn set_path_mtu(&self, mtu: u32) -> Result<()> {
        let interface = if self.scenario.encapsulation.is_ipsec() { INTERFACE } else { "wire" };
        set_mtu(&self.testbed.veth, interface, self.scenario.inner_mtu(mtu))
    }

    fn download(&self, time: Duration) -> Result<Sample> {
        let veth = &self.testbed.veth;
        let seen = match &self.content {
            None => hosts::watch(veth, &self.programs, time)?,
            Some(content) => {
                let fetch = TlsDownload::start(veth, content, self.scenario, &self.testbed.scratch)?;
                hosts::watch_counter(|| fetch.received(), fetch.programs(), time)?
            }
        };
        Ok(Sample::of(seen.bytes, seen.elapsed, seen.cpu + seen.hosts))
    }

    fn download_small_files(&self, time: Duration) -> Result<Sample> {
        let veth = &self.testbed.veth;
        let seen = match &self.content {
            None => {
                let fetch = FileDownloads::start(veth, SMALL_FILE)?;
                hosts::watch_counter(|| fetch.finished(), &self.programs, time)?
            }
            Some(content) => {
                let fetch = TlsSmallFiles::start(veth, content, self.scenario, &self.testbed.scratch)?;
                hosts::watch_counter(|| fetch.finished(), fetch.programs(), time)?
            }
        };
        // The counter counts files.
        Ok(Sample::each(seen.bytes, seen.elapsed, seen.cpu + seen.hosts))
    }
}

fn set_mtu(veth: &VethPair, interface: &str, mtu: u32) -> Result<()> {
    veth.ends.iter().try_for_each(|end| end.ip(&format!("link set {interface} mtu {mtu}\n")))
}

/// Returns why AES instructions cannot be hidden; `None` if they can.
pub(super) fn cannot_hide_aes() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("AES instructions can be hidden from a program on x86-64 only".into());
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = flags.split_whitespace().any(|flag| flag == "aes");
    (!has).then(|| "this processor has no AES instructions".into())
}
