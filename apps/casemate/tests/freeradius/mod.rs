//! Debian's FreeRADIUS, unmodified, with a configuration of its own, as a process of the test.

use crate::testnet::Host;
use casemate_test_support::{Process, Program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = "/usr/sbin/freeradius";
const TIMEOUT: Duration = Duration::from_secs(20);
/// The secret that the server shares with the gateway.
pub(crate) const SECRET: &str = "a secret of gateway and server";

/// Where a server listens, and whom it knows.
pub(crate) struct Settings<'s> {
    /// Port of authentication; that of accounting is the next one.
    pub(crate) port: u16,
    /// The file of users (users(5)).
    pub(crate) users: &'s str,
    /// The gateways that it serves (clients.conf(5)).
    pub(crate) clients: &'s str,
    /// What it does after the authentication in the tunnel of TTLS (unlang(5)).
    pub(crate) post_auth: &'s str,
}

impl<'s> Settings<'s> {
    /// The default ports, for the gateway of the tests.
    pub(crate) const fn of_users(users: &'s str) -> Self {
        Self { port: 1_812, users, clients: CLIENTS, post_auth: "" }
    }
}

/// The gateway of the tests.
pub(crate) const CLIENTS: &str =
    "client gateway {\n ipaddr = 127.0.0.1\n secret = \"a secret of gateway and server\"\n}\n";

/// A running server.
pub(crate) struct FreeRadius {
    directory: PathBuf,
    process: Process,
}

impl FreeRadius {
    /// Starts a server on a host, at 127.0.0.1, and waits until it is ready. Notes the skipped test and
    /// returns `None` if a program is missing.
    pub(crate) fn start(host: &Host, settings: &Settings<'_>) -> Option<Self> {
        if !Path::new(PROGRAM).exists() || !Path::new("/usr/bin/radclient").exists() {
            casemate_test_support::skip("freeradius (Debian packages freeradius and freeradius-utils)");
            return None;
        }
        let directory = host.file(&format!("freeradius-{}", settings.port));
        fs::create_dir_all(&directory).unwrap();
        let certificates = host.file("certificates");
        fs::write(directory.join("radiusd.conf"), conf(&directory, &certificates, settings)).unwrap();
        fs::write(directory.join("users"), settings.users).unwrap();
        if !certificates.exists() {
            make_certificates(&certificates);
        }
        let program = Program::new(PROGRAM).args(["-X", "-d"]).arg(&directory);
        let program = program.log_to(&host.file(&format!("freeradius-{}.log", settings.port)));
        let mut process = program.start_with(|command| host.netns.spawn(command));
        process.wait_for_line("Ready to process requests", TIMEOUT);
        Some(Self { directory, process })
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// The records of accounting.
    pub(crate) fn records(&self) -> String {
        fs::read_to_string(self.directory.join("detail")).unwrap_or_default()
    }
}

/// Certificates of a CA, of the server and of the peer, in a directory.
pub(crate) fn make_certificates(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let script = "set -e\ncd \"$1\"\n\
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj '/CN=Test CA' -days 30\n\
        for name in aaa.test carol; do\n\
        openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$name\n\
        printf 'subjectAltName=DNS:%s\\nextendedKeyUsage=serverAuth,clientAuth\\n' $name > extensions\n\
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \
        -extfile extensions -out $name.pem\ndone\n";
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What Debian's configuration does with a name from the tunnel.
const POST_AUTH: &str = "if (session-state:User-Name && reply:User-Name && request:User-Name && \
     (reply:User-Name == request:User-Name)) {\n update reply {\n &User-Name !* ANY\n }\n }\n\
     update {\n &reply: += &session-state:\n }";

/// The configuration: EAP outside, and passwords inside of TTLS.
fn conf(directory: &Path, certificates: &Path, settings: &Settings<'_>) -> String {
    let Settings { port, clients, post_auth, .. } = settings;
    let (directory, certificates) = (directory.display(), certificates.display());
    let accounting = port + 1;
    format!(
        "name = freeradius\nlibdir = /usr/lib/freeradius\nraddbdir = {directory}\nlogdir = {directory}\n\
         run_dir = {directory}\npidfile = {directory}/pid\nmax_request_time = 30\ncleanup_delay = 1\n\
         security {{\n reject_delay = 0\n status_server = no\n}}\nlog {{\n destination = stdout\n}}\n\
         {clients}\
         modules {{\n files {{\n filename = {directory}/users\n }}\n pap {{\n }}\n mschap {{\n }}\n\
         detail {{\n filename = {directory}/detail\n }}\n\
         eap {{\n default_eap_type = mschapv2\n timer_expire = 60\n max_sessions = 100\n\
         tls-config common {{\n private_key_file = {certificates}/aaa.test.key\n\
         certificate_file = {certificates}/aaa.test.pem\n ca_file = {certificates}/ca.pem\n\
         tls_min_version = \"1.2\"\n tls_max_version = \"1.2\"\n cipher_list = \"DEFAULT\"\n }}\n\
         md5 {{\n }}\n mschapv2 {{\n }}\n tls {{\n tls = common\n }}\n\
         ttls {{\n tls = common\n default_eap_type = md5\n virtual_server = inner\n }}\n }}\n}}\n\
         server outer {{\n listen {{\n type = auth\n ipaddr = 127.0.0.1\n port = {port}\n }}\n\
         listen {{\n type = acct\n ipaddr = 127.0.0.1\n port = {accounting}\n }}\n\
         authorize {{\n files\n eap\n }}\n authenticate {{\n eap\n Auth-Type MS-CHAP {{\n mschap\n }}\n }}\n\
         post-auth {{\n{POST_AUTH}\n }}\n accounting {{\n detail\n }}\n}}\n\
         server inner {{\n authorize {{\n files\n eap\n pap\n }}\n\
         authenticate {{\n eap\n Auth-Type MS-CHAP {{\n mschap\n }}\n Auth-Type PAP {{\n pap\n }}\n }}\n\
         post-auth {{\n{post_auth}\n }}\n}}\n"
    )
}
