//! Where it takes place: two hosts with a link between them, and a gateway on each.

use super::openssl::{Content, Fetch};
use super::setting::{Aes, Form, Setting};
use crate::{Context, download, manual};
use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::{Background, Error, Result, sys};
use std::path::PathBuf;
use std::time::Duration;

/// The gateways' interface.
const INTERFACE: &str = "casemate0";
/// The link's own MTU.
const LINK_MTU: u32 = 1_500;

/// Two hosts. Their link gets what TCP sends segment by segment, as network cards of then did.
pub(super) struct Ground {
    pub(super) arena: Arena,
    gateway: Gateway,
    slow_gateway: Gateway,
    scratch: PathBuf,
}

/// The hosts with what a setting needs, its gateways at work.
pub(super) struct Site<'g> {
    ground: &'g Ground,
    programs: Vec<Background>,
    setting: Setting,
    /// For TLS, whose programs are those of a download.
    content: Option<Content>,
}

/// What a download cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// Milliseconds for a million bytes of the file.
    pub(super) elapsed: f64,
    /// CPU time for it, user and system: of sender and receiver, and of the gateways between them.
    pub(super) cpu: f64,
}

impl Outcome {
    /// Of so many bytes.
    pub(super) fn of(bytes: f64, elapsed: Duration, cpu: Duration) -> Self {
        let per_million = |time: Duration| time.as_secs_f64() * 1e9 / bytes;
        Self { elapsed: per_million(elapsed), cpu: per_million(cpu) }
    }
}

impl Ground {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let arena = Arena::new()?;
        for end in 0..2 {
            arena.inside(end, || sys::cut_before("wire"))?;
            arena.route_over_link(end)?;
        }
        let programs = context.program.parent().ok_or_else(|| Error::new("the program is nowhere"))?;
        let gateway = Gateway::in_directory(programs)?;
        let slow_gateway = gateway.clone().without_aes_instructions(&context.scratch)?;
        Ok(Self { arena, gateway, slow_gateway, scratch: context.scratch.clone() })
    }

    /// Starts what the setting needs.
    pub(super) fn enter(&self, setting: Setting) -> Result<Site<'_>> {
        let mut programs = Vec::new();
        set_mtu(&self.arena, "wire", LINK_MTU)?;
        if setting.form.is_ipsec() {
            let gateway = match setting.aes {
                Aes::Instructions => &self.gateway,
                Aes::Software => &self.slow_gateway,
            };
            let more = ["--threads", &setting.threads.to_string()];
            for end in 0..2 {
                let text = setting.file(end);
                programs.push(manual::start(gateway, &self.arena, end, &text, &more, &self.scratch)?);
            }
        }
        let content = (setting.form == Form::Tls).then(|| Content::new(&self.scratch)).transpose()?;
        Ok(Site { ground: self, programs, setting, content })
    }
}

impl Site<'_> {
    /// Has no packet on the link be longer than this.
    pub(super) fn limit(&self, mtu: u32) -> Result<()> {
        let interface = if self.setting.form.is_ipsec() { INTERFACE } else { "wire" };
        set_mtu(&self.ground.arena, interface, self.setting.inner_mtu(mtu))
    }

    /// A download that is watched for so long.
    pub(super) fn download(&self, time: Duration) -> Result<Outcome> {
        let arena = &self.ground.arena;
        let seen = match &self.content {
            None => download::watch(arena, &self.programs, time)?,
            Some(content) => {
                let fetch = Fetch::begin(arena, content, self.setting, &self.ground.scratch)?;
                download::watch_other(|| fetch.received(), fetch.programs(), time)?
            }
        };
        Ok(Outcome::of(seen.bytes, seen.elapsed, seen.cpu + seen.hosts))
    }
}

fn set_mtu(arena: &Arena, interface: &str, mtu: u32) -> Result<()> {
    arena.ends.iter().try_for_each(|end| end.ip(&format!("link set {interface} mtu {mtu}\n")))
}

/// Why the instructions for AES cannot be hidden here; `None` if they can.
pub(super) fn cannot_hide_aes() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("AES instructions can be hidden from a program on x86-64 only".into());
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = flags.split_whitespace().any(|flag| flag == "aes");
    (!has).then(|| "this processor has no AES instructions".into())
}
