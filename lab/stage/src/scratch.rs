//! A directory for one run.

use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// A directory that is gone with it. It is below /tmp because the path of a Unix socket has to be short.
pub struct Scratch(PathBuf);

impl Scratch {
    /// For the program of this name.
    pub fn new(program: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("casemate-{program}.{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        Ok(Self(directory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover directory hurts nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
