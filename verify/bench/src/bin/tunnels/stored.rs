//! Casemate with IKE at both ends, and the cost of a store at the first one: none, a file, or a cell with one
//! etcd server on this machine. All three are otherwise equal.

use crate::subjects::{Candidate, Subject, Unavailable, program};
use casemate_interop::{Background, Error, Result};
use casemate_testbed::gateway::{Gateway, IkeTunnel, START_TIMEOUT};
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Netns, run};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const TUNNEL: IkeTunnel<'static> =
    IkeTunnel { suite: "aes128gcm16", connection: "encap = yes", child: "", scheduler: "" };
const ETCD: &str = "127.0.0.1:2379";
const PEERS: &str = "127.0.0.1:2380";

/// Where the state of the first end is.
enum State {
    InMemory,
    File,
    /// The program etcd.
    Etcd(PathBuf),
}

struct Stored {
    gateway: Gateway,
    name: &'static str,
    state: State,
}

/// The subjects. `programs` is the directory of `casemate`; etcd is where `cargo xtask bench etcd` unpacks
/// it.
pub(crate) fn subjects(programs: &Path) -> [Candidate; 3] {
    let subject = |name: &'static str, state: Result<State>| {
        let unavailable = |reason| Unavailable::new(name, reason);
        let gateway = Gateway::in_directory(programs);
        let gateway = gateway.map_err(|error| unavailable(Error::new(error.to_string())))?;
        let state = state.map_err(unavailable)?;
        Ok(Box::new(Stored { gateway, name, state }) as Box<dyn Subject>)
    };
    let etcd = program(programs.join("../etcd/usr/bin/etcd"));
    [
        subject("casemate-ike", Ok(State::InMemory)),
        subject("casemate-ike-file", Ok(State::File)),
        subject("casemate-ike-etcd", etcd.map(State::Etcd)),
    ]
}

impl Subject for Stored {
    fn name(&self) -> String {
        self.name.into()
    }

    fn start(&self, veth: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let mut processes = vec![TUNNEL.start(&self.gateway, veth, 1, directory)?];
        veth.route_via_link(0)?;
        let key = directory.join("store.key");
        write_private(&key, &[7; 32])?;
        let file = directory.join("0.conf");
        let mut configuration = TUNNEL.swanctl_conf(0);
        let mut arguments: Vec<OsString> = vec!["--config".into(), file.clone().into()];
        match &self.state {
            State::InMemory => {}
            State::File => {
                let store = directory.join("0.store").into();
                arguments.extend(["--store".into(), store, "--store-key".into(), key.into()]);
            }
            State::Etcd(program) => {
                processes.push(start_etcd(program, &veth.ends[0], directory)?);
                configuration += &format!(
                    "cell {{\n name = bench\n node = gw1\n wrapping_key = {}\n etcd {{\n servers = {ETCD}\n }}\n}}\n",
                    key.display()
                );
            }
        }
        write_private(&file, configuration.as_bytes())?;
        // Each cluster of etcd is another one, which a node of the former one would refuse.
        let state = directory.join("state");
        fs::create_dir(&state)
            .and_then(|()| fs::set_permissions(&state, fs::Permissions::from_mode(0o700)))
            .map_err(Error::context(state.display()))?;
        let gateway = self.gateway.clone().with_state_in(&state);
        processes.push(gateway.start(veth, 0, arguments, directory)?);
        if matches!(self.state, State::Etcd(_)) {
            self.wait_for_owner(veth)?;
        }
        Ok(processes)
    }
}

impl Stored {
    fn wait_for_owner(&self, veth: &VethPair) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            if self.gateway.status(veth, 0)?["cell"]["role"] == "owner" {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(Error::new(format!("{}: it does not own its SAs", self.name)))
    }
}

fn start_etcd(program: &Path, netns: &Netns, directory: &Path) -> Result<Background> {
    let _ = run(netns, START_TIMEOUT, Path::new("ip"), &["link", "set", "lo", "up"])?;
    let mut command = netns.command(program);
    let (client, peer) = (format!("http://{ETCD}"), format!("http://{PEERS}"));
    command.arg("--data-dir").arg(directory.join("etcd")).args([
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
        "--listen-peer-urls",
        &peer,
    ]);
    let mut process = Background::start("etcd", command, &directory.join("etcd.log"))?;
    process.wait_until(START_TIMEOUT, |said| said.contains("ready to serve client requests"))?;
    Ok(process)
}

fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .map_err(Error::context(path.display()))
}
