//! Where a configuration comes from: its path, loading it with all keys and certificates, and reloading
//! it in the background.

use crate::control::Waker;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::providers;
use crate::swanctl::{
    CellConfig, Charon, Config, Environment, FilesRead, RadiusConfig, RecordingEnvironment, ScriptTable,
};
use crate::tokens::TokenKeys;
use crate::vici::{Contents, Loaded, LoadedEnvironment};
use casemate_crypto::Provider;
use casemate_ike::config::{Connection, Pool, RemoteAuth, RemoteMethod};
use casemate_linux::dns::DnsMode;
use casemate_linux::{Performance, Scheduling, TunnelSpec, sandbox};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::SystemTime;

/// Default paths of the configuration.
const DEFAULTS: [&str; 2] = ["/etc/casemate/swanctl.conf", "/etc/swanctl/swanctl.conf"];

/// The location of a configuration, and the crypto providers for its keys.
pub struct ConfigSource {
    /// `None` if there is no file, and clients of vici load everything.
    path: Option<PathBuf>,
    providers: Vec<&'static dyn Provider>,
    /// Whether the files are kept in memory, for changes by clients of vici.
    keeps_files: bool,
}

/// The configuration of the file without what clients of vici have loaded, and the contents of all files.
#[derive(Default)]
pub(crate) struct FileConfig {
    config: Config,
    contents: Contents,
}

/// A configuration with all its keys and certificates.
pub struct LoadedConfig {
    /// Connections, in the order of the file.
    pub connections: Vec<Arc<Connection>>,
    /// Pools of virtual addresses for peers.
    pub pools: Vec<Pool>,
    /// Keys and certificates.
    pub keyring: Keyring,
    /// The private keys on tokens, by section.
    pub tokens: TokenKeys,
    /// The scheduler of outbound packets; `None` sends them in order of arrival.
    pub scheduling: Option<Scheduling>,
    /// Settings of IKE for all connections.
    pub charon: Charon,
    /// AAA servers, if there are any.
    pub radius: Option<RadiusConfig>,
    /// Scripts of children.
    pub scripts: ScriptTable,
    /// Ways to move packets.
    pub performance: Performance,
    /// How name servers of tunnels are used.
    pub name_servers: DnsMode,
    /// The cell of this gateway, if it is a node of one.
    pub cell: Option<CellConfig>,
    /// Interfaces of route-based tunnels.
    pub tunnels: Vec<TunnelSpec>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// The files that it was read from.
    pub files: FilesRead,
    /// The part of the file, if the source keeps it.
    pub(crate) base: Option<Arc<FileConfig>>,
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
        Ok(Self { path: Some(path), providers: providers::all(), keeps_files: false })
    }

    /// For an instance that clients of vici configure: the given file, or no file.
    pub(crate) fn for_vici(named: Option<&PathBuf>) -> Self {
        Self { path: named.cloned(), providers: providers::all(), keeps_files: true }
    }

    /// The path of the configuration file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The crypto providers in order of preference.
    pub fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }

    /// Reads the file and all files that it names. Returns the whole configuration or all errors.
    pub fn load(&self) -> Result<LoadedConfig, Failure> {
        let environment = RecordingEnvironment::new(self.keeps_files);
        let config = match &self.path {
            None => Config::default(),
            Some(path) => Config::load(path, &environment).map_err(Failure::bad_input)?,
        };
        let keyring = self.keyring(&config, &environment)?;
        let folders = &config.folders;
        let with_keys = config.secret_files.iter().chain(&folders.private_keys).chain(&folders.containers);
        let exposed = with_keys.filter_map(|path| key_file_warning(path));
        let mut warnings: Vec<String> =
            config.warnings.iter().map(ToString::to_string).chain(exposed).collect();
        warnings.extend(keyring.warnings(config.connections.iter().map(|connection| &**connection)));
        warnings.extend(keyring.validity_warnings(SystemTime::now()));
        // Clients of vici may load connections later.
        if let (Some(path), true, false) = (&self.path, config.connections.is_empty(), self.keeps_files) {
            warnings.push(format!(
                "{}: no traffic is protected: a section in `connections` was expected",
                path.display()
            ));
        }
        let (files, contents) = environment.into_files();
        let base = self.keeps_files.then(|| Arc::new(FileConfig { config: config.clone(), contents }));
        Ok(LoadedConfig { warnings, files, base, ..LoadedConfig::new(config, keyring)? })
    }

    /// Like [`load`](Self::load), with the part that clients of vici have loaded.
    fn load_with(&self, loaded: &Loaded) -> Result<LoadedConfig, Failure> {
        let of_file = self.load()?;
        let Some(base) = of_file.base else { return Ok(of_file) };
        let LoadedConfig { warnings, files, .. } = of_file;
        Ok(LoadedConfig { warnings, files, ..self.merge(&base, loaded)? })
    }

    /// Joins a part that was read before with what clients of vici have loaded. Reads no file.
    fn merge(&self, base: &Arc<FileConfig>, loaded: &Loaded) -> Result<LoadedConfig, Failure> {
        let config = loaded.merge(&base.config);
        let keyring = self.keyring(&config, &LoadedEnvironment::new(loaded, &base.contents))?;
        Ok(LoadedConfig { base: Some(base.clone()), ..LoadedConfig::new(config, keyring)? })
    }

    fn keyring(&self, config: &Config, environment: &dyn Environment) -> Result<Keyring, Failure> {
        check_servers(config)?;
        Keyring::load(config, &self.providers, environment).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::bad_input(lines.join("\n"))
        })
    }
}

/// Checks that there is a server if a connection needs one. Clients of vici load connections without the
/// section of the servers, so this is known only for the whole configuration.
fn check_servers(config: &Config) -> Result<(), Failure> {
    let is_relayed =
        |auth: &RemoteAuth| matches!(&auth.method, RemoteMethod::Eap(remote) if remote.is_relayed());
    let needs_server = |connection: &&Arc<Connection>| {
        is_relayed(&connection.remote) || connection.further_rounds.remote.iter().any(is_relayed)
    };
    match config.connections.iter().find(needs_server) {
        Some(connection) if config.radius.is_none() => Err(Failure::bad_input(format!(
            "connections.{}: `auth = eap-radius` needs a server: the section \
             `charon.plugins.eap-radius.servers` was expected",
            connection.name
        ))),
        _ => Ok(()),
    }
}

impl LoadedConfig {
    /// Without warnings and without a record of files. An error if the names of interfaces contradict each
    /// other.
    fn new(config: Config, keyring: Keyring) -> Result<Self, Failure> {
        Ok(Self {
            tunnels: config.interfaces().map_err(Failure::bad_input)?,
            scripts: ScriptTable::new(&config.connections, config.scripts),
            connections: keyring.with_key_ids(config.connections),
            pools: config.pools,
            tokens: TokenKeys::new(&config.tokens, keyring.on_tokens()),
            keyring,
            scheduling: config.scheduling,
            charon: config.charon,
            radius: config.radius,
            performance: config.performance,
            name_servers: config.name_servers,
            cell: config.cell,
            warnings: Vec::new(),
            files: FilesRead::default(),
            base: None,
        })
    }
}

impl FileConfig {
    /// Contents of all files.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The configuration of the file.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

/// What a reload does.
pub(crate) enum ReloadKind {
    /// Reads all files again, and joins them with what clients of vici have loaded.
    Files(Loaded),
    /// Joins what was read before with what clients of vici have loaded.
    Loaded(Arc<FileConfig>, Loaded),
}

/// A reload in progress.
pub(crate) struct ConfigReload(Receiver<Result<LoadedConfig, String>>);

impl ConfigReload {
    /// Starts reading the configuration; `waker` wakes the event loop when the result is ready. Fails if
    /// the system has no thread.
    pub(crate) fn start(source: &Arc<ConfigSource>, kind: ReloadKind, waker: Waker) -> io::Result<Self> {
        let (sender, result) = channel();
        let source = source.clone();
        let work = move || {
            // Dropped after the sender, also after a panic, to wake the event loop.
            let _waker = waker;
            let sender = sender;
            let loaded = sandbox::drop_capabilities().map_err(|error| error.to_string());
            let loaded = loaded.and_then(|()| {
                let loaded = match kind {
                    ReloadKind::Files(loaded) => source.load_with(&loaded),
                    ReloadKind::Loaded(base, loaded) => source.merge(&base, &loaded),
                };
                loaded.map_err(|failure| failure.reason().to_owned())
            });
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
        "{path}: mode {mode:04o} gives other users access to the keys in it: `chmod 600 {path}` \
         was expected, or 640 if its group is that of the service"
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
            "{name}: mode 0620 gives other users access to the keys in it: `chmod 600 {name}` \
             was expected, or 640 if its group is that of the service"
        );
        assert_eq!(shown, expected);
        assert_eq!(key_file_warning(&scratch.file("none")), None);
    }
}
