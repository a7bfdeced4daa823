//! Download over TLS 1.3 with the program openssl: `s_server` serves a file over HTTP, and `s_client` fetches
//! it.

use super::scenario::{Aes, Scenario};
use casemate_testbed::gateway::START_TIMEOUT;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Background, CpuFeatureMask, Error, Result, sys};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OPENSSL: &str = "openssl";
const PORT: u16 = 4_433;
/// Number of written bytes after which the handshake is certainly over.
const HANDSHAKE_BYTES: u64 = 1 << 16;

/// The served file, which is endless as in the other downloads.
const SOURCE: &str = "/dev/zero";
/// Name of the file for the client.
const NAME: &str = "file";

/// Private key and certificate of the server, served file, and HTTP request.
pub(super) struct TlsFiles {
    directory: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    request: PathBuf,
}

impl TlsFiles {
    /// Creates a key on P-256 and all files below `scratch`.
    pub(super) fn new(scratch: &Path) -> Result<Self> {
        let content = Self {
            directory: scratch.join("tls"),
            certificate: scratch.join("tls.pem"),
            key: scratch.join("tls.key"),
            request: scratch.join("tls.get"),
        };
        content.write().map_err(Error::context(scratch.display()))?;
        content.make_key()?;
        Ok(content)
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(&self.request, format!("GET /{NAME} HTTP/1.0\r\n\r\n"))?;
        let file = self.directory.join(NAME);
        if file.exists() { Ok(()) } else { symlink(SOURCE, file) }
    }

    fn make_key(&self) -> Result<()> {
        let mut command = Command::new(OPENSSL);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-nodes", "-days", "1", "-subj", "/CN=homenet", "-out"]);
        command.arg(&self.certificate).arg("-keyout").arg(&self.key).stdin(Stdio::null());
        let output = command.output().map_err(Error::context(OPENSSL))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::new(format!("openssl req: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
    }
}

/// A running download. Dropping it ends the programs.
pub(super) struct TlsDownload {
    /// Server and client.
    programs: [Background; 2],
}

impl TlsDownload {
    /// Starts a download from the first end to the second and waits until the handshake is over.
    pub(super) fn start(
        veth: &VethPair,
        content: &TlsFiles,
        scenario: Scenario,
        scratch: &Path,
    ) -> Result<Self> {
        let [sender, receiver] = &veth.ends;
        let [address, _] = INNER_ADDRS;
        let at = format!("{address}:{PORT}");
        let mut server = sender.command(OPENSSL);
        server.args(["s_server", "-WWW", "-accept", &at, "-cert"]).arg(&content.certificate);
        server.arg("-key").arg(&content.key).current_dir(&content.directory);
        configure(&mut server, scenario)?;
        let mut server = Background::start("openssl s_server", server, &scratch.join("s_server"))?;
        server.wait_until(START_TIMEOUT, |output| output.contains("ACCEPT"))?;

        // The received data is discarded, error messages are kept.
        let mut client = receiver.command("sh");
        client.args(["-c", "exec \"$0\" \"$@\" > /dev/null", OPENSSL, "s_client", "-quiet", "-connect", &at]);
        client.args([OsStr::new("-verify_return_error"), "-CAfile".as_ref(), content.certificate.as_ref()]);
        configure(&mut client, scenario)?;
        client.stdin(File::open(&content.request).map_err(Error::context(content.request.display()))?);
        let client = Background::start("openssl s_client", client, &scratch.join("s_client"))?;
        let mut fetch = Self { programs: [server, client] };
        fetch.wait_until_begun()?;
        Ok(fetch)
    }

    fn wait_until_begun(&mut self) -> Result<()> {
        let [_, client] = &mut self.programs;
        let pid = client.pid();
        client
            .wait_until(START_TIMEOUT, |_| sys::bytes_written(pid).is_ok_and(|bytes| bytes > HANDSHAKE_BYTES))
    }

    /// Bytes received so far. They include the client's own messages, which it sends only at the beginning.
    pub(super) fn received(&self) -> Result<u64> {
        let [_, client] = &self.programs;
        sys::bytes_written(client.pid()).map_err(Error::context("openssl s_client"))
    }

    /// Both programs.
    pub(super) const fn programs(&self) -> &[Background] {
        &self.programs
    }
}

/// Sets the TLS version and suite, and hides AES instructions if required.
fn configure(command: &mut Command, scenario: Scenario) -> Result<()> {
    let suite = scenario.mode.tls_suite();
    let suite = suite.ok_or_else(|| Error::new(format!("TLS 1.3 has no suite with {}", scenario.mode)))?;
    command.args(["-tls1_3", "-ciphersuites", suite]);
    if scenario.aes == Aes::Software {
        command.envs(CpuFeatureMask::NO_AES.map(CpuFeatureMask::env_var));
    }
    Ok(())
}
