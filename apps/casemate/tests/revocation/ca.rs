//! A CA with certificates of two hosts and of OCSP responders, made with openssl(1).

use casemate_test_support::Program;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes the keys and certificates. `$1` is the directory, `$2` are lines of the extensions of the hosts.
const SCRIPT: &str = r#"set -e
cd "$1"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out $1.key; }
root() { key $1; openssl req -x509 -new -key $1.key -subj "/CN=$2" -days 3650 -out $1.pem \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign; }
cert() { key $1; openssl req -new -key $1.key -subj "/CN=$1" |
  openssl x509 -req -CA $2.pem -CAkey $2.key -set_serial $3 -days 3650 -extfile $4 -out $1.pem; }
root ca "Test CA"
root other "Other CA"
printf 'subjectAltName=DNS:left.test\n%s\n' "$2" > left.ext
printf 'subjectAltName=DNS:right.test\n' > right.ext
printf 'extendedKeyUsage=OCSPSigning\nnoCheck=yes\n' > responder.ext
cert left ca 0x1001 left.ext
cert right ca 0x1002 right.ext
cert responder ca 0x2001 responder.ext
cert stranger other 0x2002 responder.ext
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ndefault_md=sha256\ncrlnumber=crlnumber\n' > ca.cnf
echo 01 > crlnumber
printf '[delta]\n2.5.29.27=critical,DER:020101\n' >> ca.cnf
for state in good revoked unknown; do
  case $state in
    good) printf 'V\t21260101000000Z\t\t1001\tunknown\t/CN=left\n';;
    revoked) printf 'R\t21260101000000Z\t261101000000Z\t1001\tunknown\t/CN=left\n';;
    unknown) printf 'V\t21260101000000Z\t\t9999\tunknown\t/CN=nobody\n';;
  esac > $state.txt
  cp $state.txt index.txt
  openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -gencrl -crlhours 24 -out $state.crl.pem
  openssl crl -in $state.crl.pem -outform DER -out $state.crl
  openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -gencrl -crlhours 24 -crlexts delta -out delta.pem
  openssl crl -in delta.pem -outform DER -out $state.delta.crl
done
"#;

/// The files of a CA.
#[derive(Clone)]
pub(crate) struct Ca {
    directory: PathBuf,
}

impl Ca {
    /// Makes a CA in a directory that does not exist. `extensions` are lines of the certificate of the left
    /// host. `None` without openssl.
    pub(crate) fn new(directory: PathBuf, extensions: &str) -> Option<Self> {
        if !Path::new("/usr/bin/openssl").exists() {
            casemate_test_support::skip("openssl (Debian package openssl)");
            return None;
        }
        fs::create_dir_all(&directory).unwrap();
        let program = Program::new("sh").args(["-c", SCRIPT, "sh"]).arg(&directory).arg(extensions);
        let output = program.output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { directory })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes `swanctl.conf` and the folders beside it into a directory. Returns the path of the file.
    pub(crate) fn install(&self, host: &str, directory: &Path, conf: &str) -> PathBuf {
        for (file, folder) in
            [("ca.pem", "x509ca"), (&*format!("{host}.pem"), "x509"), (&*format!("{host}.key"), "private")]
        {
            fs::create_dir_all(directory.join(folder)).unwrap();
            fs::copy(self.file(file), directory.join(folder).join(file)).unwrap();
        }
        let path = directory.join("swanctl.conf");
        fs::write(&path, conf).unwrap();
        path
    }

    /// The answer of `openssl ocsp` to a request, with this database and signer.
    pub(crate) fn respond(&self, request: &[u8], state: &str, signer: &str, more: &[&str]) -> Vec<u8> {
        // Several requests may be answered at the same time.
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let into = self.file(&format!("request-{call}.der"));
        let from = self.file(&format!("response-{call}.der"));
        fs::write(&into, request).unwrap();
        let path = |name: String| self.file(&name).display().to_string();
        let program = Program::new("openssl").args(["ocsp", "-index", &path(format!("{state}.txt"))]).args([
            "-CA",
            &path("ca.pem".into()),
            "-rsigner",
            &path(format!("{signer}.pem")),
            "-rkey",
            &path(format!("{signer}.key")),
            "-reqin",
            into.to_str().unwrap(),
            "-respout",
            from.to_str().unwrap(),
        ]);
        let output = program.args(more).output();
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        fs::read(&from).unwrap_or_else(|error| panic!("{error}: {}", said()))
    }
}
