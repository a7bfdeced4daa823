//! The three servers, each with a client of its own before it: the firmware and a Linux kernel, both emulated, and the Linux kernel of
//! this machine.

use super::protection::{self, ALL, CLIENT, Protection};
use crate::{Context, Need};
use casemate_stage::gateway::Gateway;
use casemate_stage::{
    Background, Content, Error, Firmware, FirmwareSpec, Guest, Images, Netns, NetworkSpec, Result,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For how long the firmware may boot.
const BOOT: Duration = Duration::from_secs(10);
const TAP: &str = "tap";
/// The guest's script when its interface is up: addresses, SAs, and the server, which ends with the guest.
const AGENT: &str = "\
/bin/casemate lab page &
for port in /dev/vport*p1; do
    printf '0 6\\nready\\n' >\"$port\"
done
wait
";
/// What Linux loads by itself on a processor with instructions for AES.
const MODULES: [&str; 1] = ["aesni_intel"];

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The machine without an operating system, emulated.
    Firmware,
    /// A Linux kernel with its own ESP, emulated in the same way.
    Guest,
    /// This machine's Linux kernel, with `casemate run`.
    Host,
}

/// All of them.
pub(super) const KINDS: [Kind; 3] = [Kind::Firmware, Kind::Guest, Kind::Host];

/// A server at work, with the client before it. All of it ends when it is dropped, the programs before their namespaces.
pub(super) struct Server {
    pub(super) kind: Kind,
    machines: Vec<Machine>,
    programs: Vec<Background>,
    /// Where the client is, and then others.
    namespaces: Vec<Netns>,
}

/// A machine under QEMU.
enum Machine {
    Firmware(Firmware),
    /// It is never asked anything.
    Guest {
        _guest: Guest,
    },
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Firmware => "firmware, emulated",
            Self::Guest => "Linux, emulated",
            Self::Host => "Linux, this machine",
        }
    }

    /// What it takes that not every machine has.
    pub(super) const fn needs(self) -> &'static [Need] {
        match self {
            Self::Firmware => &[Need::QEMU, Need::Firmware],
            Self::Guest => &[Need::QEMU, Need::GuestKernel, Need::BUSYBOX, Need::MODPROBE],
            Self::Host => &[],
        }
    }

    /// Starts it; that its addresses answer is not waited for.
    pub(super) fn start(self, context: &Context) -> Result<Server> {
        let directory = context.scratch.join(match self {
            Self::Firmware => "f",
            Self::Guest => "g",
            Self::Host => "h",
        });
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let site = Site { program: context.program.clone(), directory };
        match self {
            Self::Firmware => site.firmware(),
            Self::Guest => site.guest(&context.scratch),
            Self::Host => site.host(),
        }
    }
}

impl Server {
    /// Where the client is.
    pub(super) fn client(&self) -> Result<&Netns> {
        self.namespaces.first().ok_or_else(|| Error::new("no namespace"))
    }

    /// What its programs said, for an error.
    pub(super) fn said(&self) -> String {
        let machines = self.machines.iter().map(|machine| match machine {
            Machine::Firmware(firmware) => firmware.said(),
            Machine::Guest { .. } => String::new(),
        });
        machines.chain(self.programs.iter().map(Background::said)).collect::<Vec<_>>().join("\n")
    }
}

/// The program, and where files may be left.
struct Site {
    program: PathBuf,
    directory: PathBuf,
}

impl Site {
    /// Four machines on a bridge, because each has one address and one protection.
    fn firmware(&self) -> Result<Server> {
        let image = Need::Firmware.path().ok_or_else(|| Error::new("no image of the firmware"))?;
        let client = bridge(ALL.len())?;
        let configuration = self.write("swanctl.conf", &protection::swanctl())?;
        let gateway = self.gateway(&client, "client", &["--config".as_ref(), configuration.as_ref()])?;
        let boot = |(place, protection): (usize, &Protection)| {
            let directory = self.directory.join(place.to_string());
            fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
            let (tap, mac) = (format!("{TAP}{place}"), mac(place));
            let spec = FirmwareSpec {
                image: &image,
                machine: "pc",
                tap: &tap,
                mac: &mac,
                captures: false,
                words: &protection.firmware(),
                directory: &directory,
            };
            let mut firmware = Firmware::boot(&client, spec)?;
            firmware.wait_until(BOOT, |said| said.contains("\nready"))?;
            Ok(Machine::Firmware(firmware))
        };
        let machines = ALL.iter().enumerate().map(boot).collect::<Result<_>>()?;
        Ok(Server { kind: Kind::Firmware, machines, programs: vec![gateway], namespaces: vec![client] })
    }

    /// One machine on a bridge, whose kernel has an address for each protection.
    fn guest(&self, cache: &Path) -> Result<Server> {
        let root = Need::GuestKernel.path().ok_or_else(|| Error::new("no kernel for a guest"))?;
        let client = bridge(1)?;
        let gateway = self.with_keys(&client, true)?;
        let lines: String = addresses("eth0") + &protection::xfrm(false);
        let script = format!("/sbin/ip -batch - <<'END'\n{lines}END\n{AGENT}");
        let content = Content::new(&script, ("bin/casemate", &self.program))?.with_modules(&MODULES);
        let images = Images::build(&root, &cache.join("images"), &content)?;
        let network = NetworkSpec { netns: &client, tap: &format!("{TAP}0"), mac: &mac(0) };
        let guest = Guest::boot(&images, network, &self.directory.join("console"))?;
        let machines = vec![Machine::Guest { _guest: guest }];
        Ok(Server { kind: Kind::Guest, machines, programs: vec![gateway], namespaces: vec![client] })
    }

    /// Another namespace, with the same program as in the guest.
    fn host(&self) -> Result<Server> {
        let (client, server) = (Netns::new()?, Netns::new()?);
        client.ip(&format!(
            "link add wire type veth peer name wire netns {}\nlink set wire up\naddr add {CLIENT}/24 dev wire\n",
            server.pid()
        ))?;
        server.ip(&format!("link set wire up\n{}", addresses("wire")))?;
        let mut programs = vec![self.with_keys(&client, true)?, self.with_keys(&server, false)?];
        let mut command = server.command(&self.program);
        command.args(["lab", "page"]);
        programs.push(Background::start("casemate lab page", command, &self.directory.join("page"))?);
        Ok(Server { kind: Kind::Host, machines: Vec::new(), programs, namespaces: vec![client, server] })
    }

    /// `casemate run` with manual keys.
    fn with_keys(&self, netns: &Netns, is_client: bool) -> Result<Background> {
        let name = if is_client { "client" } else { "server" };
        let file = self.write(&format!("{name}.xfrm"), &protection::xfrm(is_client))?;
        let counters = self.directory.join(format!("{name}.counters"));
        let words = ["--xfrm".as_ref(), file.as_path(), "--counters".as_ref(), counters.as_path()]
            .map(Path::as_os_str);
        self.gateway(netns, name, &words)
    }

    fn gateway(&self, netns: &Netns, name: &str, words: &[&std::ffi::OsStr]) -> Result<Background> {
        let programs = self.program.parent().ok_or_else(|| Error::new("the program is nowhere"))?;
        Gateway::in_directory(programs)?.run_in(netns, words, &self.directory.join(name))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.directory.join(name);
        fs::write(&file, text).map_err(Error::in_front(file.display()))?;
        Ok(file)
    }
}

/// A client on a bridge with so many taps: the paper's hub.
fn bridge(taps: usize) -> Result<Netns> {
    let netns = Netns::new()?;
    let mut lines = format!("link add hub type bridge\nlink set hub up\naddr add {CLIENT}/24 dev hub\n");
    for place in 0..taps {
        let tap = format!("{TAP}{place}");
        lines.push_str(&format!("tuntap add dev {tap} mode tap\nlink set {tap} master hub up\n"));
    }
    netns.ip(&lines)?;
    Ok(netns)
}

fn mac(place: usize) -> String {
    format!("52:54:00:09:00:{:02x}", place + 2)
}

/// Lines of `ip -batch` that give an interface all addresses of the server.
fn addresses(interface: &str) -> String {
    let line = |protection: &Protection| format!("addr add {}/24 dev {interface}\n", protection.server());
    ALL.iter().map(line).collect()
}
