//! Downloads over TLS 1.3 with the program openssl: `s_server` serves files over HTTP. `s_client` fetches an
//! endless file, and `s_time` fetches a small one again and again, with a new handshake each time.

use super::scenario::{Aes, Scenario};
use super::testbed::SMALL_FILE;
use casemate_testbed::gateway::START_TIMEOUT;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Background, CpuFeatureMask, Error, Result, sys};
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
/// Names of the endless file and of the small one for the client.
const NAME: &str = "file";
const SMALL_NAME: &str = "small";
/// Time limit of `s_time` in seconds, longer than any measurement.
const S_TIME_SECONDS: &str = "600";

/// Private key and certificate of the server, served files, and HTTP request for the endless one.
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
        fs::write(self.directory.join(SMALL_NAME), vec![0; SMALL_FILE])?;
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
        let server = start_server(veth, content, scenario, scratch)?;
        // The received data is discarded, error messages are kept.
        let mut client = veth.ends[1].command("sh");
        client.args(["-c", "exec \"$0\" \"$@\" > /dev/null", OPENSSL, "s_client", "-quiet"]);
        client.arg("-verify_return_error");
        connect_to_server(&mut client, content);
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

/// Downloads of the small file that follow each other. Dropping it ends the programs.
pub(super) struct TlsSmallFiles {
    /// Server and client.
    programs: [Background; 2],
}

impl TlsSmallFiles {
    /// Starts downloads from the first end to the second and waits until the first file has arrived.
    pub(super) fn start(
        veth: &VethPair,
        content: &TlsFiles,
        scenario: Scenario,
        scratch: &Path,
    ) -> Result<Self> {
        let server = start_server(veth, content, scenario, scratch)?;
        let mut client = veth.ends[1].command(OPENSSL);
        client.args(["s_time", "-new", "-time", S_TIME_SECONDS, "-www", &format!("/{SMALL_NAME}")]);
        client.args(["-verify", "1"]);
        connect_to_server(&mut client, content);
        configure(&mut client, scenario)?;
        let mut client = Background::start("openssl s_time", client, &scratch.join("s_time"))?;
        client.wait_until(START_TIMEOUT, |output| count_files(output) > 0)?;
        Ok(Self { programs: [server, client] })
    }

    /// Number of files received so far.
    pub(super) fn finished(&self) -> Result<u64> {
        let [_, client] = &self.programs;
        Ok(count_files(&client.output()))
    }

    /// Both programs.
    pub(super) const fn programs(&self) -> &[Background] {
        &self.programs
    }
}

/// Number of connections in the output of `s_time`, which writes an asterisk after each.
fn count_files(output: &str) -> u64 {
    output.bytes().filter(|byte| *byte == b'*').count() as u64
}

/// Starts the server at the first end.
fn start_server(
    veth: &VethPair,
    content: &TlsFiles,
    scenario: Scenario,
    scratch: &Path,
) -> Result<Background> {
    let mut server = veth.ends[0].command(OPENSSL);
    server.args(["s_server", "-WWW", "-accept", &server_address(), "-cert"]).arg(&content.certificate);
    server.arg("-key").arg(&content.key).current_dir(&content.directory);
    configure(&mut server, scenario)?;
    let mut server = Background::start("openssl s_server", server, &scratch.join("s_server"))?;
    server.wait_until(START_TIMEOUT, |output| output.contains("ACCEPT"))?;
    Ok(server)
}

fn server_address() -> String {
    format!("{}:{PORT}", INNER_ADDRS[0])
}

/// Adds the server and its certificate to the arguments of a client.
fn connect_to_server(client: &mut Command, content: &TlsFiles) {
    client.args(["-connect", &server_address(), "-CAfile"]).arg(&content.certificate);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Requirement;
    use crate::homenet::scenario::Mode;
    use casemate_testbed::{TempDir, is_root};
    use std::time::{Duration, Instant};

    #[test]
    fn connections_of_s_time_are_counted() {
        assert_eq!(count_files("Collecting connection statistics for 600 seconds\n"), 0);
        assert_eq!(count_files("Collecting connection statistics for 600 seconds\n***"), 3);
    }
    #[test]
    fn s_time_receives_whole_files_until_it_is_dropped() {
        if !is_root() {
            casemate_test_support::skip("network namespaces need root");
            return;
        }
        if let Some(why) = Requirement::Program(OPENSSL, OPENSSL).missing() {
            casemate_test_support::skip(&why);
            return;
        }
        let (veth, scratch) = (VethPair::new().unwrap(), TempDir::new("s_time").unwrap());
        for end in 0..2 {
            veth.run_in(end, || sys::disable_tso("wire")).unwrap();
            veth.route_via_link(end).unwrap();
        }
        let content = TlsFiles::new(scratch.path()).unwrap();
        let scenario = Scenario::of(Mode::Gcm, Aes::Instructions);
        let packets_before = veth.received_packets(1).unwrap();
        let downloads = TlsSmallFiles::start(&veth, &content, scenario, scratch.path()).unwrap();
        let start = Instant::now();
        while downloads.finished().unwrap() < 5 {
            assert!(start.elapsed() < START_TIMEOUT, "{} files", downloads.finished().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (files, packets) = (downloads.finished().unwrap(), veth.received_packets(1).unwrap());
        // An error page would take a packet or two.
        let segments = files * (SMALL_FILE as u64).div_ceil(1_460);
        assert!(packets - packets_before >= segments, "{packets} packets for {files} files");
    }
}
