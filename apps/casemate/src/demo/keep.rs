//! What the demo leaves behind if asked: the recordings and the keys.

use super::host::Side;
use super::keys::Keys;
use super::wire::Recording;
use crate::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The files, open for writing.
pub(super) struct Keep {
    directory: PathBuf,
    clear: File,
    wire: File,
    left: File,
    right: File,
}

impl Keep {
    /// Makes the directory and the files. They hold keys, so that nobody else may read them.
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
            left: create("left.xfrm")?,
            right: create("right.xfrm")?,
            directory: directory.into(),
        })
    }

    /// Fills them, and says how to look at them.
    pub(super) fn fill(mut self, keys: &Keys, clear: &Recording, wire: &Recording) -> Result<(), Failure> {
        let mut write = || -> io::Result<()> {
            clear.write(BufWriter::new(&self.clear))?;
            wire.write(BufWriter::new(&self.wire))?;
            self.left.write_all(keys.file_for(Side::Left).as_bytes())?;
            self.right.write_all(keys.file_for(Side::Right).as_bytes())
        };
        let dir = self.directory.display();
        write().map_err(|error| Failure::failed(format!("{dir}: {error}")))?;
        println!(
            "Kept in {dir}: what was on the wire in clear and under protection, and both hosts' files. Look:"
        );
        println!("  casemate inspect {dir}/wire.pcapng --xfrm {dir}/left.xfrm");
        println!("  tcpdump -r {dir}/clear.pcapng -A");
        Ok(())
    }
}
