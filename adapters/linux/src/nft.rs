//! The program `nft`, which knows the nftables language.

use crate::Error;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Where distributions put it; an administrator's directory need not be in PATH.
const PLACES: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

/// Runs a script. All of it takes effect, or nothing.
pub(crate) fn run(script: &str) -> Result<(), Error> {
    let mut command = PLACES.iter().map(|place| spawn(place));
    let mut child = command
        .find(|spawned| spawned.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound))
        .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::NotFound, "the program is not installed")))
        .map_err(|error| Error::new("nft", error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ended early, its own message says more than the broken pipe.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| Error::new("nft", error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::other("nft", said.lines().next().unwrap_or("it failed without a word")))
}

fn spawn(program: &str) -> io::Result<std::process::Child> {
    Command::new(program)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}
