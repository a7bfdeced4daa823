//! A CA whose host certificates have their private keys on tokens of SoftHSM.

use casemate_test_support::{Program, SoftHsm, skip};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const PIN: &str = "2718";

/// Makes the keys and certificates. `$1` is the directory, `$2` are the options of `openssl genpkey`.
const SCRIPT: &str = r#"set -e
cd "$1"
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj "/CN=Token CA" -days 3650 \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
for host in left right; do
  openssl genpkey $2 -out $host.key
  printf "subjectAltName=DNS:$host.test\n" > ext
  openssl req -new -key $host.key -subj "/CN=$host" |
    openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile ext -out $host.pem
  openssl x509 -in $host.pem -outform DER -out $host.der
done
"#;

/// Options for a kind of key.
pub(crate) const RSA: &str = "-algorithm RSA -pkeyopt rsa_keygen_bits:2048";
pub(crate) const ECDSA: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-384";

/// The CA, and a token.
pub(crate) struct Keys {
    directory: PathBuf,
    pub(crate) hsm: SoftHsm,
    pub(crate) slot: u64,
}

impl Keys {
    /// `None` without openssl or SoftHSM.
    pub(crate) fn new(directory: PathBuf, kind: &str) -> Option<Self> {
        if !Path::new("/usr/bin/openssl").exists() {
            skip("openssl (Debian package openssl)");
            return None;
        }
        let hsm = SoftHsm::new(&directory.join("hsm"))?;
        let output = Program::new("sh").args(["-c", SCRIPT, "sh"]).arg(&directory).arg(kind).output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let slot = hsm.add_token("hosts", PIN);
        let keys = Self { directory, hsm, slot };
        for (host, id) in [("left", "a1"), ("right", "a2")] {
            keys.hsm.import(slot, PIN, &keys.file(&format!("{host}.key")), id);
        }
        Some(keys)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Stores the certificate of a host on the token, with the handle of its key.
    pub(crate) fn store_certificate(&self, host: &str, id: &str) {
        self.hsm.store_certificate(self.slot, PIN, &self.file(&format!("{host}.der")), id);
    }

    /// Writes `swanctl.conf` and the folders of certificates beside it. The private key stays away unless it
    /// is wanted.
    pub(crate) fn install(&self, directory: &Path, host: &str, conf: &str, has_key: bool) -> PathBuf {
        let mut files = vec![("ca.pem".to_owned(), "x509ca"), (format!("{host}.pem"), "x509")];
        files.extend(has_key.then(|| (format!("{host}.key"), "private")));
        for (file, folder) in files {
            fs::create_dir_all(directory.join(folder)).unwrap();
            fs::copy(self.file(&file), directory.join(folder).join(&file)).unwrap();
        }
        let path = directory.join("swanctl.conf");
        fs::write(&path, conf).unwrap();
        path
    }

    /// The section of the module.
    pub(crate) fn module(&self) -> String {
        module(self.hsm.module())
    }
}

/// The section of a module.
pub(crate) fn module(path: &Path) -> String {
    let path = path.display();
    format!("charon {{ plugins {{ pkcs11 {{ modules {{ soft {{ path = {path} }} }} }} }} }}\n")
}
