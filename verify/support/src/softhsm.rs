//! Tokens in software: SoftHSM, whose tokens are files in a directory.

use crate::{Program, skip};
use std::fs;
use std::path::{Path, PathBuf};

/// Where distributions install the module.
const MODULES: [&str; 3] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
];
const SO_PIN: &str = "87654321";

/// A directory of tokens. Its programs and the module read [`SoftHsm::CONFIG`].
pub struct SoftHsm {
    config: PathBuf,
    module: PathBuf,
}

impl SoftHsm {
    /// Environment variable with the path of the configuration file.
    pub const CONFIG: &str = "SOFTHSM2_CONF";

    /// Makes the directory, which must not exist. Reports the skipped test and returns `None` if SoftHSM or
    /// OpenSC is not installed.
    #[expect(clippy::unwrap_used, reason = "called by tests only, which may fail")]
    pub fn new(directory: &Path) -> Option<Self> {
        let module = MODULES.iter().map(PathBuf::from).find(|module| module.exists());
        let has_tools =
            ["softhsm2-util", "pkcs11-tool"].iter().all(|tool| Path::new("/usr/bin").join(tool).exists());
        let Some(module) = module.filter(|_| has_tools) else {
            skip("SoftHSM and pkcs11-tool (Debian packages softhsm2 and opensc)");
            return None;
        };
        let tokens = directory.join("tokens");
        fs::create_dir_all(&tokens).unwrap();
        let config = directory.join("softhsm2.conf");
        let text = format!(
            "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
            tokens.display()
        );
        fs::write(&config, text).unwrap();
        Some(Self { config, module })
    }

    /// The configuration file, for [`CONFIG`](Self::CONFIG).
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The shared library.
    pub fn module(&self) -> &Path {
        &self.module
    }

    /// Makes a token. Returns its slot.
    pub fn add_token(&self, label: &str, pin: &str) -> u64 {
        let arguments = ["--init-token", "--free", "--label", label, "--so-pin", SO_PIN, "--pin", pin];
        let said = self.run(Program::new("softhsm2-util").args(arguments));
        slot_in(&said)
    }

    /// Stores a key pair, a file with PKCS #8 in PEM. `id` is its CKA_ID in hexadecimal digits.
    pub fn import(&self, slot: u64, pin: &str, key: &Path, id: &str) {
        let (slot, key) = (slot.to_string(), key.display().to_string());
        let arguments = ["--import", &key, "--slot", &slot, "--label", id, "--id", id, "--pin", pin];
        self.run(Program::new("softhsm2-util").args(arguments));
    }

    /// Makes a key pair on the token: `kind` is that of `pkcs11-tool --key-type`.
    pub fn generate(&self, slot: u64, pin: &str, kind: &str, id: &str) {
        self.tool(slot, pin, &["--keypairgen", "--key-type", kind, "--id", id, "--label", id]);
    }

    /// Stores a certificate in DER.
    pub fn store_certificate(&self, slot: u64, pin: &str, certificate: &Path, id: &str) {
        let file = certificate.display().to_string();
        self.tool(slot, pin, &["--write-object", &file, "--type", "cert", "--id", id, "--label", id]);
    }

    /// Deletes an object: `kind` is that of `pkcs11-tool --type`.
    pub fn delete(&self, slot: u64, pin: &str, kind: &str, id: &str) {
        self.tool(slot, pin, &["--delete-object", "--type", kind, "--id", id]);
    }

    /// Runs `pkcs11-tool` with a login.
    fn tool(&self, slot: u64, pin: &str, arguments: &[&str]) -> String {
        let module = self.module.display().to_string();
        let slot = slot.to_string();
        let login = ["--module", &module, "--slot", &slot, "--login", "--pin", pin];
        self.run(Program::new("pkcs11-tool").args(login).args(arguments))
    }

    fn run(&self, program: Program) -> String {
        let output = program.env(Self::CONFIG, &self.config).output();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
        said
    }
}

/// The slot at the end of a line of `softhsm2-util --init-token`.
#[expect(clippy::panic, reason = "called by tests only, which may fail")]
fn slot_in(said: &str) -> u64 {
    let last = said.split_whitespace().last().and_then(|word| word.parse().ok());
    last.unwrap_or_else(|| panic!("a slot was expected: {said}"))
}
