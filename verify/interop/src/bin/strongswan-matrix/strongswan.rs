//! strongSwan as a peer: `charon-systemd` with its own ESP (plugin kernel-libipsec), driven by `swanctl`.
//!
//! Every case has a daemon of its own, which is up in some 20 ms. kernel-libipsec knows ESP in UDP only, so charon says of
//! itself that it is behind a NAT, and ESP travels on port 4500.

use crate::conf::Conf;
use crate::peer::{ChildSa, IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::plan::SidePlan;
use crate::pretty::Section;
use crate::wireshark;
use casemate_interop::{Background, Error, Netns, Result, run};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(5);
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long `swanctl` waits for an SA, and we for `swanctl`.
const SA_LIMIT: &str = "8";
const LIMIT: Duration = Duration::from_secs(10);

/// The programs that strongSwan is made of.
const PROGRAMS: [&str; 2] = ["charon-systemd", "swanctl"];
/// What charon shall load. Debian's own configuration has kernel-netlink alone, which needs a kernel with ESP.
const PLUGINS: &str = "random nonce kdf aes sha1 sha2 hmac mgf1 pem pkcs1 pkcs8 x509 pubkey constraints curve25519 gcm ccm \
     cmac xcbc ctr gmp openssl chapoly kernel-libipsec kernel-netlink socket-default vici updown resolve revocation";

/// Copies of strongSwan's programs. Debian confines `/usr/sbin/charon-systemd` by AppArmor, by that path, to the files of
/// the system's own daemon.
pub(crate) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Copies the programs to `directory`.
    pub(crate) fn copy_to(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
        for program in PROGRAMS {
            let from = Path::new("/usr/sbin").join(program);
            fs::copy(&from, directory.join(program)).map_err(Error::in_front(format!(
                "{} (Debian packages charon-systemd and strongswan-swanctl)",
                from.display()
            )))?;
        }
        Ok(Self { directory: directory.into() })
    }
}

/// A daemon and its files.
pub(crate) struct StrongSwan {
    netns: Rc<Netns>,
    programs: Arc<Programs>,
    pki: Arc<Pki>,
    directory: PathBuf,
    daemon: Option<Background>,
}

impl StrongSwan {
    /// In `netns`, with all files in `directory`.
    pub(crate) fn new(netns: Rc<Netns>, programs: Arc<Programs>, pki: Arc<Pki>, directory: PathBuf) -> Self {
        Self { netns, programs, pki, directory, daemon: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.directory.join(name)
    }

    fn settings(&self, plan: &SidePlan) -> Conf {
        let mut daemon = plan.daemon.clone();
        daemon.set("load", PLUGINS);
        daemon.set("plugins.vici.socket", &format!("unix://{}", self.file("charon.vici").display()));
        daemon.set("plugins.kernel-libipsec.allow_peer_ts", "yes");
        daemon.set("plugins.resolve.file", &self.file("resolv.conf").display().to_string());
        daemon.set("journal.default", "-1");
        daemon.set("filelog.file.path", &self.file("log").display().to_string());
        daemon.set("filelog.file.flush_line", "yes");
        daemon.set("filelog.file.default", "1");
        // With all keys.
        daemon.set("filelog.file.ike", "4");
        daemon.set("filelog.file.chd", "4");
        daemon.set("filelog.file.cfg", "2");
        let mut conf = Conf::default();
        conf.put("charon-systemd", daemon);
        conf.set("swanctl.load", "random pem pkcs1 pkcs8 x509 pubkey openssl curve25519");
        conf
    }

    fn write(&self, plan: &SidePlan) -> Result<()> {
        // swanctl complains of every directory that is not there.
        let directories =
            "x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa bliss pkcs8 pkcs12";
        for directory in directories.split(' ').map(|name| self.file(name)) {
            fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        }
        for credential in &plan.credentials {
            self.pki.install(*credential, &self.directory)?;
        }
        for (name, conf) in [("swanctl.conf", &plan.conf), ("strongswan.conf", &self.settings(plan))] {
            let file = self.file(name);
            fs::write(&file, conf.to_string()).map_err(Error::in_front(file.display()))?;
        }
        Ok(())
    }

    /// Runs `swanctl`; what it said is the error when it fails.
    fn swanctl(&self, arguments: &[&str]) -> Result<String> {
        let environment = [
            format!("SWANCTL_DIR={}", self.directory.display()),
            format!("STRONGSWAN_CONF={}", self.file("strongswan.conf").display()),
            self.program("swanctl").display().to_string(),
        ];
        let mut words: Vec<&str> = environment.iter().map(String::as_str).collect();
        words.extend(arguments);
        let uri = format!("unix://{}", self.file("charon.vici").display());
        words.extend(["--uri", &uri]);
        let output = run(&self.netns, LIMIT, "env", &words)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::new(format!("swanctl {}: {}", arguments.join(" "), last_line(&output.stdout))))
    }

    fn load(&self) -> Result<()> {
        let said = self.swanctl(&["--load-all", "--clear", "--noprompt"])?;
        // It succeeds even if it could not load a private key.
        match said.lines().find(|line| line.contains("failed")) {
            None => Ok(()),
            Some(line) => Err(Error::new(format!("swanctl --load-all: {line}"))),
        }
    }
}

impl Peer for StrongSwan {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        let mut command = self.netns.command(self.program("charon-systemd"));
        command.env("STRONGSWAN_CONF", self.file("strongswan.conf"));
        let mut daemon = Background::start("charon", command, &self.file("output"))?;
        let socket = self.file("charon.vici");
        daemon.wait_until(START_LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
        self.daemon = Some(daemon);
        self.load()
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        self.load()
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = words(target);
        self.swanctl(&["--initiate", option, name, "--timeout", SA_LIMIT]).map(drop)
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = words(target);
        self.swanctl(&["--terminate", option, name, "--timeout", SA_LIMIT]).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        let (option, name) = words(target);
        self.swanctl(&["--rekey", option, name]).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        let listing = Section::parse(&self.swanctl(&["--list-sas", "--pretty"])?);
        let sas = listing.sections.iter().flat_map(|(_, event)| &event.sections);
        sas.filter(|(_, sa)| sa.value("state") == "ESTABLISHED").map(|(name, sa)| ike_sa(name, sa)).collect()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        let file = fs::read_to_string(self.file("resolv.conf")).unwrap_or_default();
        let servers = file.lines().filter_map(|line| line.strip_prefix("nameserver "));
        servers.map(|rest| rest.split(' ').next().unwrap_or(rest)).map(address).collect()
    }

    fn patience(&self) -> Duration {
        // What `cases::rekey` sets: three messages, half a second apart.
        Duration::from_secs(6)
    }

    fn cookie_threshold(&self) -> usize {
        // What `cases::negotiation` sets.
        1
    }

    fn keys(&self) -> Result<PathBuf> {
        let directory = self.file("wireshark");
        let spis: Vec<_> = self.status()?.into_iter().map(|sa| (sa.spi_i, sa.spi_r)).collect();
        wireshark::from_log(&self.log(), &directory, &spis)?;
        Ok(directory)
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.file("log")).unwrap_or_default()).into_owned()
    }

    fn stop(&mut self) -> Result<()> {
        match self.daemon.take().map(|daemon| daemon.stop(STOP_LIMIT)).transpose()? {
            Some(status) if !status.success() => Err(Error::new(format!("charon ended with {status}"))),
            _ => Ok(()),
        }
    }
}

fn words(target: Target<'_>) -> (&'static str, &str) {
    match target {
        Target::Ike(name) => ("--ike", name),
        Target::Child(name) => ("--child", name),
    }
}

fn ike_sa(name: &str, sa: &Section) -> Result<IkeSa> {
    let children = sa.section("child-sas").map(|children| children.sections.as_slice()).unwrap_or_default();
    let carries = |child: &Section| matches!(child.value("state"), "INSTALLED" | "REKEYING");
    let port = sa.value("remote-port").parse().map_err(Error::in_front("remote-port"))?;
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

fn child_sa(child: &Section) -> ChildSa {
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

/// Traffic selectors with ports as numbers: strongSwan shows the name of a service where one is registered.
fn selectors(child: &Section, list: &str) -> Vec<String> {
    child.list(list).iter().map(|text| text.replace("/echo]", "/7]")).collect()
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(Error::in_front(format!("address `{text}`")))
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}
