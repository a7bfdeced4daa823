//! `hostapd` as the RADIUS and EAP server of our peer.

use crate::party::{AUTN, CK, IK, IMSI, Party, RAND, RES, SERVER};
use crate::radius::{ACCESS_ACCEPT, ACCESS_CHALLENGE, EAP_MESSAGE, Packet, SECRET, STATE, request};
use crate::server::to_bytes;
use casemate_eap::{Authenticated, Method, Peer, PeerStep};
use casemate_test_support::TempDir;
use casemate_wire::ike::{Eap, EapCode};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const PROGRAM: &str = "/usr/sbin/hostapd";

/// Certificates of the CAs of the client.
const CAS: [&[u8]; 2] = [
    include_bytes!("../../../../../core/pki/tests/data/root.pem"),
    include_bytes!("../../../../../core/pki/tests/data/sub.pem"),
];
/// Number of attempts to reach the server while it starts, 50 ms each.
const ATTEMPTS: usize = 100;
/// Longest time without a response.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The running server, which ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &TempDir, users: &str, port: u16) -> Result<Server, String> {
    let text = |error: std::io::Error| error.to_string();
    for (name, contents) in [("server.pem", SERVER[0]), ("server.key", SERVER[1])] {
        fs::write(directory.file(name), contents).map_err(text)?;
    }
    fs::write(directory.file("users"), users).map_err(text)?;
    fs::write(directory.file("clients"), format!("127.0.0.1 {}\n", SECRET)).map_err(text)?;
    fs::write(directory.file("ca.pem"), CAS.concat()).map_err(text)?;
    let configuration = "driver=none\ninterface=lo\nradius_server_clients=DIR/clients\neap_server=1\n\
                         eap_user_file=DIR/users\nca_cert=DIR/ca.pem\nserver_cert=DIR/server.pem\n\
                         private_key=DIR/server.key\neap_sim_db=unix:DIR/auc\neap_sim_aka_result_ind=1\n"
        .replace("DIR", &directory.path().to_string_lossy());
    let path = directory.file("hostapd.conf");
    fs::write(&path, format!("{configuration}radius_server_auth_port={port}\n")).map_err(text)?;
    let log = fs::File::create(directory.file("log")).map_err(text)?;
    let mut command = Command::new(PROGRAM);
    command.arg("-dd").arg(&path).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
    command.spawn().map(Server).map_err(text)
}

/// The authentication centre that hostapd asks for vectors.
fn authentication_centre(directory: &TempDir) -> Result<UnixDatagram, String> {
    let socket = UnixDatagram::bind(directory.file("auc")).map_err(|error| error.to_string())?;
    let own = socket.try_clone().map_err(|error| error.to_string())?;
    std::thread::spawn(move || {
        let mut buffer = [0; 1000];
        while let Ok((len, from)) = own.recv_from(&mut buffer) {
            let request = String::from_utf8_lossy(&buffer[..len]).into_owned();
            let Some(path) = from.as_pathname().filter(|_| len > 0) else { break };
            if request == format!("AKA-REQ-AUTH {IMSI}") {
                let _ = own
                    .send_to(format!("AKA-RESP-AUTH {IMSI} {RAND} {AUTN} {IK} {CK} {RES}").as_bytes(), path);
            }
        }
    });
    Ok(socket)
}

/// Runs our peer against a server with these users. Returns our result, and whether the server has accepted
/// the peer, with an equal key.
pub(crate) fn run(
    method: Method,
    identity: &str,
    users: &str,
    party: &Party,
) -> Result<(Result<Authenticated, String>, bool), String> {
    let directory = TempDir::new("hostapd").map_err(|error| error.to_string())?;
    let auc = authentication_centre(&directory)?;
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.map_err(|error| error.to_string())?.port();
    let server = start(&directory, users, port)?;
    let result = converse(method, identity, port, party);
    drop(server);
    let _ = auc.shutdown(std::net::Shutdown::Both);
    if std::env::var_os("EAP_MATRIX_LOG").is_some() {
        print!("{}", fs::read_to_string(directory.file("log")).unwrap_or_default());
    }
    result
}

fn converse(
    method: Method,
    identity: &str,
    port: u16,
    party: &Party,
) -> Result<(Result<Authenticated, String>, bool), String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(text)?;
    socket.connect(("127.0.0.1", port)).map_err(text)?;
    socket.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
    let mut peer = Peer::new(identity.into(), vec![method]);
    let first = [&[2, 0], &(identity.len() as u16 + 5).to_be_bytes()[..], &[1], identity.as_bytes()].concat();
    let (mut eap, mut state) = (first, Vec::new());
    for number in 0..u8::MAX {
        let authenticator = [number.wrapping_add(1); 16];
        let datagram = request(number, &authenticator, identity.as_bytes(), &eap, &state);
        let response = exchange(&socket, &datagram)?;
        state = response.joined(STATE);
        let bytes = response.joined(EAP_MESSAGE);
        let packet = Eap::parse(&bytes).map_err(|_| "a malformed EAP packet")?;
        let is_accepted = response.code == ACCESS_ACCEPT;
        match party.context(|context| peer.receive(&packet, context)) {
            PeerStep::Respond(packet) if response.code == ACCESS_CHALLENGE => eap = to_bytes(&packet),
            PeerStep::Respond(_) => return Err("a request outside of a challenge".into()),
            PeerStep::Succeeded(done) => {
                assert_eq!(packet.code, EapCode::SUCCESS);
                let theirs = response.msk(&authenticator);
                let ours = done.msk.as_ref().map(|msk| msk.expose().to_vec());
                // hostapd sends the keys of MSCHAPv2 without the zeros.
                let is_equal = match (&ours, &theirs) {
                    (Some(ours), Some(theirs)) => ours.starts_with(theirs) && theirs.len() >= 32,
                    (None, _) => true,
                    (Some(_), None) => false,
                };
                return Ok((Ok(done), is_accepted && is_equal));
            }
            PeerStep::Pending => return Err("nothing is looked up".into()),
            PeerStep::Failed(fault) => return Ok((Err(fault.to_string()), is_accepted)),
        }
    }
    Err("the conversation has no end".into())
}

/// Sends a request until there is a response: at first the server is not ready.
fn exchange(socket: &UdpSocket, datagram: &[u8]) -> Result<Packet, String> {
    let mut buffer = [0; 4096];
    for _ in 0..ATTEMPTS {
        // An error of the former datagram: no socket had the port.
        if socket.send(datagram).is_err() {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        match socket.recv(&mut buffer) {
            Ok(len) => return Packet::parse(&buffer[..len]).ok_or("a malformed response".into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Err("hostapd does not respond".into())
}
