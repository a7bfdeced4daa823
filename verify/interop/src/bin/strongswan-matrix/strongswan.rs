//! Peer strongSwan: `charon-systemd`, controlled by `swanctl`. Every case has its own daemon.
//!
//! In a namespace, strongSwan uses its own ESP, the plugin kernel-libipsec. That plugin supports ESP in UDP
//! only, so charon claims to be behind a NAT, and ESP uses port 4500. In a guest, strongSwan uses the ESP
//! and AH of the kernel.

use crate::peer::{ChildSa, IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::plan::Conf;
use crate::plan::SidePlan;
use crate::platform::{Daemon, Program, ProgramHost};
use crate::wireshark;
use casemate_interop::{Error, Listing, Result};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Limit in seconds for `swanctl` to wait for an SA.
const SA_LIMIT: &str = "8";

/// ESP implementation that strongSwan uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Esp {
    /// The plugin kernel-libipsec, in a namespace.
    Libipsec,
    /// The kernel, in a guest.
    Kernel,
}

/// Programs of strongSwan, and their directories in Debian.
const PROGRAMS: [&str; 2] = ["charon-systemd", "swanctl"];
const PROGRAMS_DIRECTORY: &str = "/usr/sbin";
const PLUGINS_DIRECTORY: &str = "/usr/lib/ipsec/plugins";
/// Plugins that charon loads. Debian's own configuration has kernel-netlink only, which needs a kernel with
/// ESP.
const PLUGINS: &str = "random nonce kdf aes sha1 sha2 hmac mgf1 pem pkcs1 pkcs8 x509 pubkey constraints curve25519 gcm ccm \
     cmac xcbc ctr gmp openssl chapoly kernel-libipsec kernel-netlink socket-default vici updown resolve revocation \
     md5 eap-identity eap-mschapv2 eap-md5 eap-gtc eap-tls eap-ttls";
const LIBIPSEC: &str = "kernel-libipsec";

/// Script that takes the daemon from a root directory: the files of the cases are below `/tmp`.
const IN_ROOT: &str = "#!/bin/sh
exec unshare --mount --propagation private sh -c '
for i in dev proc tmp; do mount --rbind /$i \"$1/$i\" || exit 1; done
exec chroot \"$1\" /usr/sbin/charon-systemd' sh ";

/// Directory of the programs of strongSwan.
pub(crate) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Copies the programs to `directory`. In Debian, AppArmor restricts the path
    /// `/usr/sbin/charon-systemd` to the files of the daemon of the system. With `root`, the daemon is that
    /// of another release of Debian, which is unpacked there.
    pub(crate) fn copy_to(directory: &Path, root: Option<&Path>) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        for program in PROGRAMS {
            let from = Path::new(PROGRAMS_DIRECTORY).join(program);
            fs::copy(&from, directory.join(program)).map_err(Error::context(format!(
                "{} (Debian packages charon-systemd and strongswan-swanctl)",
                from.display()
            )))?;
        }
        if let Some(root) = root {
            let script = directory.join("charon-systemd");
            let text = format!("{IN_ROOT}'{}'\n", root.display());
            fs::write(&script, text).map_err(Error::context(script.display()))?;
        }
        Ok(Self { directory: directory.into() })
    }

    /// Returns the directory of the programs in a guest, which has no AppArmor.
    pub(crate) fn in_guest() -> Self {
        Self { directory: PROGRAMS_DIRECTORY.into() }
    }

    /// Returns the files of the host that a guest needs: programs and plugins.
    pub(crate) fn for_guest() -> impl Iterator<Item = PathBuf> {
        let programs = PROGRAMS.iter().map(|program| Path::new(PROGRAMS_DIRECTORY).join(program));
        let plugin = |name: &str| Path::new(PLUGINS_DIRECTORY).join(format!("libstrongswan-{name}.so"));
        programs.chain(plugins(Esp::Kernel).map(plugin))
    }
}

fn plugins(esp: Esp) -> impl Iterator<Item = &'static str> {
    PLUGINS.split_whitespace().filter(move |&name| esp == Esp::Libipsec || name != LIBIPSEC)
}

/// Daemon of strongSwan and its files.
pub(crate) struct StrongSwan {
    platform: Rc<dyn ProgramHost>,
    esp: Esp,
    programs: Arc<Programs>,
    pki: Arc<Pki>,
    directory: PathBuf,
    daemon: Option<Box<dyn Daemon>>,
}

impl StrongSwan {
    /// Creates the peer on `platform`, with this ESP implementation and all its files in `directory`.
    pub(crate) fn new(
        platform: Rc<dyn ProgramHost>,
        esp: Esp,
        programs: Arc<Programs>,
        pki: Arc<Pki>,
        directory: PathBuf,
    ) -> Self {
        Self { platform, esp, programs, pki, directory, daemon: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.directory.join(name)
    }

    fn settings(&self, plan: &SidePlan) -> Conf {
        let mut daemon = plan.daemon.clone();
        daemon.set("load", &plugins(self.esp).collect::<Vec<_>>().join(" "));
        daemon.set("plugins.vici.socket", &format!("unix://{}", self.file("charon.vici").display()));
        daemon.set("plugins.kernel-libipsec.allow_peer_ts", "yes");
        daemon.set("plugins.resolve.file", &self.file("resolv.conf").display().to_string());
        daemon.set("journal.default", "-1");
        daemon.set("filelog.file.path", &self.file("log").display().to_string());
        daemon.set("filelog.file.flush_line", "yes");
        daemon.set("filelog.file.default", "1");
        // Includes all keys.
        daemon.set("filelog.file.ike", "4");
        daemon.set("filelog.file.chd", "4");
        daemon.set("filelog.file.cfg", "2");
        let mut conf = Conf::default();
        conf.put("charon-systemd", daemon);
        // Cases in a guest use no certificates, and the plugins for certificates load slowly there.
        let readers = if self.esp == Esp::Kernel {
            "random"
        } else {
            "random pem pkcs1 pkcs8 x509 pubkey openssl curve25519"
        };
        conf.set("swanctl.load", readers);
        conf
    }

    fn write(&self, plan: &SidePlan) -> Result<()> {
        // swanctl reports every directory that does not exist.
        let directories =
            "x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa bliss pkcs8 pkcs12";
        for directory in directories.split(' ').map(|name| self.file(name)) {
            fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        }
        for credential in &plan.credentials {
            self.pki.install(*credential, &self.directory)?;
        }
        for (name, conf) in [("swanctl.conf", &plan.conf), ("strongswan.conf", &self.settings(plan))] {
            let file = self.file(name);
            fs::write(&file, conf.to_string()).map_err(Error::context(file.display()))?;
        }
        self.platform.copy_files(&self.directory)
    }

    /// Runs `swanctl`. Returns its output as the error if it fails.
    fn swanctl(&self, arguments: &[&str]) -> Result<String> {
        let (program, conf) = (self.program("swanctl"), self.file("strongswan.conf"));
        let environment = [("SWANCTL_DIR", self.directory.as_path()), ("STRONGSWAN_CONF", &conf)];
        let uri = format!("unix://{}", self.file("charon.vici").display());
        let arguments_and_uri = [arguments, &["--uri", &uri]].concat();
        let program = Program { path: &program, environment: &environment };
        let output = self.platform.run(program, &arguments_and_uri)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::new(format!("swanctl {}: {}", arguments.join(" "), output.stdout.trim_end())))
    }

    fn load(&self) -> Result<()> {
        let output = self.swanctl(&["--load-all", "--clear", "--noprompt"])?;
        // swanctl succeeds even if it could not load a private key.
        match output.lines().find(|line| line.contains("failed")) {
            None => Ok(()),
            Some(line) => Err(Error::new(format!("swanctl --load-all: {line}"))),
        }
    }
}

impl Peer for StrongSwan {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        let (program, conf) = (self.program("charon-systemd"), self.file("strongswan.conf"));
        let program = Program { path: &program, environment: &[("STRONGSWAN_CONF", &conf)] };
        let daemon = self.platform.start(program, &self.file("output"), &self.file("charon.vici"))?;
        self.daemon = Some(daemon);
        self.load()
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        self.load()
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = target_arguments(target);
        self.swanctl(&["--initiate", option, name, "--timeout", SA_LIMIT]).map(drop)
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = target_arguments(target);
        self.swanctl(&["--terminate", option, name, "--timeout", SA_LIMIT]).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = target_arguments(target);
        self.swanctl(&["--rekey", option, name]).map(drop)
    }

    fn redirect(&mut self, connection: &str, gateway: &str) -> Result<()> {
        self.swanctl(&["--redirect", "--ike", connection, "--gateway", gateway]).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        let listing = Listing::parse(&self.swanctl(&["--list-sas", "--pretty"])?);
        let sas = listing.sections.iter().flat_map(|(_, event)| &event.sections);
        sas.filter(|(_, sa)| sa.value("state") == "ESTABLISHED").map(|(name, sa)| ike_sa(name, sa)).collect()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        let file = self.platform.read(&self.file("resolv.conf"));
        let servers = file.lines().filter_map(|line| line.strip_prefix("nameserver "));
        servers.map(|rest| rest.split(' ').next().unwrap_or(rest)).map(address).collect()
    }

    fn dpd_timeout(&self) -> Duration {
        // Timeouts of `cases::rekey`: three messages, half a second apart.
        Duration::from_secs(6)
    }

    fn cookie_threshold(&self) -> usize {
        // Threshold of `cases::negotiation`.
        1
    }

    fn keys(&self) -> Result<PathBuf> {
        let directory = self.file("wireshark");
        let spis: Vec<_> = self.status()?.into_iter().map(|sa| (sa.spi_i, sa.spi_r)).collect();
        wireshark::from_log(&self.log(), &directory, &spis)?;
        Ok(directory)
    }

    fn log(&self) -> String {
        self.platform.read(&self.file("log"))
    }

    fn stop(&mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), |daemon| daemon.stop().map_err(Error::context("charon")))
    }
}

fn target_arguments(target: Target<'_>) -> (&'static str, &str) {
    match target {
        Target::Ike(name) => ("--ike", name),
        Target::Child(name) => ("--child", name),
    }
}

fn ike_sa(name: &str, sa: &Listing) -> Result<IkeSa> {
    let children = sa.section("child-sas").map(|children| children.sections.as_slice()).unwrap_or_default();
    let carries = |child: &Listing| matches!(child.value("state"), "INSTALLED" | "REKEYING");
    let port = sa.value("remote-port").parse().map_err(Error::context("remote-port"))?;
    Ok(IkeSa {
        name: name.into(),
        spi_i: sa.value("initiator-spi").into(),
        spi_r: sa.value("responder-spi").into(),
        remote: SocketAddr::new(address(sa.value("remote-host"))?, port),
        vips: sa.list("local-vips").iter().map(|text| address(text)).collect::<Result<_>>()?,
        children: children
            .iter()
            .filter(|(_, child)| carries(child))
            .map(|(_, child)| child_sa(child))
            .collect(),
    })
}

fn child_sa(child: &Listing) -> ChildSa {
    ChildSa {
        name: child.value("name").into(),
        spi_in: child.value("spi-in").into(),
        spi_out: child.value("spi-out").into(),
        local_ts: selectors(child, "local-ts"),
        remote_ts: selectors(child, "remote-ts"),
        bytes_in: child.value("bytes-in").parse().unwrap_or_default(),
        bytes_out: child.value("bytes-out").parse().unwrap_or_default(),
    }
}

/// Returns traffic selectors with numeric ports; strongSwan prints the name of a registered service.
fn selectors(child: &Listing, list: &str) -> Vec<String> {
    child.list(list).iter().map(|text| text.replace("/echo]", "/7]")).collect()
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(Error::context(format!("address `{text}`")))
}
