//! The three servers, each with its own client: firmware and a Linux kernel, both emulated, and the Linux
//! kernel of this machine.

use super::protection::{self, ALL, CLIENT, Protection};
use crate::{Artifact, Context};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::{
    Background, Error, Firmware, FirmwareSpec, Guest, GuestImages, GuestNetwork, InitrdContent, Netns, Result,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for the boot of the firmware.
const BOOT_TIMEOUT: Duration = Duration::from_secs(30);
const TAP: &str = "tap";
/// Agent of the guest, which runs when its interface is up. It starts the server, which ends with the guest.
const AGENT: &str = "\
/bin/casemate lab page &
for port in /dev/vport*p1; do
    printf '0 6\\nready\\n' >\"$port\"
done
wait
";
/// Module that Linux loads automatically on a processor with AES instructions.
const MODULES: [&str; 1] = ["aesni_intel"];

/// Kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// Emulated machine without an operating system.
    Firmware,
    /// Emulated Linux kernel with its own ESP.
    Guest,
    /// Linux kernel of this machine, with `casemate run`.
    Host,
}

/// All kinds.
pub(super) const KINDS: [ServerKind; 3] = [ServerKind::Firmware, ServerKind::Guest, ServerKind::Host];

/// A running server and its client. Dropping it ends the programs before their namespaces.
pub(super) struct Server {
    pub(super) kind: ServerKind,
    machines: Vec<Machine>,
    programs: Vec<Background>,
    /// Namespace of the client, followed by others.
    namespaces: Vec<Netns>,
}

/// A machine under QEMU.
enum Machine {
    Firmware(Firmware),
    /// The guest is only kept alive.
    Guest {
        _guest: Guest,
    },
}

impl ServerKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Firmware => "firmware, emulated",
            Self::Guest => "Linux, emulated",
            Self::Host => "Linux, this machine",
        }
    }

    /// What the server boots from, if it is emulated.
    pub(super) const fn artifact(self) -> Option<Artifact> {
        match self {
            Self::Firmware => Some(Artifact::Firmware),
            Self::Guest => Some(Artifact::GuestKernel),
            Self::Host => None,
        }
    }

    /// Starts the server from its artifact, without waiting until its addresses respond.
    pub(super) fn start(self, context: &Context, artifact: &Path) -> Result<Server> {
        let directory = context.scratch.join(match self {
            Self::Firmware => "f",
            Self::Guest => "g",
            Self::Host => "h",
        });
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let site = ServerSetup { program: context.program.clone(), directory };
        match self {
            Self::Firmware => site.firmware(artifact),
            Self::Guest => site.guest(artifact, &context.scratch),
            Self::Host => site.host(),
        }
    }
}

impl Server {
    /// Namespace of the client.
    pub(super) fn client(&self) -> Result<&Netns> {
        self.namespaces.first().ok_or_else(|| Error::new("no namespace"))
    }

    /// Output of the programs, for error messages.
    pub(super) fn output(&self) -> String {
        let machines = self.machines.iter().map(|machine| match machine {
            Machine::Firmware(firmware) => firmware.console_output(),
            Machine::Guest { .. } => String::new(),
        });
        machines.chain(self.programs.iter().map(Background::output)).collect::<Vec<_>>().join("\n")
    }
}

/// Program and directory for the files of a server.
struct ServerSetup {
    program: PathBuf,
    directory: PathBuf,
}

impl ServerSetup {
    /// Starts four machines on a bridge, because each firmware has one address and one protection.
    fn firmware(&self, image: &Path) -> Result<Server> {
        let client = bridge(ALL.len())?;
        let configuration = self.write("swanctl.conf", &protection::swanctl())?;
        let gateway = self.gateway(&client, "client", &["--config".as_ref(), configuration.as_ref()])?;
        let boot = |(place, protection): (usize, &Protection)| {
            let directory = self.directory.join(place.to_string());
            fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
            let (tap, mac) = (format!("{TAP}{place}"), mac(place));
            let spec = FirmwareSpec {
                image,
                machine: "pc",
                tap: &tap,
                mac: &mac,
                capture: false,
                config: &protection.firmware(),
                directory: &directory,
            };
            let mut firmware = Firmware::boot(&client, spec)?;
            firmware.wait_until(BOOT_TIMEOUT, |said| said.contains("\nready"))?;
            Ok(Machine::Firmware(firmware))
        };
        let machines = ALL.iter().enumerate().map(boot).collect::<Result<_>>()?;
        Ok(Server { kind: ServerKind::Firmware, machines, programs: vec![gateway], namespaces: vec![client] })
    }

    /// Starts one machine on a bridge. Its kernel has one address for each protection.
    fn guest(&self, kernel: &Path, cache: &Path) -> Result<Server> {
        let client = bridge(1)?;
        let gateway = self.gateway_with_keys(&client, true)?;
        let lines: String = addresses("eth0") + &protection::xfrm(false);
        let script = format!("/sbin/ip -batch - <<'END'\n{lines}END\n{AGENT}");
        let content = InitrdContent::new(&script, "bin/casemate", &self.program)?.with_modules(&MODULES);
        let images = GuestImages::build(kernel, &cache.join("images"), &content)?;
        let network = GuestNetwork { netns: &client, tap: &format!("{TAP}0"), mac: &mac(0) };
        let guest = Guest::boot(&images, network, &self.directory.join("console"))?;
        let machines = vec![Machine::Guest { _guest: guest }];
        Ok(Server { kind: ServerKind::Guest, machines, programs: vec![gateway], namespaces: vec![client] })
    }

    /// Starts the server in a separate namespace, with the same program as in the guest.
    fn host(&self) -> Result<Server> {
        let (client, server) = (Netns::new()?, Netns::new()?);
        client.ip(&format!(
            "link add wire type veth peer name wire netns {}\nlink set wire up\n\
             addr add {CLIENT}/24 dev wire\n",
            server.pid()
        ))?;
        server.ip(&format!("link set wire up\n{}", addresses("wire")))?;
        let mut programs =
            vec![self.gateway_with_keys(&client, true)?, self.gateway_with_keys(&server, false)?];
        let mut command = server.command(&self.program);
        command.args(["lab", "page"]);
        programs.push(Background::start("casemate lab page", command, &self.directory.join("page"))?);
        Ok(Server {
            kind: ServerKind::Host,
            machines: Vec::new(),
            programs,
            namespaces: vec![client, server],
        })
    }

    /// Starts `casemate run` with manual keys.
    fn gateway_with_keys(&self, netns: &Netns, is_client: bool) -> Result<Background> {
        let name = if is_client { "client" } else { "server" };
        let file = self.write(&format!("{name}.xfrm"), &protection::xfrm(is_client))?;
        let counters = self.directory.join(format!("{name}.counters"));
        let words = ["--xfrm".as_ref(), file.as_path(), "--counters".as_ref(), counters.as_path()]
            .map(Path::as_os_str);
        self.gateway(netns, name, &words)
    }

    fn gateway(&self, netns: &Netns, name: &str, words: &[&std::ffi::OsStr]) -> Result<Background> {
        let programs =
            self.program.parent().ok_or_else(|| Error::new("the path of the program has no directory"))?;
        Gateway::in_directory(programs)?.start_in(netns, words, &self.directory.join(name))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.directory.join(name);
        fs::write(&file, text).map_err(Error::context(file.display()))?;
        Ok(file)
    }
}

/// Creates a client on a bridge with this many TAP interfaces. It represents the hub of the paper.
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

/// Lines of `ip -batch` that add all addresses of the server to an interface.
fn addresses(interface: &str) -> String {
    let line = |protection: &Protection| format!("addr add {}/24 dev {interface}\n", protection.server());
    ALL.iter().map(line).collect()
}
