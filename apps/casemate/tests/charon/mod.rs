//! Debian's `charon-systemd`, unmodified, with its ESP in user space (kernel-libipsec), as a peer. `Swanctl`
//! controls it.

use crate::swanctl::Swanctl;
use crate::testnet::{Host, eventually};
use casemate_test_support::{Process, Program, write_program};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Plugins to load. The first plugin that offers an algorithm provides it.
const PLUGINS: &str = "aesni random nonce kdf aes sha1 sha2 hmac pem pkcs1 pkcs8 x509 pubkey constraints curve25519 gcm ccm cmac xcbc \
     ctr gmp openssl chapoly mgf1 md5 eap-identity eap-md5 eap-mschapv2 eap-tls eap-ttls kernel-libipsec \
     kernel-netlink socket-default vici updown";

/// A running daemon with its configuration loaded.
pub(crate) struct Charon<'h> {
    pub(crate) swanctl: Swanctl<'h>,
    process: Process,
}

impl<'h> Charon<'h> {
    /// Starts the daemon on a host with this `swanctl.conf`. Notes the skipped test and returns `None` if
    /// strongSwan is not installed. A copy runs, because Debian's AppArmor profile restricts the original to
    /// the files of the system.
    pub(crate) fn start(host: &'h Host, conf: &str) -> Option<Self> {
        Self::start_with(host, conf, "", "")
    }

    /// Like [`start`](Self::start), with more plugins and their settings.
    pub(crate) fn start_with(host: &'h Host, conf: &str, plugins: &str, more: &str) -> Option<Self> {
        let swanctl = Swanctl::new(host, conf)?;
        let Ok(bytes) = fs::read("/usr/sbin/charon-systemd") else {
            casemate_test_support::skip("charon-systemd (Debian package charon-systemd) is not installed");
            return None;
        };
        let program = host.file("charon");
        write_program(&program, &bytes);
        Some(Self::start_program(host, swanctl, Program::new(program), &format!("{PLUGINS} {plugins}"), more))
    }

    /// Like [`start`](Self::start), with the daemon of another Debian release that is unpacked in a root
    /// directory, and these plugins.
    #[allow(dead_code, reason = "only the tests of strongSwan 6 need it")]
    pub(crate) fn start_in(host: &'h Host, root: &Path, plugins: &str) -> Option<Self> {
        let swanctl = Swanctl::new(host, "")?;
        let script =
            "for i in dev proc tmp; do mount --rbind /$i \"$1/$i\"; done; exec chroot \"$1\" charon-systemd";
        let program = Program::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(root)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Some(Self::start_program(host, swanctl, program, plugins, ""))
    }

    fn start_program(host: &Host, swanctl: Swanctl<'h>, program: Program, plugins: &str, more: &str) -> Self {
        let settings = host.file("strongswan.conf");
        let socket = host.file("vici");
        fs::write(
            &settings,
            format!(
                "charon-systemd {{\n load = {plugins}\n retransmit_tries = 1\n plugins {{\n vici \
                 {{\n socket = unix://{}\n }}\n \
                 kernel-libipsec {{\n allow_peer_ts = yes\n }}\n {more} }}\n journal {{\n default = -1\n \
                 }}\n \
                 filelog {{\n stdout {{\n default = 1\n flush_line = yes\n }}\n }}\n}}\n",
                socket.display()
            ),
        )
        .unwrap();
        let program = program.env("STRONGSWAN_CONF", &settings).log_to(&host.file("charon.log"));
        let process = program.start_with(|command| host.netns.spawn(command));
        eventually("charon listens", || UnixStream::connect(&socket).is_ok());
        let loaded = swanctl.output(&["--load-all", "--noprompt"]);
        assert!(!loaded.contains("failed"), "{loaded}");
        Self { swanctl, process }
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}
