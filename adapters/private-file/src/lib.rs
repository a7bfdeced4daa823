//! Files and directories that other users of the machine must not be able to plant, replace or read.
//!
//! Stores, journals, control sockets, counter files and saved keys are opened through this crate. It never
//! follows a symbolic link, and it uses existing files only if they belong to root or to this user. Root also
//! uses those of the user that the service runs as.
#![forbid(unsafe_code)]

use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Run-time directory of the service, and of a program that runs as root.
pub const SERVICE_DIRECTORY: &str = "/run/casemate";

/// What users other than the owner may do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OthersAccess {
    /// Neither read nor write it.
    None,
    /// Read it.
    Read,
}

impl OthersAccess {
    /// The permission bits that must be clear.
    const fn forbidden(self) -> u32 {
        match self {
            Self::None => 0o077,
            Self::Read => 0o022,
        }
    }
}

/// Opens a regular file with these options, which may create it, and checks it with [`check`].
///
/// A created file has mode 0600. A symbolic link as last component is an error, and so is a FIFO or a device.
pub fn open(path: &Path, options: &mut OpenOptions, others: OthersAccess) -> io::Result<File> {
    // Without O_NONBLOCK, a FIFO of another user would block the program here.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        if is_link { refused("it is a symbolic link: a regular file was expected") } else { error }
    })?;
    check(&file.metadata()?, others)?;
    Ok(file)
}

/// Reads at most `most` bytes of a text file to which no other user has access; `None` if there is no file.
pub fn read_text(path: &Path, most: u64) -> io::Result<Option<String>> {
    let file = match open(path, File::options().read(true), OthersAccess::None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(most).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Replaces a file, or creates it, with mode 0600. On return the content is on the disk; after an error or a
/// crash, the file is the former one or has the whole new content.
///
/// It writes a file with `.new` at the end of its name first, so only one process at a time may call it for a
/// path.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(&temporary, File::options().write(true).create_new(true), OthersAccess::None)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory_of(path))?.sync_all()
}

/// Checks that a file is a regular one without further hard links, that it belongs to root or to this user,
/// and that its mode forbids other users what `others` says.
pub fn check(metadata: &Metadata, others: OthersAccess) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(refused("a regular file was expected"));
    }
    check_owner(metadata)?;
    if metadata.mode() & others.forbidden() != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(refused(&format!(
            "its mode is {mode:04o}, so other users have access: 0600 was expected"
        )));
    }
    if metadata.nlink() > 1 {
        return Err(refused("it has a second name (hard link): a file with one name was expected"));
    }
    Ok(())
}

/// Checks that `path` is a directory and not a symbolic link, that it belongs to this user, or to that of the
/// service if this user is root, and that no other user may enter it.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(refused("a directory was expected"));
    }
    let own = effective_user();
    if metadata.uid() != own && !(own == 0 && service_user() == Some(metadata.uid())) {
        return Err(refused(&format!("it belongs to user {}: this user was expected", metadata.uid())));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(refused(&format!(
            "its mode is {mode:04o}, so other users have access: 0700 was expected"
        )));
    }
    Ok(())
}

/// Checks that no other user can replace entries of the directory: it belongs to root or to this user, and
/// other users cannot write it, or it has the sticky bit, as /tmp has.
pub fn check_parent(directory: &Path) -> io::Result<()> {
    let metadata = fs::metadata(directory)?;
    // In a user namespace, directories of root belong to a user without a number there, as `/` does.
    if metadata.uid() != fs::metadata("/")?.uid() {
        check_owner(&metadata)?;
    }
    if metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(refused(&format!(
            "the mode of the directory is {mode:04o}, so other users can replace its files: 0755 was expected"
        )));
    }
    Ok(())
}

/// The directory of a file: what is before its name, or the current directory.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path of a file with a longer name, in the same directory.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether files and processes of this user are trusted: those of root and our own, and for root also those
/// of the service.
pub fn is_trusted(uid: u32) -> bool {
    let own = effective_user();
    uid == 0 || uid == own || (own == 0 && service_user() == Some(uid))
}

/// The user of the service: the owner of its run-time directory. Only root can have given it away, because
/// no other user can create or rename entries of the directory above.
fn service_user() -> Option<u32> {
    let directory = Path::new(SERVICE_DIRECTORY);
    let parent = fs::symlink_metadata(directory.parent()?).ok()?;
    let is_closed = parent.is_dir() && parent.uid() == 0 && parent.mode() & 0o022 == 0;
    let metadata = fs::symlink_metadata(directory).ok()?;
    (is_closed && metadata.is_dir()).then(|| metadata.uid())
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn check_owner(metadata: &Metadata) -> io::Result<()> {
    if is_trusted(metadata.uid()) {
        return Ok(());
    }
    Err(refused(&format!("it belongs to user {}: root or this user was expected", metadata.uid())))
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn append(path: &Path, others: OthersAccess) -> io::Result<File> {
        open(path, File::options().append(true).create(true), others)
    }

    fn refusal(path: &Path, others: OthersAccess) -> String {
        append(path, others).unwrap_err().to_string()
    }

    fn file(dir: &TempDir, mode: u32) -> PathBuf {
        let path = dir.file("file");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn only_the_owner_can_access_a_new_file() {
        let dir = TempDir::new("private").unwrap();
        let path = dir.file("new");
        let made = append(&path, OthersAccess::None).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o600);
        append(&path, OthersAccess::None).unwrap();
    }

    #[test]
    fn a_text_is_read_up_to_its_limit() {
        let dir = TempDir::new("private").unwrap();
        assert_eq!(read_text(&dir.file("none"), 10).unwrap(), None);
        let path = file(&dir, 0o600);
        fs::write(&path, "0123456789ab").unwrap();
        assert_eq!(read_text(&path, 10).unwrap().as_deref(), Some("0123456789"));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(read_text(&path, 10).is_err());
    }

    #[test]
    fn files_that_others_can_read_or_write_are_rejected() {
        let dir = TempDir::new("private").unwrap();
        let path = file(&dir, 0o644);
        assert!(refusal(&path, OthersAccess::None).contains("its mode is 0644"));
        append(&path, OthersAccess::Read).unwrap();
        assert!(refusal(&file(&dir, 0o620), OthersAccess::Read).contains("0620"));
        assert!(refusal(&file(&dir, 0o602), OthersAccess::Read).contains("0602"));
    }

    #[test]
    fn a_replaced_file_is_whole_and_private() {
        let dir = TempDir::new("private").unwrap();
        let path = file(&dir, 0o644);
        // An interrupted replacement may have left this.
        fs::write(with_suffix(&path, ".new"), "left").unwrap();
        for content in ["a longer content", "short"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content.as_bytes());
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
        assert!(replace(&dir.file("none").join("file"), b"").is_err());
        fs::create_dir(dir.file("file.new")).unwrap();
        assert!(replace(&path, b"lost").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"short", "the former content stays");
    }

    #[test]
    fn links_devices_and_directories_are_rejected() {
        let dir = TempDir::new("private").unwrap();
        let path = file(&dir, 0o600);
        let link = dir.file("link");
        symlink(&path, &link).unwrap();
        assert!(refusal(&link, OthersAccess::None).contains("symbolic link"));
        let second = dir.file("second");
        fs::hard_link(&path, &second).unwrap();
        assert!(refusal(&second, OthersAccess::None).contains("hard link"));
        assert!(refusal(Path::new("/dev/null"), OthersAccess::None).contains("regular file"));
        assert!(append(dir.path(), OthersAccess::None).is_err());
    }

    #[test]
    fn files_of_another_user_are_rejected() {
        let dir = TempDir::new("private").unwrap();
        let path = file(&dir, 0o600);
        if let Err(error) = chown(&path, Some(12_345), None) {
            casemate_test_support::skip(format!("a file of another user: {error}"));
            return;
        }
        assert!(refusal(&path, OthersAccess::None).contains("user 12345"));
        let directory = dir.file("directory");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        check_directory(&directory).unwrap();
        check_parent(&directory).unwrap();
        chown(&directory, Some(12_345), None).unwrap();
        assert!(check_directory(&directory).is_err() && check_parent(&directory).is_err());
        chown(&directory, Some(0), None).unwrap();
        for (mode, is_parent) in [(0o777, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            assert!(check_directory(&directory).is_err(), "{mode:o}");
            assert_eq!(check_parent(&directory).is_ok(), is_parent, "{mode:o}");
        }
    }
}
