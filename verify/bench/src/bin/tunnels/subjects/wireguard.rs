//! WireGuard in user space: programs that make a TUN interface and are configured over a Unix socket, by lines of WireGuard's
//! cross-platform protocol.

use super::{Found, Subject, program};
use casemate_interop::{Background, Error, Result};
use casemate_stage::arena::{Arena, BEHIND, WIRE};
use casemate_stage::gateway::START_LIMIT;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where these programs have their sockets.
const SOCKETS: &str = "/var/run/wireguard";
const PORT: u16 = 51_820;

/// Secret keys of both ends, a byte 32 times each, and the public keys that OpenSSL 3 makes of them. They protect nothing.
const KEYS: [(u8, &str); 2] = [
    (1, "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a209"),
    (2, "ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59"),
];

/// Name, program, and what it is told besides the name of its interface.
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

pub(super) fn all(peers: &Path) -> Vec<Found> {
    let find = |(name, file, options): (&'static str, &str, _)| match program(peers.join(file)) {
        Ok(program) => Ok(Box::new(WireGuard { name, program, options }) as _),
        Err(error) => Err((name.into(), Error::new(format!("{error}; `--fetch` may get it")))),
    };
    PROGRAMS.into_iter().map(find).collect()
}

impl Subject for WireGuard {
    fn name(&self) -> String {
        self.name.into()
    }

    fn start(&self, arena: &Arena, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            // The sockets of both ends, and of other runs, lie in one directory.
            let interface = format!("wg{end}p{}", std::process::id());
            let mut command = arena.ends[end].command(&self.program);
            command.args(self.options).arg(&interface);
            let mut process = Background::start(self.name, command, &directory.join(format!("{end}")))?;
            let socket = Path::new(SOCKETS).join(format!("{interface}.sock"));
            process.wait_until(START_LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
            configure(&socket, end).map_err(Error::in_front(self.name))?;
            arena.route_into(end, &interface)?;
            Ok(process)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

fn configure(socket: &Path, end: usize) -> Result<()> {
    let (secret, public) = (format!("{:02x}", KEYS[end].0).repeat(32), KEYS[1 - end].1);
    let (endpoint, behind) = (WIRE[1 - end], BEHIND[1 - end]);
    let lines = format!(
        "set=1\nprivate_key={secret}\nlisten_port={PORT}\npublic_key={public}\nendpoint={endpoint}:{PORT}\n\
         allowed_ip={behind}/32\n\n"
    );
    let context = || Error::in_front::<std::io::Error>(socket.display());
    let mut stream = UnixStream::connect(socket).map_err(context())?;
    stream.set_read_timeout(Some(START_LIMIT)).map_err(context())?;
    stream.write_all(lines.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write)).map_err(context())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(context())?;
    match answer.trim() {
        "errno=0" => Ok(()),
        other => Err(Error::new(format!("the configuration was answered with `{other}`"))),
    }
}
