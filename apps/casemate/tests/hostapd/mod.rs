//! Debian's `hostapd`, unmodified, as a RADIUS server with EAP methods, and the authentication centre that it
//! asks for vectors of AKA.

use crate::testnet::{Host, eventually};
use casemate_test_support::{Process, Program};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "/usr/sbin/hostapd";
/// The secret that the server shares with the gateway. hostapd's file of clients permits no spaces.
pub(crate) const SECRET: &str = "secret-of-gateway-and-server";
pub(crate) const IMSI: &str = "232010000000000";
/// K and OPc of test set 1 of 3GPP TS 35.208.
pub(crate) const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
pub(crate) const OPC: &str = "cd63cb71954a9f4e48a5994e37a02baf";
/// RAND, AUTN, IK, CK and RES of the test set, but SQN is 33 and AMF is 8000: that of the test set is too far
/// from the number of a new USIM.
const VECTOR: &str = "23553cbe9637a89d218ae64dae47bf35 aa689c648351800041ed662ae8c74ecd \
                      f769bcd751044604127672711c6d3441 b40ba9a3c58b2a05bbf0d987b21bf8cb a54211d5e3ba50bf";

/// A running server.
pub(crate) struct Hostapd {
    log: PathBuf,
    /// Ends with its owner.
    _process: Process,
}

impl Hostapd {
    /// Starts a server on a host, at port 1812 of 127.0.0.1, and waits until it is ready. `users` is its file
    /// of users; `certificates` has the files `ca.pem`, `aaa.test.pem` and `aaa.test.key`. Notes the skipped
    /// test and returns `None` if the program is missing.
    pub(crate) fn start(host: &Host, users: &str, certificates: &Path) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            casemate_test_support::skip("hostapd (Debian package hostapd) is not installed");
            return None;
        }
        let directory = host.file("hostapd");
        fs::create_dir_all(&directory).unwrap();
        serve_vectors(UnixDatagram::bind(directory.join("auc")).unwrap());
        fs::write(directory.join("users"), users).unwrap();
        fs::write(directory.join("clients"), format!("127.0.0.1 {SECRET}\n")).unwrap();
        let (at, keys) = (directory.display(), certificates.display());
        let conf = format!(
            "driver=none\ninterface=lo\nradius_server_clients={at}/clients\nradius_server_auth_port=1812\n\
             eap_server=1\neap_user_file={at}/users\neap_sim_db=unix:{at}/auc\n\
             ca_cert={keys}/ca.pem\nserver_cert={keys}/aaa.test.pem\nprivate_key={keys}/aaa.test.key\n"
        );
        fs::write(directory.join("conf"), conf).unwrap();
        let log = directory.join("log");
        let program = Program::new(PROGRAM).arg("-d").arg("-f").arg(&log).arg(directory.join("conf"));
        let program = program.log_to(&host.file("hostapd.log"));
        let server = Self { log, _process: program.start_with(|command| host.netns.spawn(command)) };
        eventually("hostapd is ready", || server.log().contains("AP-ENABLED"));
        Some(server)
    }

    /// The number of peers that the server has accepted.
    pub(crate) fn successes(&self) -> usize {
        self.log().matches("EAP: EAP entering state SUCCESS").count()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Answers requests for vectors while the test runs.
fn serve_vectors(socket: UnixDatagram) {
    std::thread::spawn(move || {
        let mut buffer = [0; 1000];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let is_ours = buffer[..len] == *format!("AKA-REQ-AUTH {IMSI}").as_bytes();
            if let Some(path) = from.as_pathname().filter(|_| is_ours) {
                let _ = socket.send_to(format!("AKA-RESP-AUTH {IMSI} {VECTOR}").as_bytes(), path);
            }
        }
    });
}
