//! Certificates for both sides. strongSwan's `pki` creates them when a case first needs them, and they are
//! kept for the run.

use crate::peer::Side;
use crate::plan::Conf;
use casemate_interop::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Credential that can be installed in the directory of a side. The names are those of `TEMPLATES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// Certificate and private key of a side.
    Own(&'static str, Side),
    /// PKCS #12 container, encrypted with [`PASSPHRASE`]: certificate and private key of a side, and the
    /// certificates of these authorities.
    Container(&'static str, Side, &'static [&'static str]),
    /// Private key of a side without its certificate.
    PrivateKey(&'static str, Side),
    /// Public key of a side without its certificate.
    PublicKey(&'static str, Side),
    /// Certificate of a trusted authority.
    Authority(&'static str),
    /// Certificate of an intermediate authority, which the side sends with its own.
    Intermediate(&'static str),
    /// Certificate revocation list of the authority. It contains the certificates `revoked` of both sides.
    Crl(&'static str),
}

/// Passphrase of containers.
pub(crate) const PASSPHRASE: &str = "a passphrase";

struct Template {
    name: &'static str,
    key: &'static [&'static str],
    issuer: Option<&'static str>,
    extra: &'static [&'static str],
}

const RSA_2048: &[&str] = &["--type", "rsa", "--size", "2048"];
const RSA_3072: &[&str] = &["--type", "rsa", "--size", "3072"];
const RSA_4096: &[&str] = &["--type", "rsa", "--size", "4096"];
const P256: &[&str] = &["--type", "ecdsa", "--size", "256"];
const P384: &[&str] = &["--type", "ecdsa", "--size", "384"];
const P521: &[&str] = &["--type", "ecdsa", "--size", "521"];
const ED25519: &[&str] = &["--type", "ed25519"];
const CA: &[&str] = &["--ca"];
/// Certificate policies. strongSwan demands that the root has those of the certificates below it.
const POLICIES: &[&str] = &["--ca", "--cert-policy", POLICY, "--cert-policy", OTHER_POLICY];
/// Policy of the certificates `policy`.
pub(crate) const POLICY: &str = "1.3.6.1.4.1.36906.1.1.1";
/// Policy of the certificates `other-policy`.
const OTHER_POLICY: &str = "1.3.6.1.4.1.36906.1.1.2";
/// Another identity, of a second round of authentication.
const USER: &[&str] = &["--san", "user.test"];
const PAST: &[&str] = &["--not-before", "01.01.20 00:00:00", "--not-after", "01.01.21 00:00:00"];

/// Certificates with [`utf8_subject`] as the subject, encoded in UTF8Strings.
const UTF8: [&str; 2] = ["ca-utf8", "utf8"];

const TEMPLATES: &[Template] = &[
    template("ca-utf8", P384, None, CA),
    template("utf8", P256, Some("ca-utf8"), &[]),
    template("ca-rsa", RSA_2048, None, CA),
    template("ca-ecdsa", P384, None, CA),
    template("ca-ed25519", ED25519, None, CA),
    template("ca-large", RSA_4096, None, CA),
    template("ca-policy", P256, None, POLICIES),
    template("policy", P256, Some("ca-policy"), &["--cert-policy", POLICY]),
    template("other-policy", P256, Some("ca-policy"), &["--cert-policy", OTHER_POLICY]),
    template("sub-ecdsa", P256, Some("ca-ecdsa"), CA),
    template("sub-large", RSA_4096, Some("ca-large"), CA),
    template("rsa2048", RSA_2048, Some("ca-rsa"), &[]),
    template("user", RSA_2048, Some("ca-rsa"), USER),
    template("rsa3072", RSA_3072, Some("ca-rsa"), &[]),
    template("ecdsa256", P256, Some("ca-ecdsa"), &[]),
    template("ecdsa384", P384, Some("ca-ecdsa"), &[]),
    template("ecdsa521", P521, Some("ca-ecdsa"), &[]),
    template("ed25519", ED25519, Some("ca-ed25519"), &[]),
    template("chain", P256, Some("sub-ecdsa"), &[]),
    template("large", RSA_4096, Some("sub-large"), &[]),
    template("expired", P256, Some("ca-ecdsa"), PAST),
    template("revoked", P256, Some("ca-ecdsa"), &[]),
];

const fn template(
    name: &'static str,
    key: &'static [&'static str],
    issuer: Option<&'static str>,
    extra: &'static [&'static str],
) -> Template {
    Template { name, key, issuer, extra }
}

/// Returns the file name of the certificate and the key of a side.
pub(crate) fn file_of(name: &str, side: Side) -> String {
    format!("{name}-{}.pem", side.name())
}

/// Returns the subject of the certificate in `file`, for subjects in UTF8Strings. Configurations encode the
/// same text in PrintableStrings.
pub(crate) fn utf8_subject(file: &str) -> String {
    format!("C=CH, O=Casemate Test, CN={file}")
}

/// Returns the subject as DER in the syntax that `pki` reads.
fn utf8_dn(file: &str) -> String {
    let element = |tag: u8, content: &[u8]| {
        let len = u8::try_from(content.len()).ok().filter(|len| *len < 0x80).unwrap_or_default();
        [&[tag, len], content].concat()
    };
    let part = |last: u8, tag: u8, value: &str| {
        let attribute = [element(6, &[0x55, 4, last]), element(tag, value.as_bytes())].concat();
        element(0x31, &element(0x30, &attribute))
    };
    let parts = [part(6, 0x13, "CH"), part(10, 0x0C, "Casemate Test"), part(3, 0x0C, file)].concat();
    let digits: String = element(0x30, &parts).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("asn1dn:#{digits}")
}

/// Files created so far.
pub(crate) struct Pki {
    directory: PathBuf,
    making: Mutex<()>,
}

impl Pki {
    /// Creates a set of credentials with its files in `directory`.
    pub(crate) fn new(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let mut conf = Conf::default();
        conf.set("pki.load", "random pem pkcs1 pkcs8 x509 pubkey sha1 sha2 openssl curve25519");
        let file = directory.join("strongswan.conf");
        fs::write(&file, conf.to_string()).map_err(Error::context(file.display()))?;
        Ok(Self { directory, making: Mutex::new(()) })
    }

    /// Installs the files of a credential in the directories that swanctl reads, below `to`.
    pub(crate) fn install(&self, credential: Credential, to: &Path) -> Result<()> {
        // A case that panicked while it held the lock can have left incomplete files only if they will be
        // created again.
        let _making = self.making.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match credential {
            Credential::Own(name, side) => {
                self.make(name, Some(side))?;
                let file = file_of(name, side);
                copy(&self.directory.join(&file), &to.join("x509").join(&file))?;
                copy(&self.key(&file), &to.join("private").join(&file))
            }
            Credential::Container(name, side, authorities) => {
                self.make(name, Some(side))?;
                authorities.iter().try_for_each(|authority| self.make(authority, None))?;
                self.export(&file_of(name, side), authorities, &to.join("pkcs12"))
            }
            Credential::PrivateKey(name, side) => {
                self.make(name, Some(side))?;
                let file = file_of(name, side);
                copy(&self.key(&file), &to.join("private").join(&file))
            }
            Credential::PublicKey(name, side) => {
                self.make(name, Some(side))?;
                let (file, folder) = (file_of(name, side), to.join("pubkey"));
                fs::create_dir_all(&folder).map_err(Error::context(folder.display()))?;
                let key = self.key(&file).display().to_string();
                self.pki(&["--pub", "--type", "priv", "--in", &key], &folder.join(&file))
            }
            Credential::Authority(name) => self.install_authority(name, &to.join("x509ca")),
            Credential::Intermediate(name) => self.install_authority(name, &to.join("x509")),
            Credential::Crl(name) => {
                let crl = self.make_crl(name)?;
                copy(&crl, &to.join("x509crl").join("crl.pem"))
            }
        }
    }

    /// Writes a container with OpenSSL, because `pki` cannot.
    fn export(&self, certificate: &str, authorities: &[&str], folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(Error::context(folder.display()))?;
        let read = |authority: &&str| {
            let file = self.directory.join(format!("{authority}.pem"));
            fs::read(&file).map_err(Error::context(file.display()))
        };
        let chain = authorities.iter().map(read).collect::<Result<Vec<_>>>()?.concat();
        let file = self.directory.join("container-chain.pem");
        fs::write(&file, chain).map_err(Error::context(file.display()))?;
        let mut command = Command::new("timeout");
        command.args(["60", "openssl", "pkcs12", "-export", "-passout", &format!("pass:{PASSPHRASE}")]);
        command.arg("-inkey").arg(self.key(certificate)).arg("-in").arg(self.directory.join(certificate));
        command.arg("-certfile").arg(&file);
        command.arg("-out").arg(folder.join("own.p12")).stdin(Stdio::null());
        let output = command.output().map_err(Error::context("openssl"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(Error::new(format!("openssl pkcs12: {stderr}"))) }
    }

    fn install_authority(&self, name: &str, to: &Path) -> Result<()> {
        self.make(name, None)?;
        let file = format!("{name}.pem");
        copy(&self.directory.join(&file), &to.join(&file))
    }

    fn key(&self, file: &str) -> PathBuf {
        self.directory.join(format!("key-{file}"))
    }

    /// Creates a key and its certificate, and those of its issuers, unless they exist.
    fn make(&self, name: &str, side: Option<Side>) -> Result<()> {
        let file = side.map_or_else(|| format!("{name}.pem"), |side| file_of(name, side));
        if self.directory.join(&file).exists() {
            return Ok(());
        }
        let template = TEMPLATES
            .iter()
            .find(|template| template.name == name)
            .ok_or_else(|| Error::new(format!("no certificate has the name `{name}`")))?;
        let key = self.key(&file);
        self.pki(&[&["--gen"], template.key].concat(), &key)?;
        let subject = if UTF8.contains(&name) { utf8_dn(&file) } else { format!("CN={file}") };
        let key = key.display().to_string();
        let mut arguments = vec!["--type", "priv", "--in", &key, "--dn", &subject];
        arguments.extend(template.extra);
        if let Some(side) = side {
            arguments.extend(["--san", side.id()]);
        }
        let Some(issuer) = template.issuer else {
            return self.pki(&[&["--self"], arguments.as_slice()].concat(), &self.directory.join(&file));
        };
        self.make(issuer, None)?;
        let authority = self.authority(issuer);
        arguments.extend(["--cacert", &authority.certificate, "--cakey", &authority.key]);
        self.pki(&[&["--issue"], arguments.as_slice()].concat(), &self.directory.join(&file))
    }

    fn make_crl(&self, issuer: &str) -> Result<PathBuf> {
        let crl = self.directory.join(format!("crl-{issuer}.pem"));
        if crl.exists() {
            return Ok(crl);
        }
        let authority = self.authority(issuer);
        let mut arguments = vec!["--signcrl", "--cacert", &authority.certificate, "--cakey", &authority.key];
        let mut revoked = Vec::new();
        for side in Side::BOTH {
            self.make("revoked", Some(side))?;
            revoked.push(self.directory.join(file_of("revoked", side)).display().to_string());
        }
        for certificate in &revoked {
            arguments.extend(["--reason", "key-compromise", "--cert", certificate]);
        }
        self.pki(&arguments, &crl)?;
        Ok(crl)
    }

    fn authority(&self, name: &str) -> Authority {
        let file = format!("{name}.pem");
        let (certificate, key) = (self.directory.join(&file), self.key(&file));
        Authority { certificate: certificate.display().to_string(), key: key.display().to_string() }
    }

    /// Runs `pki` and writes its output to the file `to`.
    fn pki(&self, arguments: &[&str], to: &Path) -> Result<()> {
        let mut command = Command::new("timeout");
        command.args(["60", "pki"]).args(arguments).args(["--outform", "pem"]).stdin(Stdio::null());
        let conf = self.directory.join("strongswan.conf");
        let output = command.env("STRONGSWAN_CONF", conf).output().map_err(Error::context("pki"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(Error::new(format!("pki {} failed: {stderr}", arguments.join(" "))));
        }
        fs::write(to, output.stdout).map_err(Error::context(to.display()))
    }
}

/// Paths of the certificate and the key of an authority.
struct Authority {
    certificate: String,
    key: String,
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    }
    fs::copy(from, to).map(drop).map_err(Error::context(from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_precede_their_certificates() {
        for (index, template) in TEMPLATES.iter().enumerate() {
            let earlier = |issuer| TEMPLATES[..index].iter().any(|template| template.name == issuer);
            assert!(template.issuer.is_none_or(earlier), "{}", template.name);
        }
    }
}
