//! `casemate import`: converts a WireGuard configuration to a `swanctl.conf`.
//!
//! `wireguard` reads the file, `convert` writes the configuration of either side and names what is lost.

mod convert;
mod wireguard;

use crate::failure::Failure;
use crate::output;
use crate::printable;
use casemate_linux::process::SystemRng;
use clap::Args;
use convert::{Conversion, Note};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use wireguard::WgConfig;

const EXAMPLES: &str = "\
Examples:
  casemate import wg0.conf -o swanctl.conf                     convert the file of this host
  casemate import wg0.conf -o swanctl.conf --peer peers        also write the file of each peer
  casemate import wg0.conf --peer peers --address vpn.example.org
                                                               peers without Endpoint connect to this address

What is not carried over is named on standard error. WireGuard's keys have no use in IKE: without a
PresharedKey, each peer gets a new secret, which both sides need.";

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// Configuration in the format of wg-quick(8).
    #[arg(value_name = "WG.CONF")]
    pub file: PathBuf,
    /// Write to a new file that only its owner may read, instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write the configuration of each peer, as `peer1.conf` and so on, to this directory.
    #[arg(long, value_name = "DIR")]
    pub peer: Option<PathBuf>,
    /// Address or name of this host, for the peers that have no Endpoint.
    #[arg(long, value_name = "HOST", requires = "peer")]
    pub address: Option<String>,
}

/// Maximum length of a file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Runs the command.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let shown = args.file.display();
    let text = read(&args.file).map_err(|error| Failure::bad_input(format!("{shown}: {error}")))?;
    let config =
        WgConfig::parse(&text).map_err(|problems| Failure::bad_input(with_file(&args.file, &problems)))?;
    if let Some(address) = &args.address
        && !wireguard::is_host(address)
    {
        return Err(Failure::bad_input(format!(
            "--address {address}: an address or a host name was expected"
        )));
    }
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let conversion = Conversion::new(&config, args.address.as_deref(), &mut rng)
        .map_err(|problem| Failure::bad_input(with_file(&args.file, &[problem])))?;
    let own = conversion.own(&shown.to_string());
    let mut files = match &args.peer {
        Some(directory) => peer_files(&conversion, directory)?,
        None => Vec::new(),
    };
    files.extend(args.output.iter().map(|path| (path.clone(), own.clone())));
    write_files(&files)?;
    if args.output.is_none()
        && let Err(error) = output::print(&own)
    {
        // The secrets of these files were in the lost output.
        files.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
        return Err(error);
    }
    for note in conversion.notes() {
        let text = format!("{shown}:{}: {}", note.line, note.text);
        output::show_error(&format_args!("casemate: {}", printable::line(&text)));
    }
    Ok(())
}

/// The text of a file of limited length.
fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path)
        .map_err(|error| format!("{error}: a configuration of WireGuard for wg-quick(8) was expected"))?;
    file.take(MAX_FILE.saturating_add(1)).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("a file of at most {MAX_FILE} bytes was expected"));
    }
    Ok(text)
}

fn with_file(path: &Path, problems: &[Note]) -> String {
    let lines = problems.iter().map(|note| format!("{}:{}: {}", path.display(), note.line, note.text));
    lines.collect::<Vec<_>>().join("\n")
}

/// Path and text of the file of each peer.
fn peer_files(conversion: &Conversion<'_>, directory: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    if !directory.is_dir() {
        let made = DirBuilder::new().mode(0o700).create(directory);
        made.map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))?;
    }
    let sides = (0..conversion.peers()).filter_map(|number| conversion.other_side(number));
    Ok(sides.map(|(name, text)| (directory.join(format!("{name}.conf")), text)).collect())
}

/// Writes new files, or none of them.
fn write_files(files: &[(PathBuf, String)]) -> Result<(), Failure> {
    for (number, (path, text)) in files.iter().enumerate() {
        if let Err(error) = write_private(path, text) {
            for (written, _) in files.iter().take(number) {
                // The first error is reported.
                let _ = fs::remove_file(written);
            }
            let hint = match error.kind() {
                io::ErrorKind::AlreadyExists => ": another name was expected, because no file is replaced",
                _ => "",
            };
            return Err(Failure::failed(format!("{}: {error}{hint}", path.display())));
        }
    }
    Ok(())
}

/// Writes a new file that only its owner may read. An existing file is not replaced.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // A file that is cut off would be taken for a whole one.
        let _ = fs::remove_file(path);
    })
}
