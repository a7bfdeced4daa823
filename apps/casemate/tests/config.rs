//! `casemate run --config` as far as it needs no privileges: errors are reported, and nothing is applied.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir};
use std::os::unix::fs::PermissionsExt;
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
        // As /etc/swanctl: only the files in it are private.
        std::fs::set_permissions(directory.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
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
        std::fs::set_permissions(self.0.file(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn run(&self) -> (Output, String) {
        let conf = self.0.file("swanctl.conf");
        let output = casemate(&["run", "--dry-run", "--config", conf.to_str().unwrap()]);
        let error = casemate_test_support::warnings_of_example(&output.stderr);
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
    let (_, described) = stdout.split_once("# connection office: ").unwrap();
    let lines: Vec<&str> = described.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "192.0.2.1 -> 192.0.2.2",
            "#   local: by certificate or address, pre-shared key",
            "#   remote: %any, pre-shared key"
        ]
    );
    assert!(
        lines[3].starts_with("#   proposals: aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-"),
        "{stdout}"
    );
    assert_eq!(lines[4], "#   child nets: 10.1.0.0/16 -> dynamic, tunnel mode");
    assert!(lines[5].starts_with("#     proposals: aes128gcm16-"), "{stdout}");
    assert_eq!(lines[6..], ["#     start_action = none, dpd_action = clear, close_action = none"]);
}

/// The words can be copied into the file.
#[test]
fn dry_run_shows_the_actions_in_the_words_of_the_file() {
    for actions in [
        "start_action = trap, dpd_action = restart, close_action = start",
        "start_action = trap|start, dpd_action = trap, close_action = trap",
        "start_action = none, dpd_action = clear, close_action = none",
    ] {
        let keys = actions.replace(", ", "\n");
        let traffic = "local_ts = 10.1.0.0/16";
        let conf = RIGHT.replace(traffic, &format!("{traffic}\n remote_ts = 10.2.0.0/16\n {keys}"));
        let (output, error) = Directory::new("actions", &conf).run();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains(&format!("#     {actions}\n")), "{stdout}{error}");
    }
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
    let stdout = String::from_utf8(output.stdout).unwrap();
    let changes = stdout.lines().filter(|line| !line.starts_with('#'));
    assert!(
        changes.clone().count() > 0 && changes.clone().all(|line| !line.contains("10.2.0.0")),
        "{stdout}"
    );
}

#[test]
fn missing_keys_and_empty_files_give_warnings() {
    let (first, _) = RIGHT.split_once("secrets").unwrap();
    let secret = "secret = \"a secret of these two hosts\"";
    for (ids, is_missing) in [
        ("id = left.example.org\n id-peer = 192.0.2.2", false),
        ("id = 192.0.2.1", false),
        ("", false),
        ("id = 192.0.2.3", true),
        ("id = 192.0.2.1\n id-other = 192.0.2.3", true),
    ] {
        let first = first.replace("remote { auth = psk }", "remote {\n auth = psk\n id = 192.0.2.2\n }");
        let conf = format!("{first}\nsecrets {{ ike {{ {ids}\n {secret}\n }} }}\n");
        let (output, error) = Directory::new("ids", &conf).run();
        let warning = "connection office: no secret for 192.0.2.1 and 192.0.2.2: a section \
                       `ike` in `secrets` with these identities, or without any, was expected\n";
        assert_eq!(output.status.code(), Some(0), "{ids}: {error}");
        assert!(if is_missing { error.ends_with(warning) } else { error.is_empty() }, "{ids}: {error}");
    }
    let directory = Directory::new("empty", "");
    let path = directory.0.file("swanctl.conf").display().to_string();
    let expected = format!("{path}: no traffic is protected: a section in `connections` was expected\n");
    let error = directory.run().1;
    assert!(error.ends_with(&expected), "{error}");
}

#[test]
fn users_without_passwords_give_a_warning() {
    let (first, _) = RIGHT.split_once("secrets").unwrap();
    let users = "eap {\n id = carol\n secret = \"a long password of carol\"\n }";
    let warning =
        "connection office: no user has a password: a section `eap` in `secrets` was expected for each\n";
    for (auth, users, is_missing) in [
        ("eap", "", true),
        ("eap-mschapv2", "", true),
        ("eap", users, false),
        ("eap-tls", "", false),
        ("psk", "", false),
    ] {
        let eap_id = if auth == "psk" { "" } else { "eap_id = %any" };
        let remote = format!("remote {{\n auth = {auth}\n {eap_id}\n }}");
        let first = first.replace("remote { auth = psk }", &remote);
        let conf = format!(
            "{first}\nsecrets {{ ike {{ secret = \"a secret of these two hosts\"\n }}\n {users}\n }}\n"
        );
        let (_, error) = Directory::new("users", &conf).run();
        assert_eq!(error.contains(warning), is_missing, "{auth} {users}: {error}");
    }
}

#[test]
fn unsuitable_certificates_give_warnings() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/pki/tests/data");
    for (local, expected) in [
        ("certs = moon.pem\n id = moon.casemate.test", None),
        (
            "certs = moon.pem\n id = sun.casemate.test",
            Some("does not contain the identity sun.casemate.test"),
        ),
        ("auth = pubkey\n id = moon.casemate.test", None),
        (
            "auth = pubkey\n id = 192.0.2.9",
            Some("a certificate that contains the identity 192.0.2.9 and its"),
        ),
    ] {
        let conf = RIGHT.replace("local { auth = psk }", &format!("local {{\n {local}\n }}"));
        let directory = Directory::new("certificates", &conf.replace("abc", "\"a secret of these two\""));
        for (name, file) in [("x509/moon.pem", "moon.pem"), ("private/moon.pem", "moon.key")] {
            directory.write(name, &std::fs::read(data.join(file)).unwrap());
        }
        let (output, error) = directory.run();
        assert_eq!(output.status.code(), Some(0), "{error}");
        match expected {
            Some(expected) => assert!(error.contains(expected) && error.lines().count() == 1, "{error}"),
            None => assert_eq!(error, "", "{local}"),
        }
    }
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
    for (name, mode) in [("swanctl.conf", 0o644), ("more.conf", 0o604)] {
        directory.set_mode(name, mode);
    }
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let more = directory.0.file("more.conf").display().to_string();
    let expected = format!(
        "casemate: warning: {more}: mode 0604 gives other users access to the keys in it: `chmod 600 {more}` \
         was expected, or 640 if its group is that of the service\n"
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

const CELL: &str = "\
cell {
  name = berlin
  node = gw1
  etcd {
    servers = 127.0.0.1:2379, [::1]:2379
  }
  addresses { outside { address = 192.0.2.1/24
    interface = eth0 } }
}
";

#[test]
fn dry_run_describes_the_cell() {
    let (output, error) = Directory::new("cell", &format!("{RIGHT}{CELL}")).run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let expected = "\
# cell berlin: node gw1, with a lease of 2 s
#   store: etcd at 127.0.0.1:2379, [::1]:2379 (clear text)
#   wrapping key: the credential casemate-store-key of the service
#   address outside: 192.0.2.1/24 on eth0, if no other node has it
";
    assert!(stdout.contains(expected), "{stdout}");
    assert!(!error.contains(" cell."), "{error}");
    assert!(!stdout.contains("#   forwards"), "{stdout}");

    let forwards = CELL.replace("  addresses {", "  forward { address = 10.99.0.21 }\n  addresses {");
    let (output, error) = Directory::new("cell-forward", &format!("{RIGHT}{forwards}")).run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let expected = "#   forwards packets of peers to the owner, and receives those of other nodes at \
                    10.99.0.21:4510 (UDP)\n";
    assert!(stdout.contains(expected), "{stdout}");
}

#[test]
fn a_cell_has_no_other_store_and_no_clients_of_vici() {
    let directory = Directory::new("cell-only", &format!("{RIGHT}{CELL}"));
    let conf = directory.0.file("swanctl.conf");
    let conf = conf.to_str().unwrap();
    for (option, expected) in [
        (&["--store", "/nowhere/sas"][..], "--store: the section `cell` has a store for the same SAs"),
        (&["--vici", "/nowhere/vici"], "--vici: the nodes of a cell must have the same connections"),
    ] {
        let output = casemate(&[&["run", "--dry-run", "--config", conf], option].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected) && error.contains("was expected"), "{error}");
    }
}

#[test]
fn dry_run_reads_the_files_of_the_cell() {
    let with_key = CELL.replace("  node = gw1\n", "  node = gw1\n  wrapping_key = cell.key\n");
    let directory = Directory::new("cell-key", &format!("{RIGHT}{with_key}"));
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(2), "{error}");
    let path = directory.0.file("cell.key").display().to_string();
    assert!(
        error.contains(&format!("casemate: cell.wrapping_key: {path}: no such file: a file with 32")),
        "{error}"
    );
    directory.write("cell.key", &[7; 32]);
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains(&format!("#   wrapping key: {path}\n")), "{stdout}");

    let with_second =
        with_key.replace("  node = gw1\n", "  node = gw1\n  second_wrapping_key = former.key\n");
    let directory = Directory::new("cell-second-key", &format!("{RIGHT}{with_second}"));
    directory.write("cell.key", &[7; 32]);
    let path = directory.0.file("former.key").display().to_string();
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(2), "{error}");
    let expected = format!("casemate: cell.second_wrapping_key: {path}: no such file: a file with 32");
    assert!(error.contains(&expected), "{error}");
    directory.write("former.key", &[8; 32]);
    let (output, error) = directory.run();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains(&format!("#   second wrapping key: {path}\n")), "{stdout}");
}
