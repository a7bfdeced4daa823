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
    for change in ["nameserver 198.51.100.1\n", "# 8\n"] {
        let etc = TempDir::new("resolv").unwrap();
        let path = etc.file("resolv.conf");
        fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        let mut file = ResolvConf::in_directory(etc.path());
        file.set(&settings(&["10.1.0.53"], &[])).unwrap();
        let edited = if change.starts_with('#') {
            fs::read_to_string(&path).unwrap().replace("10.1.0.53", "198.51.100.1")
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

#[test]
fn lines_that_another_program_has_added_are_kept_in_the_former_file() {
    for original in [Some("nameserver 192.0.2.53\n"), None] {
        let etc = TempDir::new("resolv").unwrap();
        let path = etc.file("resolv.conf");
        original.iter().for_each(|text| fs::write(&path, text).unwrap());
        let mut file = ResolvConf::in_directory(etc.path());
        file.set(&settings(&["10.1.0.53"], &["corp.example"])).unwrap();
        let added = fs::read_to_string(&path).unwrap() + "options edns0\n";
        fs::write(&path, &added).unwrap();
        let error = file.set(&settings(&["10.2.0.53"], &[])).unwrap_err().to_string();
        assert!(error.contains("another program"), "{error}");
        assert_eq!(file.restore().unwrap(), None);
        let expected = original.unwrap_or_default().to_owned() + "options edns0\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(names(&etc), ["resolv.conf"]);
    }
    // A symbolic link leads to the file of another program.
    let etc = TempDir::new("resolv").unwrap();
    let path = etc.file("resolv.conf");
    symlink("elsewhere", &path).unwrap();
    let mut file = ResolvConf::in_directory(etc.path());
    file.set(&settings(&["10.1.0.53"], &[])).unwrap();
    let added = fs::read_to_string(&path).unwrap() + "options edns0\n";
    fs::write(&path, &added).unwrap();
    assert!(file.restore().unwrap().unwrap().contains("so it stays"));
    assert_eq!(fs::read_to_string(&path).unwrap(), added);
}

#[test]
fn servers_of_a_tunnel_go_even_if_the_former_file_is_lost() {
    let etc = TempDir::new("resolv").unwrap();
    let path = etc.file("resolv.conf");
    fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
    let mut file = ResolvConf::in_directory(etc.path());
    file.set(&settings(&["10.1.0.53"], &[])).unwrap();
    fs::remove_file(&file.former).unwrap();
    let warning = file.restore().unwrap().unwrap();
    assert!(warning.contains("resolv.conf.casemate: another program has removed"), "{warning}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    assert_eq!(names(&etc), ["resolv.conf"]);
    file.set(&settings(&["10.3.0.53"], &[])).unwrap();
    file.restore().unwrap();
    assert_eq!(names(&etc), ["resolv.conf"]);
}

/// As in a container. The mount is in a namespace of its own.
#[test]
fn a_file_that_is_a_mount_changes_in_place() {
    let test = || {
        crate::netns::isolate()?;
        let etc = TempDir::new("resolv").unwrap();
        let path = etc.file("resolv.conf");
        fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let mount = |arguments: &[&str]| std::process::Command::new("mount").args(arguments).status();
        assert!(
            mount(&["--bind", &path.display().to_string(), &path.display().to_string()]).unwrap().success()
        );
        let before = fs::metadata(&path).unwrap();
        let next = ResolvConf::in_directory(etc.path());
        for is_killed in [false, true] {
            let mut file = ResolvConf::in_directory(etc.path());
            file.set(&settings(&["10.1.0.53"], &[])).unwrap();
            file.set(&settings(&["10.2.0.53"], &[])).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.ends_with("nameserver 10.2.0.53\n") && !text.contains("10.1.0.53"), "{text}");
            next.restore_former().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "the process is alive");
            if is_killed {
                drop(file);
                assert_eq!(next.restore_former().unwrap(), None);
            } else {
                assert_eq!(file.restore().unwrap(), None);
            }
            let after = fs::metadata(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.53\n");
            assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
            assert_eq!(names(&etc), ["resolv.conf"]);
        }
        let mut file = ResolvConf::in_directory(etc.path());
        file.set(&settings(&["10.1.0.53"], &[])).unwrap();
        let changed = "nameserver 198.51.100.1\n";
        fs::write(&path, changed).unwrap();
        assert!(file.restore().unwrap().unwrap().contains("so it stays"));
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
        std::process::Command::new("umount").arg(&path).status().unwrap();
        Ok::<(), Error>(())
    };
    if let Err(error) = std::thread::spawn(test).join().unwrap() {
        casemate_test_support::skip(error);
    }
}
