//! The files that `--keep` saves: captures and keys.

use super::wire::Recording;
use crate::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Source and destination names of the saved files. The keys of the right host are those of both.
const FILES: [(&str, &str); 5] = [
    ("left/swanctl.conf", "left.conf"),
    ("right/swanctl.conf", "right.conf"),
    ("right/keys/states.xfrm", "states.xfrm"),
    ("right/keys/ikev2_decryption_table", "ikev2_decryption_table"),
    ("right/keys/esp_sa", "esp_sa"),
];

/// The destination files, open for writing.
pub(super) struct Keep {
    directory: PathBuf,
    clear: File,
    wire: File,
    kept: Vec<(&'static str, File)>,
}

impl Keep {
    /// Makes the directory and the files. The files contain keys, so only this user may read them.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::failed(format!("{}: {error}", directory.display()));
        fs::create_dir_all(directory).map_err(failed)?;
        let create = |name: &str| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let path = directory.join(name);
            options.open(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        };
        Ok(Self {
            clear: create("clear.pcapng")?,
            wire: create("wire.pcapng")?,
            kept: FILES
                .into_iter()
                .map(|(_, name)| Ok((name, create(name)?)))
                .collect::<Result<_, Failure>>()?,
            directory: directory.into(),
        })
    }

    /// Writes the files and prints commands to examine them.
    pub(super) fn fill(mut self, scratch: &Path, clear: &Recording, wire: &Recording) -> Result<(), Failure> {
        let mut write = || -> io::Result<()> {
            clear.write(BufWriter::new(&self.clear))?;
            wire.write(BufWriter::new(&self.wire))?;
            for ((from, _), (_, file)) in FILES.iter().zip(&mut self.kept) {
                file.write_all(&Zeroizing::new(fs::read(scratch.join(from))?))?;
            }
            Ok(())
        };
        let dir = self.directory.display();
        write().map_err(|error| Failure::failed(format!("{dir}: {error}")))?;
        println!(
            "Saved in {dir}: the captures in clear and protected, the configurations of both hosts, and \
             the keys. Commands to examine them:"
        );
        println!(
            "  casemate inspect {dir}/wire.pcapng --xfrm {dir}/states.xfrm --ike-keys {dir}/ikev2_decryption_table"
        );
        println!("  tcpdump -r {dir}/clear.pcapng -A");
        Ok(())
    }
}
