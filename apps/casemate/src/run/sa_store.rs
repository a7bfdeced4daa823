//! The store of `--store`: IKE SAs that outlive the process (docs/decisions/0140-cells.md).

use super::RunArgs;
use super::wrapping_keys::{
    CREDENTIAL, KeyBytes, SECOND_CREDENTIAL, create_key, credential_key, existing_key, read_key,
};
use crate::failure::Failure;
use casemate_crypto::{Provider, SecretBytes};
use casemate_file_store::FileStore;
use casemate_linux::private_file;
use casemate_linux::process::SystemRng;
use casemate_linux::{FormerState, StateKeeper, StoreWaker, sandbox};
use std::io;
use std::path::Path;

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
        let first = first_key(args, path, rng).map_err(failed)?;
        let second = second_key(args).and_then(|second| KeyBytes::new(first, second));
        let keys = second.map_err(|error| Failure::failed(format!("--second-store-key: {error}")))?;
        let wrapping = keys.wrapping_keys(providers).map_err(|error| failed(error.to_string()))?;
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
fn first_key(args: &RunArgs, store: &Path, rng: &mut SystemRng) -> Result<SecretBytes, String> {
    if let Some(path) = &args.store_key {
        return existing_key(path);
    }
    if let Some(key) = credential_key(CREDENTIAL)? {
        return Ok(key);
    }
    let path = private_file::with_suffix(store, ".key");
    match read_key(&path)? {
        Some(key) => Ok(key),
        None => create_key(&path, rng).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// The second wrapping key: the file of `--second-store-key`, or the credential of the service.
fn second_key(args: &RunArgs) -> Result<Option<SecretBytes>, String> {
    match &args.second_store_key {
        Some(path) => existing_key(path).map(Some),
        None => credential_key(SECOND_CREDENTIAL),
    }
}
