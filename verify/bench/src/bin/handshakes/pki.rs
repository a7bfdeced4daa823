//! Certificates for both sides, made with strongSwan's `pki`.

use casemate_interop::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a run.
pub(crate) struct Pki(PathBuf);

impl Pki {
    /// Makes an authority, and a certificate for each side.
    pub(crate) fn make(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let pki = Self(directory);
        let conf = "pki { load = random pem pkcs1 pkcs8 x509 pubkey sha1 sha2 openssl }\n";
        fs::write(pki.file("strongswan.conf"), conf).map_err(Error::in_front("strongswan.conf"))?;
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

    /// Puts the files of a side where swanctl looks for them below `to`.
    pub(crate) fn install(&self, name: &str, to: &Path) -> Result<()> {
        let own = format!("{name}.pem");
        let copies = [
            (self.file("ca.pem"), to.join("x509ca/ca.pem")),
            (self.file(&own), to.join("x509").join(&own)),
            (self.key(name), to.join("private").join(&own)),
        ];
        for (from, to) in copies {
            let folder = to.parent().unwrap_or(&to);
            fs::create_dir_all(folder).map_err(Error::in_front(folder.display()))?;
            fs::copy(&from, &to).map_err(Error::in_front(from.display()))?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn key(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}-key.pem"))
    }

    /// Runs `pki` and writes what it prints to the file `to`.
    fn run(&self, words: &str, to: &Path) -> Result<()> {
        let mut command = Command::new("pki");
        command.args(words.split(' ')).args(["--outform", "pem"]);
        let output = command.env("STRONGSWAN_CONF", self.file("strongswan.conf")).output();
        let output = output.map_err(Error::in_front("pki (Debian package strongswan-pki)"))?;
        if !output.status.success() {
            return Err(Error::new(format!("pki {words}: {}", String::from_utf8_lossy(&output.stderr))));
        }
        fs::write(to, output.stdout).map_err(Error::in_front(to.display()))
    }
}
