//! Scripts for the program `nft`, each one transaction of the kernel.
//!
//! A running instance may not start programs: its system calls are limited. Before that it starts a small
//! process, the runner, which does nothing but apply scripts that it gets through a socket. Commands that
//! end at once start `nft` themselves (module `program`).

mod program;
mod runner;

use crate::Error;
use crate::sys::Bell;
use runner::Runner;
pub use runner::serve;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The way of scripts to `nft`. Copies share it.
#[derive(Debug, Clone)]
pub struct Nft(Option<Arc<Mutex<Runner>>>);

impl Nft {
    /// This process starts `nft` itself.
    pub const fn direct() -> Self {
        Self(None)
    }

    /// A process of its own starts `nft`: this program with the argument `entry`, with which it calls [`serve`].
    /// It ends with the calling thread.
    pub fn runner(entry: &str) -> Result<Self, Error> {
        Runner::start(&[entry]).map(|runner| Self(Some(Arc::new(Mutex::new(runner)))))
    }

    /// Applies a script and waits for its end.
    pub(crate) fn run(&self, script: &str) -> Result<(), Error> {
        match &self.0 {
            None => program::run(script),
            Some(runner) => runner.lock().unwrap_or_else(PoisonError::into_inner).run(script),
        }
    }
}

/// A script at work.
#[derive(Debug)]
pub(crate) struct Job {
    result: Receiver<Result<(), Error>>,
    /// It was waited for.
    early: Option<Result<(), Error>>,
}

impl Job {
    /// Starts a script; `bell` rings at its end.
    pub(crate) fn start(nft: &Nft, script: String, bell: Arc<Bell>) -> Self {
        let (sender, result) = channel();
        let nft = nft.clone();
        let work = move || {
            // Whoever does not wait for it does not need it.
            let _ = sender.send(nft.run(&script));
            bell.ring();
        };
        // Without a thread the channel is closed, which is an error.
        let _ = thread::Builder::new().name("nft".into()).spawn(work);
        Self { result, early: None }
    }

    /// What became of it; `None` while it works.
    pub(crate) fn result(&mut self) -> Option<Result<(), Error>> {
        if self.early.is_some() {
            return self.early.take();
        }
        match self.result.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(not_started())),
            Ok(result) => Some(result),
        }
    }

    /// Waits for its end, which comes in time.
    pub(crate) fn wait(&mut self) {
        self.early = Some(self.result.recv().unwrap_or_else(|_| Err(not_started())));
    }
}

fn not_started() -> Error {
    Error::other("nft", "no thread could be started for it")
}
