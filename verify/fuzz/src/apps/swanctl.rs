//! Configurations in strongSwan's format, with included files.

use crate::Target;
use casemate_app::swanctl::{Config, Environment, Problem};
use casemate_ike::config::{ChildAlgorithms, Connection, IkeEncryption, StartAction};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

pub(crate) const TARGET: Target = Target {
    name: "swanctl",
    about: "swanctl.conf and included files: every error has a line and shows no secret, required lists are not empty",
    max_len: 4_096,
    run,
    seeds,
    dictionary: DICTIONARY,
};

/// Files separated by zero bytes: the first one includes the others, which are called 1.conf, 2.conf and so
/// on.
struct Files<'a>(Vec<&'a [u8]>);

impl Environment for Files<'_> {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<usize>().ok());
        let text = number.and_then(|number| self.0.get(number)).ok_or(io::ErrorKind::NotFound)?;
        Ok(Zeroizing::new(text.to_vec()))
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        if directory != Path::new("/conf") {
            return Ok(Vec::new());
        }
        let names = (1..self.0.len()).map(|number| format!("{number}.conf"));
        Ok(names.filter(|name| pattern == "*" || pattern == name).map(|name| directory.join(name)).collect())
    }
}

fn run(bytes: &[u8]) {
    let files = Files(bytes.split(|byte| *byte == 0).collect());
    match Config::parse(Path::new("/conf/0.conf"), files.0[0], &files) {
        Ok(config) => {
            assert_eq!(config.own_signatures.len(), config.connections.len());
            assert_eq!(config.peer_conditions.len(), config.connections.len());
            assert_eq!(config.scripts.len(), config.connections.len());
            let names: HashSet<&str> = config.connections.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names.len(), config.connections.len());
            config.connections.iter().for_each(|connection| check_connection(connection));
            assert!(config.shared_keys.iter().all(|key| !key.secret.is_empty()));
            if let Some(cell) = &config.cell {
                assert!((1..=9).contains(&cell.etcd.servers.len()) && cell.addresses.len() <= 16);
                assert!(cell.etcd.deadline < cell.lease && !cell.etcd.deadline.is_zero());
                assert!(!cell.name.is_empty() && !cell.node.is_empty() && !cell.name.contains('/'));
            }
            check_problems(bytes, &files, &config.warnings);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            check_problems(bytes, &files, &problems);
        }
    }
}

/// Checks conditions that the types of IKE require but do not express.
fn check_connection(connection: &Connection) {
    assert!(!connection.local_addrs.is_empty() && !connection.remote_addrs.is_empty());
    assert!(connection.local_port != 0 && connection.remote_port != 0);
    assert!(!connection.proposals.is_empty());
    for proposal in &connection.proposals {
        assert!(!proposal.prfs.is_empty() && !proposal.kex.is_empty());
        match &proposal.encryption {
            IkeEncryption::Combined(aeads) => assert!(!aeads.is_empty()),
            IkeEncryption::Separate(ciphers, macs) => assert!(!ciphers.is_empty() && !macs.is_empty()),
        }
    }
    for child in &connection.children {
        assert!(!child.local_ts.is_empty() && !child.remote_ts.is_empty() && !child.proposals.is_empty());
        let has_peer = connection.remote_addrs.iter().any(|addr| addr.is_single());
        assert!(has_peer || child.start_action == StartAction::default());
        let (rekey, hard) = (child.lifespan.rekey, child.lifespan.hard);
        assert!(rekey.is_none_or(|rekey| child.lifespan.jitter <= rekey));
        assert!(rekey.zip(hard).is_none_or(|(rekey, hard)| rekey <= hard));
        for proposal in &child.proposals {
            assert!(match &proposal.algorithms {
                ChildAlgorithms::EspCombined(combined) => !combined.is_empty(),
                ChildAlgorithms::EspSeparate(ciphers, macs) => !ciphers.is_empty() && !macs.is_empty(),
                ChildAlgorithms::Ah(macs) => !macs.is_empty(),
            });
        }
    }
}

fn check_problems(bytes: &[u8], files: &Files<'_>, problems: &[Problem]) {
    assert!(problems.is_sorted());
    for problem in problems {
        let name = problem.location.file.file_stem().and_then(|stem| stem.to_str());
        let text = files.0[name.expect("a number").parse::<usize>().expect("a number")];
        let lines = text.split(|byte| *byte == b'\n').count();
        assert!((1..=lines).contains(&problem.location.line) && !problem.text.is_empty(), "{problem}");
    }
    check_secrecy(bytes, problems);
}

/// Errors repeat no secret: no long number after `secret =` at the beginning of a line.
fn check_secrecy(bytes: &[u8], problems: &[Problem]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // Inside a string of several lines, such a line is not a secret.
    if text.contains('"') {
        return;
    }
    let value = |line: &str| {
        let rest = line.trim().strip_prefix("secret")?.trim_start().strip_prefix('=')?.trim();
        rest.split_ascii_whitespace().next().map(str::to_owned)
    };
    let is_secret =
        |word: &String| word.len() > 18 && word.starts_with("0x") && text.matches(word.as_str()).count() == 1;
    for secret in text.split(['\n', '\0']).filter_map(value).filter(is_secret) {
        assert!(problems.iter().all(|problem| !problem.text.contains(&secret)), "a message shows a secret");
    }
}

const DICTIONARY: &[&str] = &[
    "connections ",
    "secrets ",
    "pools ",
    "authorities ",
    "children ",
    "local ",
    "remote ",
    "cert ",
    "cacert ",
    "ike ",
    "rsa ",
    "private ",
    "{\\x0a",
    "}\\x0a",
    " = ",
    " : ",
    "include ",
    "1.conf",
    "version",
    "local_addrs",
    "remote_addrs",
    "proposals",
    "esp_proposals",
    "ah_proposals",
    "local_ts",
    "remote_ts",
    "dynamic",
    "[tcp/ssh]",
    "auth",
    "psk",
    "pubkey",
    "rsa-2048-sha256",
    "id",
    "@#",
    "keyid:",
    "asn1dn:#30",
    "C=CH, O=",
    "%any",
    "*@",
    "mode",
    "transport",
    "pass",
    "start_action",
    "trap",
    "rekey_time",
    "life_time",
    "rand_time",
    "rekey_bytes",
    "aes128",
    "aes256gcm16",
    "sha256",
    "prfsha384",
    "x25519",
    "modp2048",
    "esn",
    "default",
    "addrs",
    "dns",
    "vips",
    "secret = 0x",
    "0s",
    "file",
    "crl_uris",
    "file://",
    "cell ",
    "etcd ",
    "servers",
    "[::1]:2379",
    "deadline",
    "lease",
    "addresses ",
    "address",
    "192.0.2.1/24",
    "interface",
];

const SECRET: &str = "0x000102030405060708090a0b0c0d0e0f";

fn seeds() -> Vec<Vec<u8>> {
    let files = [
        format!(
            "connections {{\n gw {{\n  local_addrs = 192.0.2.1\n  remote_addrs = moon, 192.0.2.0/24\n  local {{\n   auth = psk\n   id = @moon\n  \
             }}\n  remote {{\n   auth = psk\n   id = *@example.org\n  }}\n  children {{\n   net {{\n    local_ts = 10.1.0.0/16, dynamic[tcp/ssh]\n    \
             esp_proposals = aes128gcm16-x25519, default\n    start_action = trap\n   }}\n  }}\n  proposals = aes128-sha256-modp2048\n }}\n}}\n\
             secrets {{\n ike {{\n  id = @moon\n  secret = {SECRET}\n }}\n}}\n"
        ),
        "base {\n version = 2\n local { auth = rsa-2048-sha256\n certs = a.pem }\n}\nconnections {\n a : base {\n pools = p\n children { c {\n mode = pass\n \
         start_action = trap\n } }\n }\n b : connections.a {\n pools =\n }\n}\npools { p {\n addrs = 10.3.0.0/24\n dns = ::1\n } }\n"
            .into(),
        "include *\nconnections { gw { include 2.conf\n } }\0pools { p { addrs = ::1-::9 } }\0version = 1\nfoo = \"a\\\n b\"".into(),
        "authorities { ca { cacert = ca.pem\n crl_uris = file:///a\n } }\nsecrets { rsa { file = k\n secret = \"0x00\" } eap { } }".into(),
        format!("secrets {{\n ike {{\n  secret = {SECRET}g\n  foo = 1\n }}\n}}\n"),
        "cell {\n name = a\n node = b\n lease = 3s\n etcd {\n servers = 127.0.0.1:2379, [::1]:2379\n ca = c\n deadline = 2s\n }\n \
         addresses { v {\n address = 192.0.2.1/24\n interface = e\n } }\n}"
            .into(),
        "include 1.conf\0include 1.conf".into(),
        "a : b {\n}\nb : a {\n}\n{ = : } \" # x".into(),
    ];
    files.map(String::into_bytes).to_vec()
}
