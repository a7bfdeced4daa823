//! The files of a configuration: the main file, the files that it includes, and the folders of
//! certificates and keys.
//!
//! A pattern is that of glob(3), relative to the directory of the including file. The matching files are
//! read in the order of their names, as if their text stood in place of the `include` statement. The
//! depth, the number and the total size of files are limited, so that a cycle or an overly wide pattern
//! ends with an error.

use super::problem::{Location, Problem, Problems};
use super::syntax;
use super::tree::{SectionId, Tree};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum depth of includes.
const MAX_DEPTH: usize = 10;

/// Maximum number of files.
const MAX_FILES: usize = 1_000;

/// Maximum size of all files together, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Access to files: those of this machine, or those of a test.
pub trait Environment {
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Length of a file in bytes.
    fn len(&self, path: &Path) -> io::Result<u64> {
        std::fs::metadata(path).map(|metadata| metadata.len())
    }

    /// Returns the files in `directory` that a pattern of glob(3) matches, sorted by name. An absolute
    /// pattern ignores `directory`. A malformed pattern is an error.
    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        std::fs::read(path).map(Zeroizing::new)
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        let directory =
            directory.to_str().ok_or_else(|| io::Error::other("the directory has no name in UTF-8"))?;
        let pattern = Path::new(&glob::Pattern::escape(directory)).join(pattern);
        // As in glob(3), a `*` matches neither hidden files nor a `/`.
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
}

/// The files that were read, and the patterns that were matched.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FilesRead {
    files: BTreeSet<PathBuf>,
    /// Directories with patterns.
    patterns: BTreeSet<(PathBuf, String)>,
}

impl FilesRead {
    /// Opens the files and lists the folders again. Returns an error message for each one that fails.
    pub fn unreadable(&self) -> Vec<String> {
        let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let files = self.files.iter().filter_map(|path| Some(failed(path, File::open(path).err()?)));
        let patterns = self.patterns.iter().filter_map(|(directory, pattern)| {
            let error = SystemEnvironment.matching(directory, pattern).err()?;
            Some(failed(&directory.join(pattern), error))
        });
        files.chain(patterns).collect()
    }
}

/// The file system of this machine. Records which files are read.
#[derive(Default)]
pub struct RecordingEnvironment {
    record: RefCell<FilesRead>,
    /// Contents of the files, if they are kept.
    contents: Option<RefCell<BTreeMap<PathBuf, Zeroizing<Vec<u8>>>>>,
}

impl RecordingEnvironment {
    /// Keeps the contents of the files, too, if `keeps_contents` is set.
    pub fn new(keeps_contents: bool) -> Self {
        Self { record: RefCell::default(), contents: keeps_contents.then(RefCell::default) }
    }

    /// Returns the record, and the contents of the files by path.
    pub fn into_files(self) -> (FilesRead, BTreeMap<PathBuf, Zeroizing<Vec<u8>>>) {
        (self.record.into_inner(), self.contents.map(RefCell::into_inner).unwrap_or_default())
    }
}

impl Environment for RecordingEnvironment {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        self.record.borrow_mut().files.insert(path.to_owned());
        let read = SystemEnvironment.read(path)?;
        if let Some(contents) = &self.contents {
            contents.borrow_mut().insert(path.to_owned(), read.clone());
        }
        Ok(read)
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        self.record.borrow_mut().patterns.insert((directory.to_owned(), pattern.to_owned()));
        SystemEnvironment.matching(directory, pattern)
    }
}

/// Reads the configuration files into a tree.
pub(super) struct TreeLoader<'f> {
    pub(super) tree: Tree,
    pub(super) problems: Vec<Problem>,
    environment: &'f dyn Environment,
    depth: usize,
    count: usize,
    bytes: usize,
}

impl<'f> TreeLoader<'f> {
    /// Reads `text`, the content of the file `path`, and all files that it includes.
    pub(super) fn read(path: &Path, text: &[u8], environment: &'f dyn Environment) -> (Tree, Vec<Problem>) {
        let file: Arc<Path> = Arc::from(path);
        let start = Location { file: Arc::clone(&file), line: 1 };
        let tree = Tree::new(start);
        let mut loader =
            Self { tree, problems: Vec::new(), environment, depth: 0, count: 1, bytes: text.len() };
        syntax::read(&mut loader, &file, text, Tree::ROOT);
        (loader.tree, loader.problems)
    }

    /// Reads the files that match `pattern` into the section `into`.
    pub(super) fn include(&mut self, location: &Location, pattern: &str, into: SectionId) {
        if self.depth >= MAX_DEPTH {
            let text = format!(
                "includes are nested more than {MAX_DEPTH} deep: check for a file that includes itself"
            );
            return self.problems.push(Problem::new(location, text));
        }
        let directory = location.file.parent().unwrap_or(Path::new(""));
        match self.environment.matching(directory, pattern) {
            Err(error) => self.error(location, pattern, error),
            // A pattern may match nothing; a plain file name must exist.
            Ok(found) if found.is_empty() && !pattern.contains(['*', '?', '[']) => {
                self.error(location, pattern, "there is no such file");
            }
            Ok(found) => {
                self.depth = self.depth.saturating_add(1);
                for path in found {
                    self.read_file(location, &path, into);
                }
                self.depth = self.depth.saturating_sub(1);
            }
        }
    }

    fn read_file(&mut self, location: &Location, path: &Path, into: SectionId) {
        self.count = self.count.saturating_add(1);
        if self.count > MAX_FILES {
            // Reported once, not for each further file.
            if self.count == MAX_FILES.saturating_add(1) {
                self.error(location, &path.to_string_lossy(), format!("more than {MAX_FILES} files"));
            }
            return;
        }
        let text = match self.environment.read(path) {
            Ok(text) => text,
            Err(error) => return self.error(location, &path.to_string_lossy(), error),
        };
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_BYTES {
            let text = format!("the files have more than {} MiB together", MAX_BYTES >> 20);
            return self.error(location, &path.to_string_lossy(), text);
        }
        syntax::read(self, &Arc::from(path), &text, into);
    }

    fn error(&mut self, location: &Location, subject: &str, why: impl std::fmt::Display) {
        self.problems.push(Problem::new(location, format!("include {subject}: {why}")));
    }
}

/// Files to load, by content; each list is sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// End-entity certificates: folder `x509`.
    pub certs: Vec<PathBuf>,
    /// Trusted CA certificates: folder `x509ca`.
    pub cacerts: Vec<PathBuf>,
    /// Certificate revocation lists: folder `x509crl`.
    pub crls: Vec<PathBuf>,
    /// Certificates of trusted OCSP responders: folder `x509ocsp`.
    pub responders: Vec<PathBuf>,
    /// Private keys: folders `private`, `rsa`, `ecdsa` and `pkcs8`.
    pub private_keys: Vec<PathBuf>,
    /// Public keys without certificates: folder `pubkey`.
    pub public_keys: Vec<PathBuf>,
    /// PKCS #12 containers: folder `pkcs12`.
    pub containers: Vec<PathBuf>,
    /// Those of `certs` that are trusted CA certificates, too, if they have issued a certificate of this
    /// host: the roots of PKCS #12 containers that swanctl has opened. It does not call them CAs.
    pub possible_roots: Vec<PathBuf>,
}

/// Folders that strongSwan loads and Casemate does not support, with the reason.
const REFUSED: [(&str, &str); 3] = [
    ("x509ac", "attribute certificates are not implemented"),
    ("x509aa", "attribute certificates are not implemented"),
    ("bliss", "BLISS is not implemented"),
];

impl Folders {
    /// Lists the files in the folders of `directory`. A missing folder counts as empty.
    pub(super) fn list(
        directory: &Path,
        environment: &dyn Environment,
        start: &Location,
        problems: &Problems,
    ) -> Self {
        let wrong = |folder: &str, why: &str| {
            problems.error(start, format!("{}: {why}", directory.join(folder).display()));
        };
        let files = |folder: &str| {
            environment.matching(&directory.join(folder), "*").unwrap_or_else(|error| {
                wrong(folder, &error.to_string());
                Vec::new()
            })
        };
        for (folder, why) in REFUSED {
            if !files(folder).is_empty() {
                wrong(folder, &format!("{why}; an empty folder was expected"));
            }
        }
        Self {
            certs: files("x509"),
            cacerts: files("x509ca"),
            crls: files("x509crl"),
            responders: files("x509ocsp"),
            private_keys: ["private", "rsa", "ecdsa", "pkcs8"].into_iter().flat_map(files).collect(),
            public_keys: files("pubkey"),
            containers: files("pkcs12"),
            possible_roots: Vec::new(),
        }
    }
}
