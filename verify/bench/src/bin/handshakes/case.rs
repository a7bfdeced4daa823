//! Cases: the handshakes, and the `swanctl.conf` of both sides.

use casemate_interop::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Authentication of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Pre-shared key.
    Psk,
    /// P-256 certificates, issued by one P-256 authority.
    Ecdsa,
}

/// Kind of handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) auth: Auth,
    /// Key exchange methods in a proposal: the first one, and additional ones (RFC 9370).
    pub(crate) kex: &'static str,
    /// Whether both sides require a post-quantum pre-shared key (RFC 8784).
    pub(crate) ppk: bool,
}

/// All cases.
pub(crate) const CASES: [Case; 12] = [
    Case::new(Auth::Psk, X25519),
    Case::new(Auth::Psk, "ecp384"),
    Case::new(Auth::Psk, "modp2048"),
    Case::new(Auth::Psk, X25519_ML_KEM_768),
    Case::new(Auth::Psk, "ecp384-ke1_mlkem1024"),
    Case::with_ppk(X25519),
    Case::with_ppk(X25519_ML_KEM_768),
    Case::new(Auth::Ecdsa, X25519),
    Case::new(Auth::Ecdsa, "ecp384"),
    Case::new(Auth::Ecdsa, "modp2048"),
    Case::new(Auth::Ecdsa, X25519_ML_KEM_768),
    Case::new(Auth::Ecdsa, "ecp384-ke1_mlkem1024"),
];

/// The key exchange to which all others are compared.
pub(crate) const X25519: &str = "x25519";
/// The key exchange of the goals.
pub(crate) const X25519_ML_KEM_768: &str = "x25519-ke1_mlkem768";

/// Addresses of the two sides on the link.
pub(crate) const INITIATOR: &str = "10.9.0.1";
pub(crate) const RESPONDER: &str = "10.9.0.2";
/// Address in the network of the responder.
pub(crate) const BEHIND: &str = "10.99.2.1";

impl Case {
    pub(crate) const fn new(auth: Auth, kex: &'static str) -> Self {
        Self { auth, kex, ppk: false }
    }

    const fn with_ppk(kex: &'static str) -> Self {
        Self { auth: Auth::Psk, kex, ppk: true }
    }

    /// Name in tables.
    pub(crate) fn name(self) -> String {
        let auth = match self.auth {
            Auth::Psk => "psk",
            Auth::Ecdsa => "ecdsa",
        };
        format!("{auth} {}{}", self.kex, if self.ppk { " ppk" } else { "" })
    }

    /// The case with the same authentication and X25519 alone.
    pub(crate) const fn base(self) -> Self {
        Self::new(self.auth, X25519)
    }

    /// Whether there are additional key exchanges, which need IKE_INTERMEDIATE (RFC 9242).
    pub(crate) fn has_additional_kex(self) -> bool {
        self.kex.contains("-ke1_")
    }

    /// `swanctl.conf` of the responder, which accepts any initiator.
    pub(crate) fn responder(self) -> String {
        self.conf(&Ends {
            local_addr: RESPONDER,
            remote_addr: "10.0.0.0/8",
            name: "responder",
            peer_id: "%any",
            local_ts: "10.99.2.0/24",
            remote_ts: "10.64.0.0/10",
        })
    }

    /// `swanctl.conf` of the initiator. Each handshake has different traffic selectors.
    pub(crate) fn initiator(self) -> String {
        self.conf(&Ends {
            local_addr: INITIATOR,
            remote_addr: RESPONDER,
            name: "initiator",
            peer_id: "responder.test",
            local_ts: "10.64.0.0/10",
            remote_ts: "10.99.2.0/24",
        })
    }

    fn conf(self, ends: &Ends) -> String {
        let Ends { local_addr, remote_addr, name: own, peer_id: peer, local_ts, remote_ts } = ends;
        let (auth, certs) = match self.auth {
            Auth::Psk => ("psk", String::new()),
            Auth::Ecdsa => ("pubkey", format!("certs = {own}.pem")),
        };
        let (ppk, secret) = if self.ppk { (PPK, PPK_SECRET) } else { ("", "") };
        format!(
            "connections {{\n t {{\n  version = 2\n  local_addrs = {local_addr}\n  remote_addrs = {remote_addr}\n  mobike = no\n  \
             unique = never\n  proposals = aes128gcm16-prfsha256-{}\n  {ppk}\
             local {{\n auth = {auth}\n id = {own}.test\n {certs}\n }}\n  remote {{\n auth = {auth}\n id = {peer}\n }}\n  \
             children {{\n c {{\n esp_proposals = aes128gcm16\n local_ts = {local_ts}\n remote_ts = {remote_ts}\n }}\n }}\n }}\n}}\n\
             secrets {{\n ike-t {{\n secret = \"a secret of the two\"\n }}\n{secret}}}\n",
            self.kex
        )
    }
}

/// Lines of a connection that requires the key of [`PPK_SECRET`].
const PPK: &str = "ppk_id = key.test\n  ppk_required = yes\n  ";
/// Section of `secrets` with a post-quantum pre-shared key of 32 bytes.
const PPK_SECRET: &str = " ppk-t {\n id = key.test\n secret = 0x5b0c7f6fdb0a4f6c93c81f7c8e1d3a5577b4c9e2a60d4c8fb1e2d3c4a5968778\n }\n";

/// Ends of a connection, as one side is configured with them.
struct Ends {
    local_addr: &'static str,
    remote_addr: &'static str,
    /// Name of this side: its identity without `.test`, and its certificate file without the extension.
    name: &'static str,
    peer_id: &'static str,
    local_ts: &'static str,
    remote_ts: &'static str,
}

/// Directory of the certificates.
pub(crate) struct Pki(PathBuf);

impl Pki {
    /// Generates an authority, and a certificate for each side.
    pub(crate) fn make(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let pki = Self(directory);
        let conf = "pki { load = random pem pkcs1 pkcs8 x509 pubkey sha1 sha2 openssl }\n";
        fs::write(pki.file("strongswan.conf"), conf).map_err(Error::context("strongswan.conf"))?;
        for name in ["ca", "responder", "initiator"] {
            pki.run("--gen --type ecdsa --size 256", &pki.key(name))?;
        }
        let path = |file: PathBuf| file.display().to_string();
        let (ca_key, ca) = (path(pki.key("ca")), path(pki.file("ca.pem")));
        pki.run(&format!("--self --ca --type priv --dn CN=ca --in {ca_key}"), &pki.file("ca.pem"))?;
        for name in ["responder", "initiator"] {
            let key = path(pki.key(name));
            let words = format!("--issue --type priv --dn CN={name} --san {name}.test --in {key}");
            pki.run(&format!("{words} --cacert {ca} --cakey {ca_key}"), &pki.file(&format!("{name}.pem")))?;
        }
        Ok(pki)
    }

    /// Copies the files of a side to the subdirectories of `to` that swanctl reads.
    pub(crate) fn install(&self, name: &str, to: &Path) -> Result<()> {
        let own = format!("{name}.pem");
        let copies = [
            (self.file("ca.pem"), to.join("x509ca/ca.pem")),
            (self.file(&own), to.join("x509").join(&own)),
            (self.key(name), to.join("private").join(&own)),
        ];
        for (from, to) in copies {
            let folder = to.parent().unwrap_or(&to);
            fs::create_dir_all(folder).map_err(Error::context(folder.display()))?;
            fs::copy(&from, &to).map_err(Error::context(from.display()))?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn key(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}-key.pem"))
    }

    /// Runs `pki` and writes its output to the file `to`.
    fn run(&self, words: &str, to: &Path) -> Result<()> {
        let mut command = Command::new("pki");
        command.args(words.split(' ')).args(["--outform", "pem"]);
        let output = command.env("STRONGSWAN_CONF", self.file("strongswan.conf")).output();
        let output = output.map_err(Error::context("pki (Debian package strongswan-pki)"))?;
        if !output.status.success() {
            return Err(Error::new(format!("pki {words}: {}", String::from_utf8_lossy(&output.stderr))));
        }
        fs::write(to, output.stdout).map_err(Error::context(to.display()))
    }
}
