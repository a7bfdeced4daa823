//! A certification authority for tests, made with openssl(1).

use casemate_test_support::Program;
use std::fs;
use std::path::{Path, PathBuf};

/// A CA with its files in a directory.
pub(crate) struct Authority {
    directory: PathBuf,
}

/// The dates of a certificate, as `openssl ca` takes them: `YYYYMMDDHHMMSSZ`.
pub(crate) struct Validity {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Validity {
    pub(crate) const NOW: Self = Self { from: "20200101000000Z", to: "20991231000000Z" };
    pub(crate) const PAST: Self = Self { from: "20200101000000Z", to: "20210101000000Z" };
    pub(crate) const FUTURE: Self = Self { from: "20980101000000Z", to: "20991231000000Z" };
}

impl Authority {
    /// Makes a CA with this name.
    pub(crate) fn new(parent: &Path, name: &str) -> Self {
        let directory = parent.join(format!("ca-{name}"));
        fs::create_dir_all(&directory).unwrap();
        let this = Self { directory };
        fs::write(this.file("index.txt"), "").unwrap();
        fs::write(this.file("serial"), "1000\n").unwrap();
        fs::write(this.file("crlnumber"), "01\n").unwrap();
        let path = |file: &str| this.file(file).display().to_string();
        let conf = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = {}\nserial = {}\ncrlnumber = {}\nnew_certs_dir = {}\n\
             default_md = sha256\npolicy = any\ndefault_crl_days = 3650\nunique_subject = no\n\
             copy_extensions = none\n[any]\ncommonName = supplied\n[ca_ext]\nbasicConstraints = critical,CA:true\n\
             keyUsage = critical,keyCertSign,cRLSign\nsubjectKeyIdentifier = hash\n[req]\n\
             distinguished_name = dn\n[dn]\n",
            path("index.txt"),
            path("serial"),
            path("crlnumber"),
            this.directory.display()
        );
        fs::write(this.file("ca.cnf"), conf).unwrap();
        this.key("ca");
        this.openssl(&format!(
            "req -new -x509 -config {} -extensions ca_ext -days 36500 -subj /CN={name} -key {} -out {}",
            path("ca.cnf"),
            path("ca.key"),
            path("ca.pem")
        ));
        this
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn openssl(&self, args: &str) {
        let output = Program::new("openssl").args(args.split(' ')).output();
        assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn key(&self, name: &str) {
        let path = self.file(&format!("{name}.key"));
        self.openssl(&format!(
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {}",
            path.display()
        ));
    }

    /// Issues a certificate for a domain name. Its files are `HOST.pem` and `HOST.key`.
    pub(crate) fn issue(&self, host: &str, dns: &str, validity: &Validity) {
        self.key(host);
        let path = |file: &str| self.file(file).display().to_string();
        let extensions = format!("basicConstraints = CA:false\nsubjectAltName = DNS:{dns}\n");
        fs::write(self.file("ext.cnf"), extensions).unwrap();
        self.openssl(&format!(
            "req -new -config {} -subj /CN={dns} -key {} -out {}",
            path("ca.cnf"),
            path(&format!("{host}.key")),
            path(&format!("{host}.csr"))
        ));
        let Validity { from, to } = validity;
        self.openssl(&format!(
            "ca -batch -notext -config {} -cert {} -keyfile {} -in {} -out {} -extfile {} -startdate {from} -enddate \
             {to}",
            path("ca.cnf"),
            path("ca.pem"),
            path("ca.key"),
            path(&format!("{host}.csr")),
            path(&format!("{host}.pem")),
            path("ext.cnf")
        ));
    }

    /// Revokes a certificate, and makes the CRL `crl.pem`.
    pub(crate) fn revoke(&self, host: &str) {
        let path = |file: &str| self.file(file).display().to_string();
        let ca =
            format!("ca -config {} -cert {} -keyfile {}", path("ca.cnf"), path("ca.pem"), path("ca.key"));
        self.openssl(&format!("{ca} -revoke {}", path(&format!("{host}.pem"))));
        self.openssl(&format!("{ca} -gencrl -out {}", path("crl.pem")));
    }

    /// Installs files of this CA into a directory for `swanctl.conf`: the own certificate and key of `host`.
    pub(crate) fn install_host(&self, host: &str, to: &Path) {
        for (file, folder) in [(format!("{host}.pem"), "x509"), (format!("{host}.key"), "private")] {
            self.install(&file, folder, to);
        }
    }

    /// Installs the CA certificate, and the CRL if there is one.
    pub(crate) fn install_authority(&self, to: &Path) {
        self.install("ca.pem", "x509ca", to);
        if self.file("crl.pem").exists() {
            self.install("crl.pem", "x509crl", to);
        }
    }

    fn install(&self, file: &str, folder: &str, to: &Path) {
        let folder = to.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(self.file(file), folder.join(file)).unwrap();
    }
}
