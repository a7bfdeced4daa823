//! The store of `--store`: IKE SAs that outlive the process (docs/decisions/0140-cells.md).

use super::RunArgs;
use super::wrapping_keys::{
    CREDENTIAL, KeyBytes, KeyForm, create_key, credential_key, existing_key, read_key, second_key,
};
use crate::failure::Failure;
use crate::tokens::TokenKeys;
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
    /// none, and reads the wrapping keys only if a token decrypts them.
    pub(super) fn open(
        args: &RunArgs,
        tokens: &TokenKeys,
        providers: &[&'static dyn Provider],
        rng: &mut SystemRng,
    ) -> Result<Option<Self>, Failure> {
        let uses_tokens = args.store_key_token.is_some() || args.second_store_key_token.is_some();
        let Some(path) = args.store.as_deref().filter(|_| !args.dry_run || uses_tokens) else {
            return Ok(None);
        };
        let failed = |error: String| Failure::failed(format!("--store: {error}"));
        let keys = key_bytes(args, tokens, path, rng)?;
        if args.dry_run {
            return Ok(None);
        }
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

/// The wrapping keys.
fn key_bytes(
    args: &RunArgs,
    tokens: &TokenKeys,
    store: &Path,
    rng: &mut SystemRng,
) -> Result<KeyBytes, Failure> {
    let failed = |option: &str, error: String| Failure::failed(format!("{option}: {error}"));
    let first = first_key(args, KeyForm::new(tokens, args.store_key_token.as_ref()), store, rng);
    let first = first.map_err(|error| failed("--store", error))?;
    let form = KeyForm::new(tokens, args.second_store_key_token.as_ref());
    let second = second_key(args.second_store_key.as_deref(), form);
    let keys = second.and_then(|second| KeyBytes::new(first, second));
    keys.map_err(|error| failed("--second-store-key", error))
}

/// The wrapping key: the file of `--store-key`, or the credential of the service, or a file beside the store,
/// which is made if it does not exist, unless a token decrypts it.
fn first_key(
    args: &RunArgs,
    form: KeyForm<'_>,
    store: &Path,
    rng: &mut SystemRng,
) -> Result<SecretBytes, String> {
    if let Some(path) = &args.store_key {
        return existing_key(path, form);
    }
    if let Some(key) = credential_key(CREDENTIAL, form)? {
        return Ok(key);
    }
    let path = private_file::with_suffix(store, ".key");
    if let KeyForm::Encrypted(..) = form {
        return existing_key(&path, form);
    }
    match read_key(&path, form)? {
        Some(key) => Ok(key),
        None => create_key(&path, rng).map_err(|error| format!("{}: {error}", path.display())),
    }
}
