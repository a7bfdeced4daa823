//! The store of `--store`: IKE SAs that outlive the process (docs/decisions/0140-cells.md).

use super::RunArgs;
use crate::failure::Failure;
use casemate_cell::{WRAPPING_KEY_LEN, WrappingKey, WrappingKeys};
use casemate_crypto::{Provider, Providers, Rng, SecretBytes};
use casemate_file_store::FileStore;
use casemate_linux::private_file::{self, OthersAccess};
use casemate_linux::process::SystemRng;
use casemate_linux::{FormerState, StateKeeper, StoreWaker, sandbox};
use std::env;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Variable with the directory of the credentials of a service (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Name of the credential with the wrapping key.
pub(super) const CREDENTIAL: &str = "casemate-store-key";

/// The keeper of the SAs, and those of a former run.
pub(super) struct OpenedStore {
    pub(super) keeper: StateKeeper,
    pub(super) former: FormerState,
}

impl OpenedStore {
    /// Opens the store that the arguments name, if they name one, and claims its contents. A dry run opens
    /// none.
    pub(super) fn open(
        args: &RunArgs,
        providers: &[&'static dyn Provider],
        rng: &mut SystemRng,
    ) -> Result<Option<Self>, Failure> {
        let Some(path) = args.store.as_deref().filter(|_| !args.dry_run) else { return Ok(None) };
        let failed = |error: String| Failure::failed(format!("--store: {error}"));
        let key = wrapping_key(args, path, rng).map_err(failed)?;
        let wrapping = WrappingKey::new(&key, &Providers(providers));
        let wrapping = WrappingKeys::new(wrapping.map_err(|error| failed(error.to_string()))?, None);
        let waker = StoreWaker::new().map_err(|error| failed(error.to_string()))?;
        let wake = waker.clone();
        let restrict = || sandbox::drop_capabilities().map_err(io::Error::other);
        let store = FileStore::open(path, restrict, move || wake.wake());
        let store = store.map_err(|error| failed(error.to_string()))?;
        let started = StateKeeper::start(Box::new(store), waker, wrapping, providers, &args.tun, rng);
        let (keeper, former) = started.map_err(|error| failed(format!("{}: {error}", path.display())))?;
        Ok(Some(Self { keeper, former }))
    }
}

/// The wrapping key: the file of `--store-key`, or the credential of the service, or a file beside the store,
/// which is made if it does not exist.
fn wrapping_key(args: &RunArgs, store: &Path, rng: &mut SystemRng) -> Result<SecretBytes, String> {
    if let Some(path) = &args.store_key {
        return read_key(path)?.ok_or_else(|| {
            format!(
                "{}: no such file: a file with {WRAPPING_KEY_LEN} random bytes was expected",
                path.display()
            )
        });
    }
    if let Some(key) = credential_key()? {
        return Ok(key);
    }
    let path = private_file::with_suffix(store, ".key");
    match read_key(&path)? {
        Some(key) => Ok(key),
        None => create_key(&path, rng).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// The key in the credential of the service; `None` without such a credential.
pub(super) fn credential_key() -> Result<Option<SecretBytes>, String> {
    let path = env::var_os(CREDENTIALS).map(|directory| Path::new(&directory).join(CREDENTIAL));
    path.as_deref().map(read_key).transpose().map(Option::flatten)
}

/// The key in a file, which no other user may read; `None` if there is no file.
pub(super) fn read_key(path: &Path) -> Result<Option<SecretBytes>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = match private_file::open(path, File::options().read(true), OthersAccess::None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut key = Zeroizing::new(Vec::with_capacity(WRAPPING_KEY_LEN + 1));
    let most = u64::try_from(WRAPPING_KEY_LEN + 1).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut key).map_err(failed)?;
    if key.len() != WRAPPING_KEY_LEN {
        return Err(format!(
            "{}: a key of exactly {WRAPPING_KEY_LEN} bytes was expected, for example from \
             `head -c {WRAPPING_KEY_LEN} /dev/urandom`",
            path.display()
        ));
    }
    Ok(Some(SecretBytes::new(&key)))
}

fn create_key(path: &Path, rng: &mut SystemRng) -> io::Result<SecretBytes> {
    let mut key = Zeroizing::new([0; WRAPPING_KEY_LEN]);
    rng.secret(&mut *key);
    let mut file =
        private_file::open(path, File::options().write(true).create_new(true), OthersAccess::None)?;
    file.write_all(&*key)?;
    file.sync_all()?;
    Ok(SecretBytes::new(&*key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_must_have_its_length() {
        let scratch = TempDir::new("store-key").unwrap();
        let path = scratch.file("key");
        assert_eq!(read_key(&path), Ok(None));
        let made = create_key(&path, &mut SystemRng::new().unwrap()).unwrap();
        assert_eq!(read_key(&path), Ok(Some(made)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for len in [0, WRAPPING_KEY_LEN - 1, WRAPPING_KEY_LEN + 1, 4_096] {
            fs::write(&path, vec![7; len]).unwrap();
            assert!(read_key(&path).unwrap_err().contains("exactly 32 bytes was expected"), "{len}");
        }
        fs::write(&path, [7; WRAPPING_KEY_LEN]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_key(&path).unwrap_err().contains("0600 was expected"));
    }
}
