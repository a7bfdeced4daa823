//! Reads the configuration again in a thread of its own: a lookup of a host may take long, and packets, IKE and
//! other clients do not wait for it. What it has read is applied by the loop.

use super::config::{Loaded, Source};
use super::control::Bell;
use casemate_linux::confine;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

/// A configuration that is being read, or the reason why it cannot be.
pub(super) struct Loading(Receiver<Result<Loaded, String>>);

impl Loading {
    /// Begins to read; `bell` wakes the loop when that is done.
    pub(super) fn start(source: &Arc<Source>, bell: Bell) -> Self {
        let (sender, result) = channel();
        let source = source.clone();
        let work = move || {
            // Rung when the sender is gone, also after a panic.
            let _bell = bell;
            let sender = sender;
            let loaded = confine::renounce().map_err(|error| error.to_string());
            let loaded = loaded.and_then(|()| source.load().map_err(|failure| failure.reason().to_owned()));
            // Nobody waits for it at the end of the program.
            let _ = sender.send(loaded);
        };
        // Without a thread the channel is closed.
        let _ = thread::Builder::new().name("configuration".into()).spawn(work);
        Self(result)
    }

    /// What was read; `None` while it is being read.
    pub(super) fn result(&self) -> Option<Result<Loaded, String>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err("the thread that reads the configuration failed".into()))
            }
            Ok(result) => Some(result),
        }
    }
}
