//! Opens a Unix socket at a path of the command line.

use casemate_linux::{Error, unix_socket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Opens the socket for root and this user. Fails if another program serves clients there; a socket that no
/// program serves is replaced. `option` is the option of the command line that names the path.
pub(crate) fn listen_alone(path: &Path, option: &str) -> Result<UnixListener, Error> {
    let name = || path.display().to_string();
    if let Ok(stream) = UnixStream::connect(path) {
        let who =
            unix_socket::peer_program(&stream).map_or_else(|_| String::new(), |who| format!(" ({who})"));
        return Err(Error::other(
            name(),
            format!("another program serves this socket{who}: stop it, or use another path with {option}"),
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()) => {
            Err(Error::other(name(), "this is not a socket: another path was expected"))
        }
        _ => unix_socket::listen(path).map_err(|error| Error::new(name(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;

    #[test]
    fn a_socket_is_replaced_if_no_program_serves_it() {
        let scratch = TempDir::new("listen").unwrap();
        let path = scratch.file("socket");
        let listener = listen_alone(&path, "--vici").unwrap();
        let error = listen_alone(&path, "--vici").unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(listener);
        assert!(path.exists() && listen_alone(&path, "--vici").is_ok());
        let file = scratch.file("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen_alone(&file, "--vici").is_err() && file.exists());
    }
}
