//! The thread of a module. PKCS #11 functions block until a token is done, and a module is initialized once
//! in a process, so all keys of a module share one thread.

use crate::TokenError;
use crate::login::Tokens;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Called at the start of the thread of a module, before the module is loaded. An error ends the thread.
pub type ThreadEntry = fn() -> Result<(), String>;

/// Maximum number of operations that wait for a module.
const MAX_WAITING: usize = 64;
/// Longest wait for an operation whose caller blocks.
const TIMEOUT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut Tokens) + Send>;

/// The threads of this process, by the path of their module. They run until the process ends: modules do not
/// expect to be unloaded.
static WORKERS: Mutex<BTreeMap<PathBuf, SyncSender<Job>>> = Mutex::new(BTreeMap::new());

/// Runs `job` on the thread of a module and returns its result, or an error after 10 seconds.
pub(crate) fn call<T: Send + 'static>(
    module: &Path,
    entry: ThreadEntry,
    job: impl FnOnce(&mut Tokens) -> Result<T, TokenError> + Send + 'static,
) -> Result<T, TokenError> {
    let (reply, result) = sync_channel(1);
    submit(module, entry, move |tokens| {
        // The caller may have given up.
        let _ = reply.send(job(tokens));
    })?;
    match result.recv_timeout(TIMEOUT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(TokenError::Timeout),
        Err(RecvTimeoutError::Disconnected) => Err(TokenError::Module("its thread has ended".into())),
    }
}

/// Has `job` run on the thread of a module.
pub(crate) fn submit(
    module: &Path,
    entry: ThreadEntry,
    job: impl FnOnce(&mut Tokens) + Send + 'static,
) -> Result<(), TokenError> {
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !workers.contains_key(module) {
        let started = start(module, entry)?;
        workers.insert(module.to_owned(), started);
    }
    let sent = workers.get(module).map(|worker| worker.try_send(Box::new(job)));
    match sent {
        Some(Ok(())) => Ok(()),
        Some(Err(TrySendError::Full(_))) => Err(TokenError::Busy),
        Some(Err(TrySendError::Disconnected(_))) | None => {
            // A module that panics ends its thread. Another one starts with the next operation.
            workers.remove(module);
            Err(TokenError::Module("its thread has ended".into()))
        }
    }
}

fn start(module: &Path, entry: ThreadEntry) -> Result<SyncSender<Job>, TokenError> {
    let (sender, jobs) = sync_channel::<Job>(MAX_WAITING);
    let module = module.to_owned();
    let run = move || {
        let mut tokens = Tokens::new(module, entry());
        jobs.iter().for_each(|job| job(&mut tokens));
    };
    let started = thread::Builder::new().name("pkcs11".into()).spawn(run);
    started.map_err(|error| TokenError::Module(error.to_string()))?;
    Ok(sender)
}
