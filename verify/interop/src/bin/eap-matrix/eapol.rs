//! `eapol_test` of wpa_supplicant as the peer.

use crate::party::{CLIENT, Party};
use crate::radius::SECRET;
use crate::server;
use casemate_eap::{Authenticated, Method};
use casemate_test_support::TempDir;
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

pub(crate) const PROGRAM: &str = "/usr/bin/eapol_test";

/// Runs the peer with these lines of its configuration against our authenticator. Returns our result and
/// whether the peer has succeeded, with equal keys.
pub(crate) fn run(
    method: Method,
    lines: &str,
    party: &Party,
) -> Result<(Result<Authenticated, String>, bool), String> {
    let directory = TempDir::new("eapol-test");
    for (name, contents) in [("client.pem", CLIENT[0]), ("client.key", CLIENT[1])] {
        fs::write(directory.file(name), contents).map_err(|error| error.to_string())?;
    }
    let path = directory.file("network.conf");
    let text = format!("network={{\nkey_mgmt=IEEE8021X\neapol_flags=0\n{lines}\n}}\n");
    let text = text.replace("DIR", &directory.path().to_string_lossy());
    fs::write(&path, text).map_err(|error| error.to_string())?;
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = socket.local_addr().map_err(|error| error.to_string())?.port().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["-a", "127.0.0.1", "-p", &port, "-s", SECRET, "-t", "10", "-c"]).arg(&path);
    if !method.derives_keys() {
        command.arg("-n");
    }
    let log = fs::File::create(directory.file("log")).map_err(|error| error.to_string())?;
    let mut peer = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let result = server::serve(&socket, method, party);
    // -t limits the time.
    let status = peer.wait().map_err(|error| error.to_string())?;
    if std::env::var_os("EAP_MATRIX_LOG").is_some() {
        print!("{}", fs::read_to_string(directory.file("log")).unwrap_or_default());
    }
    Ok((result, status.success()))
}
