//! `eapol_test` of wpa_supplicant as the peer.

use crate::party::{AUTN, CK, CLIENT, IK, Party, RAND, RES};
use crate::radius::SECRET;
use crate::server;
use casemate_eap::{Authenticated, Method};
use casemate_test_support::TempDir;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const PROGRAM: &str = "/usr/bin/eapol_test";

/// Number of attempts to reach the control interface, 10 ms each.
const ATTEMPTS: usize = 500;

/// Runs the peer with these lines of its configuration against our authenticator. Returns our result and
/// whether the peer has succeeded, with equal keys.
pub(crate) fn run(
    method: Method,
    lines: &str,
    party: &Party,
) -> Result<(Result<Authenticated, String>, bool), String> {
    let directory = TempDir::new("eapol-test").map_err(|error| error.to_string())?;
    for (name, contents) in [("client.pem", CLIENT[0]), ("client.key", CLIENT[1])] {
        fs::write(directory.file(name), contents).map_err(|error| error.to_string())?;
    }
    let path = directory.file("network.conf");
    let text = format!(
        "ctrl_interface=DIR/ctrl\nexternal_sim=1\nnetwork={{\nkey_mgmt=IEEE8021X\neapol_flags=0\n{lines}\n}}\n"
    );
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
    let usim = method.uses_usim().then(|| Usim::start(directory.path()));
    let usim = usim.transpose().map_err(|error| format!("control interface: {error}"))?;
    let result = server::serve(&socket, method, party);
    // -t limits the time.
    let status = peer.wait().map_err(|error| error.to_string())?;
    drop(usim);
    if std::env::var_os("EAP_MATRIX_LOG").is_some() {
        print!("{}", fs::read_to_string(directory.file("log")).unwrap_or_default());
    }
    Ok((result, status.success()))
}

/// The USIM, which Debian's eapol_test asks for on its control interface. It knows the vector of test set 1
/// of TS 35.208. Ends with its owner.
struct Usim {
    thread: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

impl Usim {
    /// Attaches to the control interface, which exists soon after the start of the program. The server must
    /// not send the challenge before.
    fn start(directory: &Path) -> std::io::Result<Self> {
        let socket = UnixDatagram::bind(directory.join("usim"))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        for attempt in 0..=ATTEMPTS {
            match socket.connect(directory.join("ctrl/test")).and_then(|()| socket.send(b"ATTACH")) {
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
                Ok(_) => break,
            }
        }
        let mut confirmation = [0; 16];
        socket.recv(&mut confirmation)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || serve_usim(&socket, &ended));
        Ok(Self { thread: Some(thread), has_ended })
    }
}

impl Drop for Usim {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_usim(socket: &UnixDatagram, has_ended: &AtomicBool) {
    const EVENT: &str = "CTRL-REQ-SIM-";
    let mut buffer = [0; 4096];
    while !has_ended.load(Ordering::Relaxed) {
        let Ok(len) = socket.recv(&mut buffer) else { continue };
        let event = String::from_utf8_lossy(&buffer[..len]).into_owned();
        let Some((_, request)) = event.split_once(EVENT) else { continue };
        let Some((network, asked)) = request.split_once(':') else { continue };
        let is_expected = asked.starts_with(&format!("UMTS-AUTH:{RAND}:{AUTN}"));
        let result = if is_expected { format!("UMTS-AUTH:{IK}:{CK}:{RES}") } else { "UMTS-FAIL".into() };
        // An error leaves the peer without a response, which the case reports.
        let _ = socket.send(format!("CTRL-RSP-SIM-{network}:{result}").as_bytes());
    }
}
