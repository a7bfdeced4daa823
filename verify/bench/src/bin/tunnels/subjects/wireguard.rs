//! User-space WireGuard: programs that create a TUN interface. They are configured over a Unix socket with
//! WireGuard's cross-platform userspace protocol.

use super::{Candidate, Subject, program};
use casemate_interop::{Background, Error, Result};
use casemate_testbed::gateway::START_TIMEOUT;
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Directory of the sockets of these programs.
const SOCKETS: &str = "/var/run/wireguard";
const PORT: u16 = 51_820;

/// Private keys of both ends, one byte repeated 32 times, and the public keys that OpenSSL 3 computed. They
/// protect nothing.
const KEYS: [(u8, &str); 2] = [
    (1, "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a209"),
    (2, "ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59"),
];

/// Name, program file, and arguments before the interface name.
const PROGRAMS: [(&str, &str, &[&str]); 3] = [
    ("wireguard-go", "wireguard", &["--foreground"]),
    ("boringtun", "boringtun-cli", &["--foreground", "--disable-drop-privileges"]),
    ("gotatun", "gotatun", &["--foreground", "--disable-drop-privileges"]),
];

struct WireGuard {
    name: &'static str,
    program: PathBuf,
    options: &'static [&'static str],
}

pub(super) fn all(peers: &Path) -> Vec<Candidate> {
    let find = |(name, file, options): (&'static str, &str, _)| match program(peers.join(file)) {
        Ok(program) => Ok(Box::new(WireGuard { name, program, options }) as _),
        Err(error) => Err((name.into(), Error::new(format!("{error}; `--fetch` tries to install it")))),
    };
    PROGRAMS.into_iter().map(find).collect()
}

impl Subject for WireGuard {
    fn name(&self) -> String {
        self.name.into()
    }

    fn start(&self, arena: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            // Sockets of both ends, and of other runs, are in the same directory.
            let interface = format!("wg{end}p{}", std::process::id());
            let mut command = arena.ends[end].command(&self.program);
            command.args(self.options).arg(&interface);
            let mut process = Background::start(self.name, command, &directory.join(format!("{end}")))?;
            let socket = Path::new(SOCKETS).join(format!("{interface}.sock"));
            process.wait_until(START_TIMEOUT, |_| UnixStream::connect(&socket).is_ok())?;
            configure(&socket, end).map_err(Error::context(self.name))?;
            arena.route_via_interface(end, &interface)?;
            Ok(process)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

fn configure(socket: &Path, end: usize) -> Result<()> {
    let (secret, public) = (format!("{:02x}", KEYS[end].0).repeat(32), KEYS[1 - end].1);
    let (endpoint, behind) = (LINK_ADDRS[1 - end], INNER_ADDRS[1 - end]);
    let lines = format!(
        "set=1\nprivate_key={secret}\nlisten_port={PORT}\npublic_key={public}\nendpoint={endpoint}:{PORT}\n\
         allowed_ip={behind}/32\n\n"
    );
    let context = || Error::context::<std::io::Error>(socket.display());
    let mut stream = UnixStream::connect(socket).map_err(context())?;
    stream.set_read_timeout(Some(START_TIMEOUT)).map_err(context())?;
    stream.write_all(lines.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write)).map_err(context())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(context())?;
    match answer.trim() {
        "errno=0" => Ok(()),
        other => Err(Error::new(format!("the program rejects the configuration with `{other}`"))),
    }
}
