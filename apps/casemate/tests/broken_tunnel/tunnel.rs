//! A tunnel between two hosts whose configuration a test breaks, and the output that a user of either host
//! reads.

use crate::testnet::{Host, Running, Side, TestNet};
use casemate_test_support::eventually;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The configuration of one host. A test replaces or adds options before the hosts start.
#[derive(Debug, Clone)]
pub(crate) struct Conf {
    /// Options of the connection.
    pub(crate) connection: Vec<(&'static str, String)>,
    /// Options of the sections `local` and `remote`.
    pub(crate) local: Vec<(&'static str, String)>,
    pub(crate) remote: Vec<(&'static str, String)>,
    /// Options of the child `net`.
    pub(crate) child: Vec<(&'static str, String)>,
    /// Options of the section `secrets.ike-1`.
    pub(crate) secret: Vec<(&'static str, String)>,
    /// Text after the connections.
    pub(crate) more: String,
    /// Names of further connections with the same options.
    pub(crate) copies: Vec<&'static str>,
    /// Folder with certificates and keys, beside which the file is written.
    pub(crate) folder: Option<PathBuf>,
}

impl Conf {
    /// A working configuration with a pre-shared key. The left host initiates.
    pub(crate) fn of(side: Side) -> Self {
        let name = |side: Side| if side == Side::Left { "left.test" } else { "right.test" };
        let (own, peer) = (side, side.other());
        let addr = |side: Side| side.outer(true).to_string();
        let net = |side: Side| format!("{}/32", side.inner(true));
        let auth = |side: Side| vec![("auth", "psk".to_owned()), ("id", name(side).to_owned())];
        let mut child = vec![
            ("local_ts", net(own)),
            ("remote_ts", net(peer)),
            ("esp_proposals", "aes128gcm16".to_owned()),
        ];
        child.extend((side == Side::Left).then(|| ("start_action", "start".to_owned())));
        Self {
            connection: vec![
                ("local_addrs", addr(own)),
                ("remote_addrs", addr(peer)),
                ("proposals", "aes128gcm16-prfsha256-x25519".to_owned()),
            ],
            local: auth(own),
            remote: auth(peer),
            child,
            secret: vec![
                ("id-1", "left.test".to_owned()),
                ("id-2", "right.test".to_owned()),
                ("secret", "\"a secret of the two\"".to_owned()),
            ],
            more: String::new(),
            copies: Vec::new(),
            folder: None,
        }
    }

    /// Starts an instance with this configuration.
    fn run(&self, host: &Host) -> Running {
        match &self.folder {
            None => host.run_config(&self.text(), None),
            Some(folder) => {
                let file = folder.join("swanctl.conf");
                fs::write(&file, self.text()).unwrap();
                host.run_config_file(&file)
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let lines = |options: &[(&str, String)]| {
            options.iter().map(|(name, value)| format!("  {name} = {value}\n")).collect::<String>()
        };
        let secrets = if self.secret.is_empty() {
            String::new()
        } else {
            format!("secrets {{\n ike-1 {{\n{} }}\n}}\n", lines(&self.secret))
        };
        let connection = |name: &str| {
            format!(
                " {name} {{\n{}  local {{\n{}  }}\n  remote {{\n{}  }}\n  children {{\n   net {{\n{}   }}\n  }}\n }}\n",
                lines(&self.connection),
                lines(&self.local),
                lines(&self.remote),
                lines(&self.child),
            )
        };
        let names = ["gw"].into_iter().chain(self.copies.iter().copied());
        let connections: String = names.map(connection).collect();
        format!("connections {{\n{connections}}}\n{secrets}{}", self.more)
    }
}

/// Replaces an option, or adds it.
pub(crate) fn set(options: &mut Vec<(&'static str, String)>, name: &'static str, value: &str) {
    options.retain(|(known, _)| *known != name);
    options.push((name, value.to_owned()));
}

/// Two running hosts.
pub(crate) struct BrokenTunnel {
    pub(crate) net: TestNet,
    left: Running,
    right: Option<Running>,
    started: Instant,
}

impl BrokenTunnel {
    /// Starts both hosts, the right one first, with configurations that `change` has broken.
    pub(crate) fn start(test: &str, change: impl FnOnce(&mut Conf, &mut Conf)) -> Option<Self> {
        let net = TestNet::build(test)?;
        Some(Self::start_on(net, change))
    }

    /// Like [`start`](Self::start), on hosts that exist.
    pub(crate) fn start_on(net: TestNet, change: impl FnOnce(&mut Conf, &mut Conf)) -> Self {
        let (mut left, mut right) = (Conf::of(Side::Left), Conf::of(Side::Right));
        change(&mut left, &mut right);
        let right = Some(right.run(&net.right));
        Self::with_left(net, &left, right)
    }

    /// Starts only the left host.
    pub(crate) fn start_left_on(net: TestNet, change: impl FnOnce(&mut Conf)) -> Self {
        let mut left = Conf::of(Side::Left);
        change(&mut left);
        Self::with_left(net, &left, None)
    }

    /// Starts the right host later.
    pub(crate) fn start_right(&mut self, change: impl FnOnce(&mut Conf)) {
        let mut right = Conf::of(Side::Right);
        change(&mut right);
        self.right = Some(right.run(&self.net.right));
    }

    fn with_left(net: TestNet, left: &Conf, right: Option<Running>) -> Self {
        let started = Instant::now();
        let left = left.run(&net.left);
        Self { net, left, right, started }
    }

    fn host(&self, side: Side) -> &Host {
        if side == Side::Left { &self.net.left } else { &self.net.right }
    }

    fn running(&self, side: Side) -> &Running {
        if side == Side::Left { &self.left } else { self.right.as_ref().unwrap() }
    }

    /// Waits until the log of a host contains all these texts, and checks that this takes no longer than the
    /// manual says.
    pub(crate) fn log_names(&self, side: Side, texts: &[&str], within: Duration) {
        let log = || self.running(side).log();
        eventually(&format!("{texts:?} in the log"), || {
            texts.iter().all(|text| log().contains(text)).then_some(()).or_else(|| {
                assert!(self.started.elapsed() < within + LENIENCE, "no {texts:?} in:\n{}", log());
                None
            })
        });
        println!("{side:?} after {:.1} s:\n{}", self.started.elapsed().as_secs_f32(), log());
    }

    /// The output of `casemate why gw` on a host.
    pub(crate) fn why(&self, side: Side) -> String {
        self.host(side).stdout_of(env!("CARGO_BIN_EXE_casemate"), &["why", "gw"])
    }

    /// Checks that `casemate why gw` on a host contains all these texts.
    pub(crate) fn why_names(&self, side: Side, texts: &[&str]) {
        let output = self.why(side);
        println!("{side:?} why:\n{output}");
        for text in texts {
            assert!(output.contains(text), "no `{text}` in:\n{output}");
        }
        let json = self.host(side).stdout_of(env!("CARGO_BIN_EXE_casemate"), &["why", "gw", "--json"]);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
        assert!(!output.contains("a secret of the two"), "the report contains a key");
    }

    /// Waits until `casemate why gw` on a host contains this text.
    pub(crate) fn why_names_eventually(&self, side: Side, text: &str) {
        eventually(&format!("`{text}` in why"), || self.why(side).contains(text).then_some(()));
        println!("{}", self.why(side));
    }
}

/// A slow machine may take this much longer than the manual says.
const LENIENCE: Duration = Duration::from_secs(10);
