//! Where a configuration comes from: its path, loading it with all keys and certificates, and reloading
//! it in the background.

use crate::control::Waker;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::providers;
use crate::swanctl::{Charon, Config, FilesRead, RecordingEnvironment};
use casemate_crypto::Provider;
use casemate_ike::config::{Connection, Pool};
use casemate_linux::{Performance, Scheduling, sandbox};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

/// Default paths of the configuration.
const DEFAULTS: [&str; 2] = ["/etc/casemate/swanctl.conf", "/etc/swanctl/swanctl.conf"];

/// The location of a configuration, and the crypto providers for its keys.
pub struct ConfigSource {
    path: PathBuf,
    providers: Vec<&'static dyn Provider>,
}

/// A configuration with all its keys and certificates.
pub struct LoadedConfig {
    /// Connections, in the order of the file.
    pub connections: Vec<Arc<Connection>>,
    /// Pools of virtual addresses for peers.
    pub pools: Vec<Pool>,
    /// Keys and certificates.
    pub keyring: Keyring,
    /// The scheduler of outbound packets; `None` sends them in order of arrival.
    pub scheduling: Option<Scheduling>,
    /// Settings of IKE for all connections.
    pub charon: Charon,
    /// Ways to move packets.
    pub performance: Performance,
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// The files that it was read from.
    pub files: FilesRead,
}

impl ConfigSource {
    /// Uses the given file, or the first default path that exists.
    pub fn new(named: Option<&PathBuf>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.clone(),
            None => DEFAULTS.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
                let [first, second] = DEFAULTS;
                Failure::bad_input(format!(
                    "neither {first} nor {second} exists: --config FILE or --xfrm FILE was expected"
                ))
            })?,
        };
        Ok(Self { path, providers: providers::all() })
    }

    /// The path of the configuration file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The crypto providers in order of preference.
    pub fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }

    /// Reads the file and all files that it names. Returns the whole configuration or all errors.
    pub fn load(&self) -> Result<LoadedConfig, Failure> {
        let environment = RecordingEnvironment::default();
        let config = Config::load(&self.path, &environment).map_err(Failure::bad_input)?;
        let keyring = Keyring::load(&config, &self.providers, &environment).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::bad_input(lines.join("\n"))
        })?;
        let with_keys = config.secret_files.iter().chain(&config.folders.private_keys);
        let exposed = with_keys.filter_map(|path| key_file_warning(path));
        let mut warnings: Vec<String> =
            config.warnings.iter().map(ToString::to_string).chain(exposed).collect();
        warnings.extend(keyring.warnings(&config.connections));
        if config.connections.is_empty() {
            warnings.push(format!(
                "{}: no traffic is protected: a section in `connections` was expected",
                self.path.display()
            ));
        }
        Ok(LoadedConfig {
            warnings,
            connections: config.connections.into_iter().map(Arc::new).collect(),
            pools: config.pools,
            keyring,
            scheduling: config.scheduling,
            charon: config.charon,
            performance: config.performance,
            files: environment.into_files(),
        })
    }
}

/// A reload in progress.
pub(crate) struct ConfigReload(Receiver<Result<LoadedConfig, String>>);

impl ConfigReload {
    /// Starts reading the configuration; `waker` wakes the event loop when the result is ready. Fails if
    /// the system has no thread.
    pub(crate) fn start(source: &Arc<ConfigSource>, waker: Waker) -> io::Result<Self> {
        let (sender, result) = channel();
        let source = source.clone();
        let work = move || {
            // Dropped after the sender, also after a panic, to wake the event loop.
            let _waker = waker;
            let sender = sender;
            let loaded = sandbox::drop_capabilities().map_err(|error| error.to_string());
            let loaded = loaded.and_then(|()| source.load().map_err(|failure| failure.reason().to_owned()));
            // At the end of the program there is no receiver.
            let _ = sender.send(loaded);
        };
        thread::Builder::new().name("configuration".into()).spawn(work)?;
        Ok(Self(result))
    }

    /// Returns the result; `None` while the thread is reading.
    pub(crate) fn result(&self) -> Option<Result<LoadedConfig, String>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err("the thread that reads the configuration failed".into()))
            }
            Ok(result) => Some(result),
        }
    }
}

/// Returns a warning if users other than the owner can read or write a file with keys. A file that cannot
/// be examined gives none, because reading it fails with an error.
pub(crate) fn key_file_warning(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let mode = metadata.mode() & 0o7777;
    if mode & forbidden_bits(metadata.uid()) == 0 || is_in_private_directory(path) {
        return None;
    }
    let path = path.display();
    Some(format!(
        "{path}: mode {mode:04o} gives other users access to the keys in it: `chmod 600 {path}` was expected"
    ))
}

/// The permissions that give other users access to a file of this owner. The group of a file of root may
/// read it, because root has chosen the group: in the Debian package, that of the service.
const fn forbidden_bits(owner: u32) -> u32 {
    if owner == 0 { 0o026 } else { 0o066 }
}

/// Whether the file is in a directory of root that users outside of its group cannot enter, as
/// `/etc/casemate` of the Debian package.
fn is_in_private_directory(path: &Path) -> bool {
    let directory = path.parent().and_then(|directory| std::fs::metadata(directory).ok());
    directory.is_some_and(|directory| directory.uid() == 0 && directory.mode() & 0o027 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn group_or_world_access_gives_a_warning() {
        let scratch = TempDir::new("exposed").unwrap();
        let path = scratch.file("key");
        fs::write(&path, "").unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        for (mode, is_exposed) in
            [(0o600, false), (0o400, false), (0o711, false), (0o640, !is_root), (0o604, true), (0o620, true)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            for (directory, is_open) in [(0o755, true), (0o751, true), (0o750, !is_root), (0o700, !is_root)] {
                fs::set_permissions(scratch.path(), Permissions::from_mode(directory)).unwrap();
                let warning = key_file_warning(&path);
                assert_eq!(warning.is_some(), is_exposed && is_open, "{directory:o} {mode:o}: {warning:?}");
            }
        }
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        let shown = key_file_warning(&path).unwrap();
        let name = path.display();
        let expected = format!(
            "{name}: mode 0620 gives other users access to the keys in it: `chmod 600 {name}` was expected"
        );
        assert_eq!(shown, expected);
        assert_eq!(key_file_warning(&scratch.file("none")), None);
    }
}
