//! A download over TLS 1.3 as the program openssl does it: `s_server` serves a file over HTTP, and `s_client` writes what it gets.

use super::setting::{Aes, Setting};
use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::gateway::START_LIMIT;
use casemate_stage::{Background, Error, Mask, Result, sys};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OPENSSL: &str = "openssl";
const PORT: u16 = 4_433;
/// When so many bytes have been written, the handshake is over.
const BEGUN: u64 = 1 << 16;

/// What is served, whole: it has no end, as in the other downloads.
const WHOLE: &str = "/dev/zero";
/// Its name for the client.
const NAME: &str = "file";

/// A server's key, a certificate that the client trusts, the file that is served, and the request for it.
pub(super) struct Content {
    directory: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    request: PathBuf,
}

impl Content {
    /// With a new key on P-256, all in files below `scratch`.
    pub(super) fn new(scratch: &Path) -> Result<Self> {
        let content = Self {
            directory: scratch.join("tls"),
            certificate: scratch.join("tls.pem"),
            key: scratch.join("tls.key"),
            request: scratch.join("tls.get"),
        };
        content.write().map_err(Error::in_front(scratch.display()))?;
        content.make_key()?;
        Ok(content)
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(&self.request, format!("GET /{NAME} HTTP/1.0\r\n\r\n"))?;
        let file = self.directory.join(NAME);
        if file.exists() { Ok(()) } else { symlink(WHOLE, file) }
    }

    fn make_key(&self) -> Result<()> {
        let mut command = Command::new(OPENSSL);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-nodes", "-days", "1", "-subj", "/CN=homenet", "-out"]);
        command.arg(&self.certificate).arg("-keyout").arg(&self.key).stdin(Stdio::null());
        let output = command.output().map_err(Error::in_front(OPENSSL))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::new(format!("openssl req: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
    }
}

/// A file without end on its way. The programs end with it.
pub(super) struct Fetch {
    /// Server and client.
    programs: [Background; 2],
}

impl Fetch {
    /// From the first end to the second; the handshake is over.
    pub(super) fn begin(arena: &Arena, content: &Content, setting: Setting, scratch: &Path) -> Result<Self> {
        let [sender, receiver] = &arena.ends;
        let [address, _] = BEHIND;
        let at = format!("{address}:{PORT}");
        let mut server = sender.command(OPENSSL);
        server.args(["s_server", "-WWW", "-accept", &at, "-cert"]).arg(&content.certificate);
        server.arg("-key").arg(&content.key).current_dir(&content.directory);
        tell(&mut server, setting)?;
        let mut server = Background::start("openssl s_server", server, &scratch.join("s_server"))?;
        server.wait_until(START_LIMIT, |said| said.contains("ACCEPT"))?;

        // What arrives is not kept; what goes wrong is.
        let mut client = receiver.command("sh");
        client.args(["-c", "exec \"$0\" \"$@\" > /dev/null", OPENSSL, "s_client", "-quiet", "-connect", &at]);
        client.args([OsStr::new("-verify_return_error"), "-CAfile".as_ref(), content.certificate.as_ref()]);
        tell(&mut client, setting)?;
        client.stdin(File::open(&content.request).map_err(Error::in_front(content.request.display()))?);
        let client = Background::start("openssl s_client", client, &scratch.join("s_client"))?;
        let mut fetch = Self { programs: [server, client] };
        fetch.wait_until_begun()?;
        Ok(fetch)
    }

    fn wait_until_begun(&mut self) -> Result<()> {
        let [_, client] = &mut self.programs;
        let pid = client.pid();
        client.wait_until(START_LIMIT, |_| sys::written_by(pid).is_ok_and(|bytes| bytes > BEGUN))
    }

    /// Bytes that have arrived so far. The client's own messages are among them, which it sends at the beginning only.
    pub(super) fn received(&self) -> Result<u64> {
        let [_, client] = &self.programs;
        sys::written_by(client.pid()).map_err(Error::in_front("openssl s_client"))
    }

    /// Both programs.
    pub(super) const fn programs(&self) -> &[Background] {
        &self.programs
    }
}

/// Version, algorithms, and whether there are instructions for AES.
fn tell(command: &mut Command, setting: Setting) -> Result<()> {
    let suite = setting.mode.tls_suite();
    let suite = suite.ok_or_else(|| Error::new(format!("TLS 1.3 has no suite with {}", setting.mode)))?;
    command.args(["-tls1_3", "-ciphersuites", suite]);
    if setting.aes == Aes::Software {
        command.envs(Mask::NO_AES.map(Mask::variable));
    }
    Ok(())
}
