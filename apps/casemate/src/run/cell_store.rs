//! The store of the section `cell`: its servers, certificates, password and wrapping key, and the file with
//! what this node has seen of the cluster (docs/decisions/0142-etcd.md).

use super::seen_file::SeenFile;
use super::wrapping_keys::{CREDENTIAL, KeyBytes, KeyForm, credential_key, read_key, second_key};
use crate::failure::Failure;
use crate::swanctl::{CellAddress, CellConfig, LoginFile, TlsFiles};
use crate::tokens::TokenKeys;
use casemate_cell::{WRAPPING_KEY_LEN, WrappingKeys};
use casemate_crypto::{Provider, SecretBytes};
use casemate_etcd::{Config, Endpoint, EtcdMonitor, EtcdStore, Login, Tls};
use casemate_linux::private_file::{self, OthersAccess};
use casemate_linux::process::SystemRng;
use casemate_linux::{
    CellNode, Forwarding, StateKeeper, StoreWaker, VirtualAddress, VirtualAddresses, sandbox,
};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Longest password in bytes.
const MAX_PASSWORD: usize = 1_024;

/// A node that has joined its cell.
pub(super) struct JoinedCell {
    pub(super) keeper: StateKeeper,
    pub(super) watch: CellWatch,
    /// The addresses that the owner has; `None` if another program moves them.
    pub(super) addresses: Option<VirtualAddresses>,
    /// Forwarding between the nodes, if it is configured.
    pub(super) forwarding: Option<Forwarding>,
}

/// What the controller follows of the store of a cell.
pub(super) struct CellWatch {
    monitor: EtcdMonitor,
    seen: SeenFile,
}

impl CellWatch {
    /// Notes what was seen of the cluster. Returns why that could not be written.
    pub(super) fn on_tick(&mut self) -> Option<String> {
        self.monitor.seen().into_iter().for_each(|seen| self.seen.note(seen));
        self.seen.take_problem()
    }

    /// Why the store is damaged, if it is.
    pub(super) fn damage(&self) -> Option<String> {
        self.monitor.damage()
    }

    /// Why the store failed the last time.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.monitor.last_failure()
    }
}

/// Joins the cell of the configuration: this node waits until it may become the owner.
///
/// # Errors
///
/// As [`open`].
pub(super) fn join(
    cell: &CellConfig,
    directory: &Path,
    tokens: &TokenKeys,
    providers: &[&'static dyn Provider],
    rng: &mut SystemRng,
) -> Result<JoinedCell, Failure> {
    let addresses: Vec<VirtualAddress> = cell.addresses.iter().map(CellAddress::to_virtual).collect();
    let has_addresses = !addresses.is_empty();
    let addresses = has_addresses.then(|| VirtualAddresses::open(addresses, cell.lease)).transpose();
    let addresses = addresses.map_err(|error| Failure::failed(format!("cell.addresses: {error}")))?;
    let waker = StoreWaker::new().map_err(Failure::failed)?;
    let wake = waker.clone();
    let opened = open(cell, directory, tokens, providers, move || wake.wake())?;
    let OpenedCell { store, wrapping, seen, keys } = opened;
    let watch = CellWatch { monitor: store.monitor(), seen };
    let node = CellNode { name: cell.node.clone(), lease: cell.lease };
    let mut keeper = StateKeeper::join(Box::new(store), waker, wrapping, &node);
    let open = |address| Forwarding::open(address, (&keys.first, keys.second.as_ref()), providers, rng);
    let forwarding = cell.forward.map(open).transpose();
    let forwarding = forwarding.map_err(|error| Failure::failed(format!("cell.forward: {error}")))?;
    if let Some(forwarding) = &forwarding {
        keeper.register_forward(&forwarding.address());
    }
    Ok(JoinedCell { keeper, watch, addresses, forwarding })
}

/// First characters of all entries of a cell.
fn prefix(cell: &CellConfig) -> String {
    format!("casemate/{}/", cell.name)
}

/// The store of a cell, and what belongs to it.
pub struct OpenedCell {
    /// The store. Its keys begin with `casemate/NAME/`.
    pub store: EtcdStore,
    /// Encrypts the data keys in it.
    pub wrapping: WrappingKeys,
    /// File for what the store has seen of the cluster.
    pub seen: SeenFile,
    /// The bytes of the wrapping keys, for forwarded packets.
    pub keys: KeyBytes,
}

/// Opens the store of a cell. Its threads have no capabilities. They connect with the first request, so the
/// servers need not respond.
///
/// `directory` is the one for files that survive a reboot. A key of `tokens` may decrypt the wrapping key.
/// `wake` is called by threads of the store when there are completions or events; it must not block.
///
/// # Errors
///
/// Returns an error if a file cannot be read, other users have access to a file with a secret, or a value is
/// invalid.
pub fn open(
    cell: &CellConfig,
    directory: &Path,
    tokens: &TokenKeys,
    providers: &[&'static dyn Provider],
    wake: impl Fn() + Send + Sync + 'static,
) -> Result<OpenedCell, Failure> {
    let keys = key_bytes(cell, tokens)?;
    let wrapping = keys.wrapping_keys(providers).map_err(|error| wrong("wrapping_key", error))?;
    let (seen, known) = SeenFile::open(directory, &cell.name, &cell.node).map_err(Failure::failed)?;
    let config = Config { seen: known, thread_entry: drop_capabilities, ..store_config(cell)? };
    let store = EtcdStore::open(config, Arc::new(wake)).map_err(Failure::failed)?;
    Ok(OpenedCell { store, wrapping, seen, keys })
}

/// Reads the files of the cell without opening the store, for a dry run. The wrapping keys are read only if
/// the section names the file of the first one: credentials exist only in a service.
///
/// # Errors
///
/// As [`open`].
pub(super) fn check(cell: &CellConfig, tokens: &TokenKeys) -> Result<(), Failure> {
    for (key, section) in [
        ("wrapping_key_token", &cell.wrapping_key_token),
        ("second_wrapping_key_token", &cell.second_wrapping_key_token),
    ] {
        section.iter().try_for_each(|section| tokens.check(section)).map_err(|why| wrong(key, why))?;
    }
    if cell.wrapping_key.is_some() {
        key_bytes(cell, tokens)?;
    }
    store_config(cell).map(|_| ())
}

fn drop_capabilities() -> Result<(), String> {
    sandbox::drop_capabilities().map_err(|error| error.to_string())
}

/// The error about a value of the section.
fn wrong(key: &str, why: impl std::fmt::Display) -> Failure {
    Failure::bad_input(format!("cell.{key}: {why}"))
}

/// The wrapping keys.
fn key_bytes(cell: &CellConfig, tokens: &TokenKeys) -> Result<KeyBytes, Failure> {
    let first = first_key(cell, KeyForm::new(tokens, cell.wrapping_key_token.as_ref()))?;
    let form = KeyForm::new(tokens, cell.second_wrapping_key_token.as_ref());
    let second = second_key(cell.second_wrapping_key.as_deref(), form);
    let keys = second.and_then(|second| KeyBytes::new(first, second));
    keys.map_err(|why| wrong("second_wrapping_key", why))
}

/// The wrapping key: the file of the section, or the credential of the service.
fn first_key(cell: &CellConfig, form: KeyForm<'_>) -> Result<SecretBytes, Failure> {
    let expected = match form {
        KeyForm::Plain => format!(
            "a file with {WRAPPING_KEY_LEN} random bytes was expected, the same on all nodes of the cell, for \
             example from `(umask 077; head -c {WRAPPING_KEY_LEN} /dev/urandom > cell.key)`"
        ),
        KeyForm::Encrypted(..) => form.expected(),
    };
    let found = match &cell.wrapping_key {
        Some(path) => {
            read_key(path, form).map(|key| key.ok_or_else(|| format!("{}: no such file", path.display())))
        }
        None => credential_key(CREDENTIAL, form).map(|key| {
            key.ok_or_else(|| format!("there is no `wrapping_key` and no credential {}", CREDENTIAL))
        }),
    };
    let found = found.map_err(|why| wrong("wrapping_key", why))?;
    found.map_err(|why| wrong("wrapping_key", format_args!("{why}: {expected}")))
}

/// The configuration of the store, without what was seen of the cluster.
fn store_config(cell: &CellConfig) -> Result<Config, Failure> {
    let etcd = &cell.etcd;
    let endpoint = |address| Endpoint { address, server_name: etcd.server_name.clone() };
    let endpoints = etcd.servers.iter().copied().map(endpoint).collect();
    let mut config = Config::new(endpoints, &prefix(cell));
    config.deadline = etcd.deadline;
    config.tls = etcd.tls.as_ref().map(tls).transpose()?;
    config.login = etcd.login.as_ref().map(login).transpose()?;
    config.check().map_err(|error| wrong("etcd", error))?;
    Ok(config)
}

fn tls(files: &TlsFiles) -> Result<Tls, Failure> {
    if let Some((_, key)) = &files.own {
        // The check alone: the file is read as PEM below.
        open_private(key).map_err(|why| wrong("etcd.key", why))?;
    }
    let own = files.own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    Tls::from_files(&files.authorities, own).map_err(|error| wrong("etcd", error))
}

fn login(login: &LoginFile) -> Result<Login, Failure> {
    let password = password(&login.password).map_err(|why| wrong("etcd.password", why))?;
    Ok(Login { user: login.user.clone(), password })
}

/// The password in a file. A line break at its end does not belong to it.
fn password(path: &Path) -> Result<SecretBytes, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD + 1));
    let most = u64::try_from(MAX_PASSWORD + 1).unwrap_or(u64::MAX);
    open_private(path)?.take(most).read_to_end(&mut text).map_err(failed)?;
    let line = text.strip_suffix(b"\n").unwrap_or(&text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_line = !line.is_empty() && text.len() <= MAX_PASSWORD && !line.contains(&b'\n');
    if !is_line || str::from_utf8(line).is_err() {
        return Err(format!(
            "{}: a password of 1 to {MAX_PASSWORD} bytes in UTF-8 on one line was expected",
            path.display()
        ));
    }
    Ok(SecretBytes::new(line))
}

fn open_private(path: &Path) -> Result<File, String> {
    let file = private_file::open(path, File::options().read(true), OthersAccess::None);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::EtcdServers;
    use casemate_test_support::TempDir;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::time::Duration;

    fn file(directory: &TempDir, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.file(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn cell(wrapping_key: Option<PathBuf>) -> CellConfig {
        CellConfig {
            name: "berlin".into(),
            node: "gw1".into(),
            lease: Duration::from_secs(3),
            wrapping_key,
            wrapping_key_token: None,
            second_wrapping_key: None,
            second_wrapping_key_token: None,
            etcd: EtcdServers {
                servers: vec![([127, 0, 0, 1], 1).into()],
                server_name: None,
                tls: None,
                login: None,
                deadline: Duration::from_secs(2),
            },
            addresses: Vec::new(),
            forward: None,
        }
    }

    fn refusal(directory: &TempDir, cell: &CellConfig) -> String {
        let refused = open(cell, directory.path(), &TokenKeys::default(), &crate::providers::all(), || ())
            .err()
            .unwrap();
        assert!(matches!(refused, Failure::BadInput(_)), "{refused}");
        refused.reason().to_owned()
    }

    #[test]
    fn a_password_is_one_line_in_a_private_file() {
        let dir = TempDir::new("cell-password").unwrap();
        for (content, expected) in
            [("secret", "secret"), ("secret\n", "secret"), ("secret\r\n", "secret"), (" a b \n", " a b ")]
        {
            let read = password(&file(&dir, "password", content.as_bytes(), 0o600)).unwrap();
            assert_eq!(read.expose(), expected.as_bytes(), "{content:?}");
        }
        let long = vec![b'x'; MAX_PASSWORD + 1];
        for content in [&b""[..], b"\n", b"a\nb", b"secret\n\n", b"\xff", &long] {
            let why = password(&file(&dir, "password", content, 0o600)).unwrap_err();
            assert!(why.contains("a password of 1 to 1024 bytes") && !why.contains("secret"), "{why}");
        }
        assert!(password(&file(&dir, "password", &long[1..], 0o600)).is_ok());
        let why = password(&file(&dir, "open", b"secret", 0o640)).unwrap_err();
        assert!(why.contains("0600 was expected"), "{why}");
    }

    #[test]
    fn a_missing_wrapping_key_is_an_error_that_says_how_to_make_one() {
        let dir = TempDir::new("cell-key").unwrap();
        let missing = refusal(&dir, &cell(Some(dir.file("none"))));
        assert!(
            missing.starts_with("cell.wrapping_key: ") && missing.contains("none: no such file"),
            "{missing}"
        );
        // The tests run without credentials.
        let without = refusal(&dir, &cell(None));
        assert!(without.contains("no credential casemate-store-key"), "{without}");
        for why in [missing, without] {
            assert!(
                why.contains("head -c 32 /dev/urandom") && why.contains("the same on all nodes"),
                "{why}"
            );
        }
        let short = refusal(&dir, &cell(Some(file(&dir, "short", &[7; 31], 0o600))));
        assert!(short.contains("exactly 32 bytes"), "{short}");
        let exposed = refusal(&dir, &cell(Some(file(&dir, "exposed", &[7; 32], 0o644))));
        assert!(
            exposed.starts_with("cell.wrapping_key: ") && exposed.contains("0600 was expected"),
            "{exposed}"
        );
        let opened = open(
            &cell(Some(file(&dir, "key", &[7; 32], 0o600))),
            dir.path(),
            &TokenKeys::default(),
            &crate::providers::all(),
            || (),
        );
        assert_eq!(opened.err(), None);
    }

    #[test]
    fn a_second_wrapping_key_is_another_file_with_another_key() {
        let dir = TempDir::new("cell-second-key").unwrap();
        let first = file(&dir, "first", &[7; 32], 0o600);
        let with =
            |second: PathBuf| CellConfig { second_wrapping_key: Some(second), ..cell(Some(first.clone())) };
        let refused = |second: PathBuf| {
            let cell = with(second);
            let why = refusal(&dir, &cell);
            assert!(why.starts_with("cell.second_wrapping_key: "), "{why}");
            assert_eq!(
                check(&cell, &TokenKeys::default()).unwrap_err().reason(),
                why,
                "a dry run finds it, too"
            );
            why
        };
        assert!(refused(dir.file("none")).contains("none: no such file: a file with 32 random bytes"));
        assert!(refused(file(&dir, "short", &[8; 31], 0o600)).contains("exactly 32 bytes"));
        assert!(refused(file(&dir, "open", &[8; 32], 0o644)).contains("0600 was expected"));
        assert!(refused(file(&dir, "same", &[7; 32], 0o600)).contains("another one was expected"));
        assert_eq!(check(&with(file(&dir, "second", &[8; 32], 0o600)), &TokenKeys::default()), Ok(()));
    }

    #[test]
    fn files_of_etcd_are_named_by_their_key() {
        let dir = TempDir::new("cell-files").unwrap();
        let key = file(&dir, "key", &[7; 32], 0o600);
        let with = |change: &dyn Fn(&mut EtcdServers)| {
            let mut cell = cell(Some(key.clone()));
            change(&mut cell.etcd);
            assert_eq!(
                check(&cell, &TokenKeys::default()).unwrap_err().reason(),
                refusal(&dir, &cell),
                "a dry run finds it, too"
            );
            refusal(&dir, &cell)
        };
        let none = dir.file("none");
        let why = with(&|etcd| {
            etcd.login = Some(LoginFile { user: "gw1".into(), password: none.clone() });
        });
        assert!(why.starts_with("cell.etcd.password: ") && why.contains("No such file"), "{why}");
        let why = with(&|etcd| etcd.tls = Some(TlsFiles { authorities: none.clone(), own: None }));
        assert!(why.starts_with("cell.etcd: ") && why.contains("certificates in PEM were expected"), "{why}");
        let exposed = file(&dir, "exposed", b"", 0o640);
        let why = with(&|etcd| {
            let own = Some((none.clone(), exposed.clone()));
            etcd.tls = Some(TlsFiles { authorities: none.clone(), own });
        });
        assert!(why.starts_with("cell.etcd.key: ") && why.contains("0600 was expected"), "{why}");
        let why = with(&|etcd| etcd.server_name = Some("a..b".into()));
        assert!(why.contains("server name `a..b`"), "{why}");
    }
}
