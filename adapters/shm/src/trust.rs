//! Whom an application believes to be a stack server: it hands its data over, and takes memory in return.
//!
//! A path alone proves nothing: in a directory of others, or in a shared one, another user may have made the
//! socket. So the directory must be one in which no other user can replace entries that are not theirs, and the
//! kernel says whose the other process is (SO_PEERCRED of unix(7): the user when it began to listen, so a server
//! that root starts with `--user` is root's).

use rustix::net::sockopt;
use rustix::process::geteuid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Group and others may write.
const WRITABLE: u32 = 0o022;
/// Entries are for their owners alone to replace, as in /tmp.
const STICKY: u32 = 0o1000;

/// Checks the directory that a socket is in.
pub(crate) fn check_directory(socket: &Path) -> io::Result<()> {
    let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let metadata = fs::metadata(directory)?;
    let (owner, mode) = (metadata.uid(), metadata.mode());
    // In a user namespace root's own directories belong to a user without a number there, as `/` does.
    if !is_trusted(owner) && owner != fs::metadata("/")?.uid() {
        return Err(refused(&format!("{} belongs to user {owner}", directory.display())));
    }
    if mode & WRITABLE != 0 && mode & STICKY == 0 {
        let mode = mode & 0o7777;
        return Err(refused(&format!("other users can write to {} (mode {mode:04o})", directory.display())));
    }
    Ok(())
}

/// Checks the process at the other end.
pub(crate) fn check_server(stream: &UnixStream) -> io::Result<()> {
    let user = sockopt::socket_peercred(stream)?.uid.as_raw();
    if is_trusted(user) {
        return Ok(());
    }
    Err(refused(&format!("the server at the other end was started by user {user}")))
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

fn refused(what: &str) -> io::Error {
    let reason = format!("{what}: root or this user was expected");
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use crate::door::enter;
    use casemate_scratch::Scratch;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    const CHILD: &str = "CASEMATE_TEST_SERVE";
    const STRANGER: u32 = 12_345;
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_server_of_another_user_is_refused() {
        if let Some(path) = std::env::var_os(CHILD) {
            // The socket gets its name when it listens, and not between `bind` and `listen`.
            let unnamed = Path::new(&path).with_extension("unnamed");
            let _listener = UnixListener::bind(&unnamed).unwrap();
            std::fs::rename(unnamed, path).unwrap();
            thread::sleep(PATIENCE);
            return;
        }
        let scratch = Scratch::new("trust");
        set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = scratch.file("socket");
        let mut stranger = Command::new(std::env::current_exe().unwrap());
        stranger.args(["--exact", "trust::tests::a_server_of_another_user_is_refused"]);
        stranger.env(CHILD, &path).uid(STRANGER).gid(STRANGER).stdout(Stdio::null()).stderr(Stdio::null());
        let mut stranger = match stranger.spawn() {
            Ok(child) => child,
            Err(error) => return casemate_left_out::note(format!("a process of another user: {error}")),
        };
        let end = Instant::now() + PATIENCE;
        while !path.exists() && stranger.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let (sender, entered) = std::sync::mpsc::channel();
        // Who trusts it waits for its greeting.
        thread::spawn(move || drop(sender.send(enter(&path).err().map(|error| error.to_string()))));
        let refusal = entered.recv_timeout(PATIENCE / 2);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        let refusal = refusal.unwrap().unwrap();
        assert!(refusal.contains("was started by user 12345"), "{refusal}");
    }

    #[test]
    fn a_socket_in_a_directory_of_others_is_refused() {
        let scratch = Scratch::new("trust");
        let path = scratch.file("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let refusal = || enter(&path).err().map(|error| error.to_string()).unwrap_or_default();
        set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(refusal().contains("other users can write"), "{}", refusal());
        set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        if let Err(error) = chown(scratch.path(), Some(STRANGER), None) {
            return casemate_left_out::note(format!("a directory of another user: {error}"));
        }
        assert!(refusal().contains("belongs to user 12345"), "{}", refusal());
    }
}
