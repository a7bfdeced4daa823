use super::*;
use casemate_ike::config::DomainName;
use casemate_test_support::TempDir;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn settings(servers: &[&str], domains: &[&str]) -> DnsSettings {
    DnsSettings {
        servers: servers.iter().map(|addr| addr.parse().unwrap()).collect(),
        domains: domains.iter().map(|name| DomainName::parse(name.as_bytes()).unwrap()).collect(),
        all_names: domains.is_empty(),
    }
}

fn names(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_former_file_comes_back_with_its_owner_and_mode() {
    let etc = TempDir::new("resolv").unwrap();
    let path = etc.file("resolv.conf");
    fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let before = fs::metadata(&path).unwrap();
    let mut file = ResolvConf::in_directory(etc.path());
    file.set(&settings(&["10.1.0.53"], &["corp.example"])).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("nameserver 10.1.0.53\nsearch corp.example\n"), "{text}");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644, "everyone reads it");
    file.set(&settings(&["10.2.0.53", "fd00::53"], &[])).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("nameserver 10.2.0.53\nnameserver fd00::53\n"), "{text}");
    assert_eq!(file.restore().unwrap(), None);
    let after = fs::metadata(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.53\n");
    assert_eq!((after.ino(), after.mode(), after.mtime()), (before.ino(), before.mode(), before.mtime()));
    assert_eq!(names(&etc), ["resolv.conf"]);
    assert_eq!(file.restore().unwrap(), None, "there is nothing to restore");
}

#[test]
fn a_symbolic_link_and_a_missing_file_come_back_as_such() {
    let etc = TempDir::new("resolv").unwrap();
    let path = etc.file("resolv.conf");
    symlink("../run/elsewhere/resolv.conf", &path).unwrap();
    let mut file = ResolvConf::in_directory(etc.path());
    file.set(&settings(&["10.1.0.53"], &[])).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    file.restore().unwrap();
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../run/elsewhere/resolv.conf"));
    fs::remove_file(&path).unwrap();
    file.set(&settings(&["10.1.0.53"], &[])).unwrap();
    file.set(&settings(&["10.2.0.53"], &[])).unwrap();
    assert_eq!(names(&etc), ["resolv.conf"]);
    file.restore().unwrap();
    assert_eq!(names(&etc), [""; 0]);
}

#[test]
fn the_next_run_restores_what_a_killed_one_has_left() {
    let etc = TempDir::new("resolv").unwrap();
    let path = etc.file("resolv.conf");
    let next = ResolvConf::in_directory(etc.path());
    for original in [Some("nameserver 192.0.2.53\n"), None] {
        original.iter().for_each(|text| fs::write(&path, text).unwrap());
        let mut killed = ResolvConf::in_directory(etc.path());
        killed.set(&settings(&["10.1.0.53"], &[])).unwrap();
        let changed = fs::read_to_string(&path).unwrap();
        next.restore_former().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), changed, "the process is alive");
        let mut other = ResolvConf::in_directory(etc.path());
        let error = other.set(&settings(&["10.9.0.53"], &[])).unwrap_err().to_string();
        assert!(error.contains("another instance"), "{error}");
        drop(killed);
        assert_eq!(next.restore_former().unwrap(), None);
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), original);
        let _ = fs::remove_file(&path);
        assert_eq!(names(&etc), [""; 0]);
    }
    // Killed before the exchange of the names, and in an update.
    fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
    fs::write(&next.former, next.contents(&settings(&["10.1.0.53"], &[]), false)).unwrap();
    next.restore_former().unwrap();
    assert_eq!(names(&etc), ["resolv.conf"]);
}

#[test]
fn a_file_that_another_program_has_changed_stays() {
    for change in ["nameserver 198.51.100.1\n", ""] {
        let etc = TempDir::new("resolv").unwrap();
        let path = etc.file("resolv.conf");
        fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        let mut file = ResolvConf::in_directory(etc.path());
        file.set(&settings(&["10.1.0.53"], &[])).unwrap();
        let edited = if change.is_empty() {
            fs::read_to_string(&path).unwrap() + "nameserver 198.51.100.1\n"
        } else {
            change.to_owned()
        };
        fs::write(&path, &edited).unwrap();
        let error = file.set(&settings(&["10.2.0.53"], &[])).unwrap_err().to_string();
        assert!(error.contains("another program"), "{error}");
        let warning = file.restore().unwrap().unwrap();
        assert!(warning.contains("resolv.conf.before-casemate"), "{warning}");
        assert_eq!(fs::read_to_string(&path).unwrap(), edited);
        assert_eq!(fs::read_to_string(&file.kept).unwrap(), "nameserver 192.0.2.53\n");
        assert_eq!(file.restore_former().unwrap(), None, "said once");
        file.set(&settings(&["10.3.0.53"], &[])).unwrap();
        file.restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), edited);
    }
}
