//! `casemate run --config` as far as it needs no privileges: errors are reported, and nothing is applied.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir};
use std::path::Path;
use std::process::Output;

const RIGHT: &str = "\
connections {
  office {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.2
    local { auth = psk }
    remote { auth = psk }
    children { nets { local_ts = 10.1.0.0/16 } }
  }
}
secrets { ike { secret = abc } }
";

/// A directory with a swanctl.conf.
struct Directory(TempDir);

impl Directory {
    fn new(name: &str, conf: &str) -> Self {
        let directory = Self(TempDir::new(&format!("config-{name}")).unwrap());
        directory.write("swanctl.conf", conf.as_bytes());
        directory
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.file(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        self.set_mode(name, 0o600);
    }

    fn set_mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.0.file(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    }

    fn run(&self) -> (Output, String) {
        let conf = self.0.file("swanctl.conf");
        let output = casemate(&["run", "--dry-run", "--config", conf.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        (output, error)
    }
}

fn casemate(arguments: &[&str]) -> Output {
    Program::new(env!("CARGO_BIN_EXE_casemate")).args(arguments).output()
}

#[test]
fn dry_run_lists_the_connections() {
    let directory = Directory::new("right", RIGHT);
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.ends_with("# connection office: children nets\n"), "{stdout}");
}

#[test]
fn dry_run_shows_blocked_traffic() {
    let conf = RIGHT.replace(
        "local_ts = 10.1.0.0/16",
        "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16\n start_action = trap|start",
    );
    let (output, error) = Directory::new("trap", &conf).run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = "# blocked until an SA is up: 10.1.0.0/16 -> 10.2.0.0/16";
    assert!(stdout.lines().any(|shown| shown == line), "{stdout}");
    assert!(stdout.contains("10.1.0.0 . 10.2.0.0"), "the guard: {stdout}");
    assert!(stdout.contains("ip -4 route add 10.2.0.0/16 dev casemate0 table"), "{stdout}");
    let (output, _) = Directory::new("no-trap", &conf.replace("trap|start", "start")).run();
    assert!(!String::from_utf8(output.stdout).unwrap().contains("10.2.0.0"));
}

/// Checks files with secrets, included or not, and private keys.
#[test]
fn readable_key_files_give_warnings() {
    let (first, secrets) = RIGHT.split_once("secrets").unwrap();
    let directory = Directory::new("exposed", &format!("{first}\ninclude more.conf\n"));
    directory.write(
        "more.conf",
        format!("secrets{}", secrets.replace("abc", "\"a secret of the two\"")).as_bytes(),
    );
    for (name, mode) in [("swanctl.conf", 0o644), ("more.conf", 0o640)] {
        directory.set_mode(name, mode);
    }
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let more = directory.0.file("more.conf").display().to_string();
    let expected = format!(
        "casemate: warning: {more}: mode 0640 gives other users access to the keys in it: `chmod 600 {more}` was expected\n"
    );
    let is_alone = error.lines().count() == 1;
    assert!(error.ends_with(&expected) && is_alone, "there is no secret in the first file: {error}");
    directory.set_mode("more.conf", 0o600);
    assert_eq!(directory.run().1, "");
    directory.write("private/mine.pem", b"no key");
    directory.set_mode("private/mine.pem", 0o604);
    assert!(!directory.run().1.contains("mode 0604"), "an error comes first");
}

#[test]
fn examples_of_the_documentation_load() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, count) in [("README.md", 3), ("docs/manual/ike.md", 1)] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let blocks = text.split("```text\n").skip(1).filter_map(|rest| rest.split_once("```"));
        let examples: Vec<&str> =
            blocks.map(|(block, _)| block).filter(|block| block.starts_with("connections {")).collect();
        assert_eq!(examples.len(), count, "{page}");
        for example in examples {
            let (output, error) = Directory::new("example", example).run();
            assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{page}\n{example}");
        }
    }
}

#[test]
fn every_error_is_shown_with_its_location() {
    let conf = RIGHT.replace("remote_addrs", "remote_adrs").replace("10.1.0.0/16", "10.1.0.0/33");
    let directory = Directory::new("wrong", &conf);
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty());
    for expected in [
        "swanctl.conf:4: connections.office.remote_adrs",
        "swanctl.conf:7: connections.office.children.nets.local_ts",
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn invalid_and_missing_certificate_files() {
    let conf = RIGHT.replace("local { auth = psk }", "local {\n certs = mine.pem\n }");
    let directory = Directory::new("certificates", &conf);
    directory.write("x509ca/ca.pem", b"no certificate");
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(2), "{error}");
    for expected in ["x509ca/ca.pem: ", "x509/mine.pem: "] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let directory = Directory::new("secret", &RIGHT.replace("secret = abc", "secret = 0xbadcafe5ecre7"));
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("secret") && !error.contains("badcafe"), "{error}");
}

#[test]
fn config_and_xfrm_are_exclusive() {
    let output = casemate(&["run", "--config", "a", "--xfrm", "b"]);
    assert_eq!(output.status.code(), Some(2));
    let output = casemate(&["run", "--config", "a", "--counters", "b"]);
    assert_eq!(output.status.code(), Some(2));
}
