//! Included files, and the folders beside a configuration.

use super::super::{Config, Environment, Location, Problem, RecordingEnvironment};
use super::{FILE, Memory};
use casemate_test_support::TempDir;
use std::fs;
use std::path::{Path, PathBuf};

fn load(text: &str, files: &[(&str, &str)]) -> Result<Config, Vec<Problem>> {
    Config::parse(Path::new(FILE), text.as_bytes(), &Memory::with(files))
}

fn names(config: &Config) -> Vec<&str> {
    config.connections.iter().map(|connection| connection.name.as_str()).collect()
}

#[test]
fn included_files_are_sorted_by_name() {
    let files = [
        ("/etc/swanctl/conf.d/b.conf", "connections { b { } }"),
        ("/etc/swanctl/conf.d/a.conf", "connections { a { dpd_delay = 5s\n } }\ninclude ../more/x.conf"),
        ("/etc/swanctl/conf.d/c.txt", "}"),
        ("/etc/swanctl/conf.d/../more/x.conf", "connections { a { dpd_delay = 6s\n } }"),
    ];
    let config = load("include conf.d/*.conf\nconnections { z { } }", &files).unwrap();
    assert_eq!(names(&config), ["a", "b", "z"]);
    assert_eq!(config.connections[0].dpd_delay.unwrap().as_secs(), 6);
}

#[test]
fn include_inside_a_section() {
    let files = [("/x y/gw.conf", "version = 2\nlocal { auth = psk\n }\n")];
    for include in ["include \"/x y/gw.conf\"", "include /x\\ y/gw.conf # why"] {
        let config = load(&format!("connections {{ gw {{ {include}\n}} }}"), &files).unwrap();
        assert_eq!(
            config.connections[0].local.method,
            casemate_ike::config::LocalMethod::SharedKey,
            "{include}"
        );
    }
}

#[test]
fn errors_name_the_included_file() {
    let files = [("/etc/swanctl/conf.d/a.conf", "\n\nconnections { gw { foo = 1\n } }")];
    let problems = load("include conf.d/*.conf", &files).unwrap_err();
    let location = Location { file: Path::new("/etc/swanctl/conf.d/a.conf").into(), line: 3 };
    assert_eq!(problems.iter().map(|problem| &problem.location).collect::<Vec<_>>(), [&location]);
    assert!(
        problems[0]
            .text
            .starts_with("connections.gw.foo: not a key of swanctl.conf; expected one of version, ")
    );
}

#[test]
fn failing_includes() {
    let why = |text: &str, files: &[(&str, &str)]| load(text, files).unwrap_err()[0].to_string();
    assert_eq!(
        why("\ninclude gone.conf", &[]),
        format!("{FILE}:2: include gone.conf: there is no such file")
    );
    assert!(why("include [", &[]).contains("include [: "));
    assert!(why("include", &[]).contains("was expected"));
    assert!(load("include gone/*.conf", &[]).is_ok());
    let circle = [("/etc/swanctl/a.conf", "include a.conf")];
    assert!(why("include a.conf", &circle).contains("more than 10 deep"));
    let unclosed = [("/etc/swanctl/a.conf", "connections {")];
    assert!(
        why("include a.conf\n}", &unclosed).contains("closes no section")
            || why("include a.conf", &unclosed).contains("never closed")
    );
    // Each file includes both files, to a depth of ten.
    let many = [("/etc/swanctl/a.conf", "include *.conf"), ("/etc/swanctl/b.conf", "include *.conf")];
    assert!(
        load("include *.conf", &many)
            .unwrap_err()
            .iter()
            .any(|problem| problem.text.contains("more than 1000 files"))
    );
    let large = "#".repeat(9 << 20);
    let large = [("/etc/swanctl/a.conf", large.as_str()), ("/etc/swanctl/b.conf", large.as_str())];
    assert!(why("include *.conf", &large).contains("more than 16 MiB together"));
}

#[test]
fn folders_are_listed() {
    let files = [
        ("/etc/swanctl/x509/moonCert.pem", ""),
        ("/etc/swanctl/x509ca/b.pem", ""),
        ("/etc/swanctl/x509ca/a.pem", ""),
        ("/etc/swanctl/x509crl/a.crl", ""),
        ("/etc/swanctl/pubkey/sunPub.pem", ""),
        ("/etc/swanctl/rsa/moonKey.pem", ""),
        ("/etc/swanctl/private/k.pem", ""),
        ("/etc/swanctl/ecdsa/e.pem", ""),
        ("/etc/swanctl/pkcs8/p.pem", ""),
        ("/etc/swanctl/pkcs12/me.p12", ""),
        ("/etc/swanctl/x509/deeper/no.pem", ""),
    ];
    let folders = load("", &files).unwrap().folders;
    let paths = |names: &[&str]| {
        names.iter().map(|name| PathBuf::from("/etc/swanctl").join(name)).collect::<Vec<_>>()
    };
    assert_eq!(folders.certs, paths(&["x509/moonCert.pem"]));
    assert_eq!(folders.cacerts, paths(&["x509ca/a.pem", "x509ca/b.pem"]));
    assert_eq!(folders.crls, paths(&["x509crl/a.crl"]));
    assert_eq!(
        folders.private_keys,
        paths(&["private/k.pem", "rsa/moonKey.pem", "ecdsa/e.pem", "pkcs8/p.pem"])
    );
    assert_eq!(folders.containers, paths(&["pkcs12/me.p12"]));
    let problems = load("", &[("/etc/swanctl/x509ac/a.pem", "")]).unwrap_err();
    let why = "/etc/swanctl/x509ac: attribute certificates are not implemented";
    assert!(problems[0].text.starts_with(why), "{problems:?}");
}

#[test]
fn missing_files_and_only_those_are_unreadable() {
    let directory = TempDir::new("files_read").unwrap();
    let [present, removed] = ["present", "removed"].map(|name| directory.file(name));
    let environment = RecordingEnvironment::default();
    for path in [&present, &removed] {
        fs::write(path, "x").unwrap();
        assert_eq!(*environment.read(path).unwrap(), b"x");
    }
    assert_eq!(environment.matching(directory.path(), "*").unwrap().len(), 2);
    let (files, _) = environment.into_files();
    assert_eq!(files.unreadable(), Vec::<String>::new());
    fs::remove_file(&removed).unwrap();
    let expected = format!("{}: No such file or directory (os error 2)", removed.display());
    assert_eq!(files.unreadable(), [expected]);
}
