//! Measured subjects: tunnels, and references to compare them with.

use crate::{Options, stored};
use casemate_interop::{Background, Charon, ENCAP_PORT, Error, Result};
use casemate_testbed::gateway::{Gateway, START_TIMEOUT};
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Connection between the two ends of a testbed.
pub(crate) trait Subject {
    /// Name in tables.
    fn name(&self) -> String;

    /// Starts the subject at both ends, with files in `directory`. Returns its processes; dropping them
    /// ends it.
    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>>;
}

/// Subject, or the reason why it is not available.
pub(crate) type Candidate = std::result::Result<Box<dyn Subject>, Unavailable>;

/// Subject that is not available.
pub(crate) struct Unavailable {
    name: String,
    reason: Error,
}

impl Unavailable {
    pub(crate) fn new(name: &str, reason: Error) -> Self {
        Self { name: name.into(), reason }
    }
}

/// Available subjects that the filters select, and the selected ones that are not available, with the
/// reason.
pub(crate) fn available(options: &Options, directory: &Path) -> (Vec<Box<dyn Subject>>, Vec<String>) {
    let candidates: Vec<Candidate> = casemate_subjects(&options.common.programs)
        .into_iter()
        .chain(all(&options.peers))
        .chain(stored::subjects(&options.common.programs))
        .chain(strongswan_subjects(&options.common.programs, directory))
        .chain([find_forwarder(&options.common.programs), Ok(Box::new(Link))])
        .collect();
    let (mut subjects, mut skipped) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match candidate {
            Ok(subject) if options.selects(&subject.name()) => subjects.push(subject),
            Err(Unavailable { name, reason }) if options.selects(&name) => {
                skipped.push(format!("{name}: {reason}"))
            }
            _ => {}
        }
    }
    (subjects, skipped)
}

/// Checks that a program exists.
pub(crate) fn program(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() { Ok(path) } else { Err(Error::new(format!("{} does not exist", path.display()))) }
}

const FORWARDER: &str = "forwarder";
const FORWARDER_INTERFACE: &str = "forwarder0";
const FORWARDER_PORT: u16 = 4_500;

struct Forwarder(PathBuf);

fn find_forwarder(programs: &Path) -> Candidate {
    match program(programs.join(FORWARDER)) {
        Ok(program) => Ok(Box::new(Forwarder(program))),
        Err(reason) => Err(Unavailable { name: FORWARDER.into(), reason }),
    }
}

impl Subject for Forwarder {
    fn name(&self) -> String {
        FORWARDER.into()
    }

    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let mut command = veth.ends[end].command(&self.0);
            command.arg(FORWARDER_INTERFACE).args(
                [LINK_ADDRS[end], LINK_ADDRS[1 - end]].map(|address| format!("{address}:{FORWARDER_PORT}")),
            );
            let mut process = Background::start(FORWARDER, command, &directory.join(format!("{end}")))?;
            process.wait_until(START_TIMEOUT, |said| said.contains("ready"))?;
            veth.route_via_interface(end, FORWARDER_INTERFACE)?;
            Ok(process)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

struct Link;

impl Subject for Link {
    fn name(&self) -> String {
        "link".into()
    }

    fn start(&self, veth: &VethPair, _: &Path) -> Result<Vec<Background>> {
        [0, 1].into_iter().try_for_each(|end| veth.route_via_link(end))?;
        Ok(Vec::new())
    }
}

/// Names of the suites, and their arguments in an xfrm file. The keys protect nothing.
const SUITES: [(&str, &str); 3] = [
    ("aes-gcm", "aead 'rfc4106(gcm(aes))' 0x{16}{4} 128"),
    ("chacha20", "aead 'rfc7539esp(chacha20,poly1305)' 0x{16}{16}{4} 128"),
    ("aes-cbc-sha1", "enc 'cbc(aes)' 0x{16} auth-trunc 'hmac(sha1)' 0x{16}{4} 96"),
];

struct Casemate {
    gateway: Gateway,
    suite: &'static str,
    words: &'static str,
    in_udp: bool,
}

fn casemate_subjects(programs: &Path) -> Vec<Candidate> {
    let gateway = Gateway::in_directory(programs);
    let subject = |((suite, words), in_udp): ((&'static str, &'static str), bool)| {
        let name = casemate_name(suite, in_udp);
        match &gateway {
            Ok(gateway) => Ok(Box::new(Casemate { gateway: gateway.clone(), suite, words, in_udp }) as _),
            Err(error) => Err(Unavailable { name, reason: Error::new(error.to_string()) }),
        }
    };
    SUITES.into_iter().flat_map(|suite| [(suite, true), (suite, false)]).map(subject).collect()
}

fn casemate_name(suite: &str, in_udp: bool) -> String {
    format!("casemate-{suite}{}", if in_udp { "-udp" } else { "" })
}

impl Casemate {
    /// SAs of both directions, equal at both ends, and the policies of one end.
    fn xfrm(&self, end: usize) -> String {
        let mut lines = String::new();
        let encap = match self.in_udp {
            true => format!("encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0"),
            false => String::new(),
        };
        for from in [0, 1] {
            let (src, dst) = (LINK_ADDRS[from], LINK_ADDRS[1 - from]);
            let (behind, other) = (INNER_ADDRS[from], INNER_ADDRS[1 - from]);
            let suite = with_keys(self.words, from);
            let direction = if from == end { "out" } else { "in" };
            lines.push_str(&format!(
                "xfrm state add src {src} dst {dst} proto esp spi 0x{}001 mode tunnel replay-window 1024 {suite} {encap}\n\
                 xfrm policy add src {behind}/32 dst {other}/32 dir {direction} tmpl src {src} dst {dst} proto esp mode tunnel\n",
                from + 1
            ));
        }
        lines
    }
}

/// Arguments of a suite with a key for a direction.
fn with_keys(words: &str, direction: usize) -> String {
    let bytes = |count| format!("{direction:x}a").repeat(count);
    words.replace("{16}", &bytes(16)).replace("{4}", &bytes(4))
}

impl Subject for Casemate {
    fn name(&self) -> String {
        casemate_name(self.suite, self.in_udp)
    }

    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let file = directory.join(format!("{end}.xfrm"));
            fs::write(&file, self.xfrm(end)).map_err(Error::context(file.display()))?;
            veth.route_via_link(end)?;
            let counters = directory.join(format!("{end}.counters"));
            let arguments = ["--xfrm".into(), file, "--counters".into(), counters];
            self.gateway.start(veth, end, arguments, directory)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

const STRONGSWAN: &str = "strongswan";
/// Casemate at the end that sends.
const TO_STRONGSWAN: &str = "casemate-to-strongswan";

/// strongSwan at one end or at both.
struct StrongSwan {
    charon: Charon,
    /// Casemate at the first end; `None` if both ends are strongSwan.
    gateway: Option<Gateway>,
}

fn strongswan_subjects(programs: &Path, directory: &Path) -> [Candidate; 2] {
    let charon = |name: &str| {
        let unavailable = |reason| Unavailable { name: name.into(), reason };
        Charon::copy_to(directory.join("programs").join(name)).map_err(unavailable)
    };
    let gateway = Gateway::in_directory(programs)
        .map_err(|error| Unavailable { name: TO_STRONGSWAN.into(), reason: Error::new(error.to_string()) });
    let both = charon(STRONGSWAN).map(|charon| StrongSwan { charon, gateway: None });
    let mixed =
        gateway.and_then(|gateway| Ok(StrongSwan { charon: charon(TO_STRONGSWAN)?, gateway: Some(gateway) }));
    [both, mixed].map(|found| found.map(|subject| Box::new(subject) as _))
}

impl Subject for StrongSwan {
    fn name(&self) -> String {
        if self.gateway.is_some() { TO_STRONGSWAN } else { STRONGSWAN }.into()
    }

    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let files = [0, 1].map(|end| directory.join(format!("{end}")));
        let start = |end: usize| {
            veth.route_via_link(end)?;
            fs::create_dir_all(&files[end]).map_err(Error::context(files[end].display()))?;
            let conf = files[end].join("swanctl.conf");
            fs::write(&conf, swanctl_conf(end)).map_err(Error::context(conf.display()))?;
            match &self.gateway {
                Some(gateway) if end == 0 => {
                    gateway.start(veth, end, [OsString::from("--config"), conf.into()], &files[end])
                }
                _ => self.charon.start(&veth.ends[end], &[], &files[end]),
            }
        };
        let processes = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
        let initiator = if self.gateway.is_some() { 1 } else { 0 };
        let child = ["--initiate", "--child", "child"];
        self.charon.swanctl(&veth.ends[initiator], &files[initiator], &child)?;
        Ok(processes)
    }
}

fn swanctl_conf(end: usize) -> String {
    let (local, remote) = (LINK_ADDRS[end], LINK_ADDRS[1 - end]);
    let (local_ts, remote_ts) = (INNER_ADDRS[end], INNER_ADDRS[1 - end]);
    format!(
        "connections {{\n tunnel {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
         proposals = aes128gcm16-prfsha256-x25519\n encap = yes\n \
         local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
         children {{\n child {{\n local_ts = {local_ts}/32\n remote_ts = {remote_ts}/32\n \
         esp_proposals = aes128gcm16\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n"
    )
}

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

fn all(peers: &Path) -> Vec<Candidate> {
    let find = |(name, file, options): (&'static str, &str, _)| match program(peers.join(file)) {
        Ok(program) => Ok(Box::new(WireGuard { name, program, options }) as _),
        Err(error) => {
            let reason = Error::new(format!("{error}; `--fetch` tries to install it"));
            Err(Unavailable { name: name.into(), reason })
        }
    };
    PROGRAMS.into_iter().map(find).collect()
}

impl Subject for WireGuard {
    fn name(&self) -> String {
        self.name.into()
    }

    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            // Sockets of both ends, and of other runs, are in the same directory.
            let interface = format!("wg{end}p{}", std::process::id());
            let mut command = veth.ends[end].command(&self.program);
            command.args(self.options).arg(&interface);
            let mut process = Background::start(self.name, command, &directory.join(format!("{end}")))?;
            let socket = Path::new(SOCKETS).join(format!("{interface}.sock"));
            process.wait_until(START_TIMEOUT, |_| UnixStream::connect(&socket).is_ok())?;
            configure(&socket, end).map_err(Error::context(self.name))?;
            veth.route_via_interface(end, &interface)?;
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
