//! Debian's `swanctl`, unmodified, as a client of an instance.

use crate::testnet::Host;
use casemate_test_support::{Process, Program, write_program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Directories that `swanctl` expects beside its file.
const FOLDERS: [&str; 12] = [
    "x509", "x509ca", "x509ocsp", "x509aa", "x509ac", "x509crl", "pubkey", "private", "rsa", "ecdsa",
    "pkcs8", "pkcs12",
];

/// `swanctl` with its files on one host.
pub(crate) struct Swanctl<'h> {
    host: &'h Host,
    program: PathBuf,
    pub(crate) directory: PathBuf,
}

impl<'h> Swanctl<'h> {
    /// Notes the skipped test and returns `None` if `swanctl` is not installed. A copy runs, because Debian's
    /// AppArmor profile restricts the original to the files of the system.
    pub(crate) fn new(host: &'h Host, conf: &str) -> Option<Self> {
        let Ok(bytes) = fs::read("/usr/sbin/swanctl") else {
            casemate_test_support::skip("swanctl (Debian package strongswan-swanctl) is not installed");
            return None;
        };
        let directory = host.file("swanctl");
        for folder in FOLDERS {
            fs::create_dir_all(directory.join(folder)).unwrap();
        }
        fs::write(
            directory.join("strongswan.conf"),
            "swanctl {\nload = random pem pkcs1 pkcs8 x509 pubkey openssl curve25519\n}\n",
        )
        .unwrap();
        fs::write(directory.join("swanctl.conf"), conf).unwrap();
        let program = directory.join("program");
        write_program(&program, &bytes);
        Some(Self { host, program, directory })
    }

    fn with_args(&self, args: &[&str]) -> Program {
        let uri = format!("unix://{}", self.host.file("vici").display());
        let directory = self.directory.clone();
        Program::new(&self.program).args(args).args(["--uri", &uri]).configure(move |command| {
            command.env("SWANCTL_DIR", &directory).env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
        })
    }

    /// Runs `swanctl` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.host.output_of(self.with_args(args))
    }

    /// The standard output of `swanctl`, which must succeed.
    pub(crate) fn output(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "swanctl {args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error output of `swanctl`, which must fail.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "swanctl {args:?} succeeded");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Starts `swanctl`, whose output goes to a file, line by line.
    pub(crate) fn start(&self, args: &[&str], log: &Path) -> Process {
        let uri = format!("unix://{}", self.host.file("vici").display());
        let directory = self.directory.clone();
        let program = Program::new("stdbuf").arg("-oL").arg(&self.program).args(args).args(["--uri", &uri]);
        let program = program.configure(move |command| {
            command.env("SWANCTL_DIR", &directory).env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
        });
        program.log_to(log).start_with(|command| self.host.netns.spawn(command))
    }
}
