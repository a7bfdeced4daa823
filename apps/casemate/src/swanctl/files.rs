//! Files of a configuration: the first one, and those that it includes.
//!
//! A pattern is that of glob(3), relative to the directory of the file that includes. What it finds is read in the order of
//! the names, as if it stood in the place of the statement. How deep, how many and how much is bounded, so that a circle or a
//! pattern that is too wide ends with an error.

use super::problem::{Place, Problem};
use super::syntax;
use super::tree::{SectionId, Tree};
use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// How deep files include each other.
const MAX_DEPTH: usize = 10;

/// How many files are read.
const MAX_FILES: usize = 1_000;

/// How much all files hold together, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// What a configuration asks of the machine it is for: this one, or the memory of a test.
pub trait Host {
    /// The whole of a file.
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>>;

    /// The files in `directory` that a pattern of glob(3) matches, in the order of their names; an absolute pattern leaves the
    /// directory alone. An error if the pattern is none.
    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>>;

    /// The addresses of a host.
    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The machine that the program runs on.
#[derive(Debug, Clone, Copy)]
pub struct ThisHost;

impl Host for ThisHost {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        std::fs::read(path).map(Zeroizing::new)
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        let directory =
            directory.to_str().ok_or_else(|| io::Error::other("the directory has no name in UTF-8"))?;
        let pattern = Path::new(&glob::Pattern::escape(directory)).join(pattern);
        // As glob(3): a `*` does not find hidden files, and no pattern reaches over a `/`.
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let paths = glob::glob_with(&pattern.to_string_lossy(), options).map_err(io::Error::other)?;
        let is_file = |path: &glob::GlobResult| path.as_ref().map_or(true, |path| !path.is_dir());
        paths
            .filter(is_file)
            .map(|path| path.map_err(io::Error::from))
            .take(MAX_FILES.saturating_add(1))
            .collect()
    }

    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect())
    }
}

/// The files of the machine that the program runs on. No host is looked up: each name has the same address.
#[derive(Debug, Clone, Copy)]
pub struct FilesAlone;

impl Host for FilesAlone {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        ThisHost.read(path)
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        ThisHost.matching(directory, pattern)
    }

    fn addresses(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// Reads files into a tree.
pub(super) struct Loader<'f> {
    pub(super) tree: Tree,
    pub(super) problems: Vec<Problem>,
    host: &'f dyn Host,
    depth: usize,
    count: usize,
    bytes: usize,
}

impl<'f> Loader<'f> {
    /// Reads the text of the file `path`, and whatever it includes.
    pub(super) fn read(path: &Path, text: &[u8], host: &'f dyn Host) -> (Tree, Vec<Problem>) {
        let file: Arc<Path> = Arc::from(path);
        let start = Place { file: Arc::clone(&file), line: 1 };
        let tree = Tree::new(start);
        let mut loader = Self { tree, problems: Vec::new(), host, depth: 0, count: 1, bytes: text.len() };
        syntax::read(&mut loader, &file, text, Tree::ROOT);
        (loader.tree, loader.problems)
    }

    /// Reads the files that `pattern` matches into the section `into`.
    pub(super) fn include(&mut self, place: &Place, pattern: &str, into: SectionId) {
        if self.depth >= MAX_DEPTH {
            let text = format!("files include each other more than {MAX_DEPTH} deep: is there a circle?");
            return self.problems.push(Problem::new(place, text));
        }
        let directory = place.file.parent().unwrap_or(Path::new(""));
        match self.host.matching(directory, pattern) {
            Err(error) => self.wrong(place, pattern, error),
            // A directory without snippets is nothing odd; a file that is named and not there is.
            Ok(found) if found.is_empty() && !pattern.contains(['*', '?', '[']) => {
                self.wrong(place, pattern, "there is no such file");
            }
            Ok(found) => {
                self.depth = self.depth.saturating_add(1);
                for path in found {
                    self.one(place, &path, into);
                }
                self.depth = self.depth.saturating_sub(1);
            }
        }
    }

    fn one(&mut self, place: &Place, path: &Path, into: SectionId) {
        self.count = self.count.saturating_add(1);
        if self.count > MAX_FILES {
            // Said once, for what is left over would only repeat it.
            if self.count == MAX_FILES.saturating_add(1) {
                self.wrong(place, &path.to_string_lossy(), format!("more than {MAX_FILES} files"));
            }
            return;
        }
        let text = match self.host.read(path) {
            Ok(text) => text,
            Err(error) => return self.wrong(place, &path.to_string_lossy(), error),
        };
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_BYTES {
            let text = format!("the files hold more than {} MiB together", MAX_BYTES >> 20);
            return self.wrong(place, &path.to_string_lossy(), text);
        }
        syntax::read(self, &Arc::from(path), &text, into);
    }

    fn wrong(&mut self, place: &Place, subject: &str, why: impl std::fmt::Display) {
        self.problems.push(Problem::new(place, format!("include {subject}: {why}")));
    }
}
