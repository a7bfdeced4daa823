//! Who may have access to the file of a store, and that only one process uses it.

use super::{Files, Opened};
use crate::{FileStore, OpenError};
use casemate_test_support::TempDir;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

fn refusal(path: &Path) -> String {
    match Opened::open(path) {
        Err(OpenError::Io(_, error)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

fn existing(files: &mut Files) -> std::path::PathBuf {
    let path = files.next();
    Opened::open(&path).unwrap().put("key", b"value").unwrap();
    path
}

#[test]
fn only_the_owner_has_access_to_new_files() {
    let mut files = Files::new();
    let path = existing(&mut files);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_file_name("store-1.lock")), 0o600);
    assert!(!path.with_file_name("store-1.new").exists());
}

#[test]
fn a_second_user_of_the_file_is_refused() {
    let mut files = Files::new();
    let path = files.next();
    let first = Opened::open(&path).unwrap();
    let error = Opened::open(&path).err().unwrap();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    // A file of a lock that is removed does not make room for a second user.
    fs::remove_file(path.with_file_name("store-1.lock")).unwrap();
    let error = Opened::open(&path).err().unwrap();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    drop(first);
    Opened::open(&path).unwrap();
}

#[test]
fn files_that_others_can_access_are_refused() {
    let mut files = Files::new();
    let path = existing(&mut files);
    for mode in [0o640, 0o604, 0o620, 0o601] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(refusal(&path).contains(&format!("its mode is {mode:04o}")));
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let directory = files.directory.path();
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(&path).contains("other users can replace its files"));
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    Opened::open(&path).unwrap();
}

#[test]
fn links_directories_and_devices_are_refused() {
    let mut files = Files::new();
    let path = existing(&mut files);
    let link = files.next();
    symlink(&path, &link).unwrap();
    assert!(refusal(&link).contains("symbolic link"));
    let dangling = files.next();
    symlink(files.directory.file("absent"), &dangling).unwrap();
    assert!(refusal(&dangling).contains("symbolic link"));
    let second_name = files.next();
    fs::hard_link(&path, &second_name).unwrap();
    assert!(refusal(&second_name).contains("hard link"));
    let directory = files.next();
    fs::create_dir(&directory).unwrap();
    assert!(!refusal(&directory).is_empty());
    let locked = files.next();
    symlink(&path, locked.with_added_extension("lock")).unwrap();
    assert!(refusal(&locked).contains("symbolic link"));
}

#[test]
fn files_of_another_user_are_refused() {
    let mut files = Files::new();
    let path = existing(&mut files);
    if let Err(error) = chown(&path, Some(12_345), None) {
        casemate_test_support::skip(format!("a file of another user: {error}"));
        return;
    }
    assert!(refusal(&path).contains("user 12345"));
    chown(&path, Some(0), None).unwrap();
    chown(files.directory.path(), Some(12_345), None).unwrap();
    assert!(refusal(&path).contains("user 12345"));
}

#[test]
fn a_former_creation_that_crashed_is_repeated() {
    let mut files = Files::new();
    let path = files.next();
    let target = files.next();
    fs::write(&target, "other data").unwrap();
    symlink(&target, path.with_file_name("store-1.new")).unwrap();
    assert!(Opened::open(&path).unwrap().store.is_new());
    assert_eq!(fs::read(&target).unwrap(), b"other data");
}

#[test]
fn other_files_are_damaged_stores() {
    let mut files = Files::new();
    let path = files.next();
    for contents in [&b""[..], b"casemate counters 2\n", &[0; 200_000]] {
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = Opened::open(&path).err().unwrap();
        assert!(matches!(error, OpenError::Damaged(..)), "{error}");
        assert_eq!(fs::read(&path).unwrap(), contents, "the file is left as it is");
    }
}

#[test]
fn a_thread_that_may_not_start_is_an_error() {
    let scratch = TempDir::new("file-store").unwrap();
    let path = scratch.file("store");
    let refused = || Err(std::io::Error::other("no capabilities"));
    let error = FileStore::open(&path, refused, || {}).unwrap_err();
    assert!(error.to_string().contains("no capabilities"), "{error}");
    // The lock is free again.
    drop(FileStore::open(&path, || Ok(()), || {}).unwrap());
}
