//! Host names in loaded sections. They are resolved by a thread, because the event loop must not wait.
//!
//! A section is read once to find its names and again when they are resolved.

use crate::control::Waker;
use crate::swanctl::{Environment, SystemEnvironment};
use casemate_linux::sandbox;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use zeroize::Zeroizing;

/// Addresses of a host name, or why there are none.
type Resolved = Result<Vec<IpAddr>, String>;

/// The resolver of loaded sections.
#[derive(Default)]
pub(super) struct Names {
    known: BTreeMap<String, Resolved>,
    /// Names that were asked for and are not known.
    missing: RefCell<BTreeSet<String>>,
    results: Option<Receiver<BTreeMap<String, Resolved>>>,
}

impl Names {
    /// Whether names were asked for that are not known.
    pub(super) fn has_missing(&self) -> bool {
        !self.missing.borrow().is_empty()
    }

    /// Starts a thread for the missing names, unless one is running. `waker` wakes the event loop at its end.
    pub(super) fn start(&mut self, waker: io::Result<Waker>) -> io::Result<()> {
        if self.results.is_some() {
            return Ok(());
        }
        let (sender, results) = channel();
        let names = self.missing.take();
        let waker = waker?;
        let work = move || {
            // Dropped after the sender, also after a panic, to wake the event loop.
            let _waker = waker;
            let sender = sender;
            let resolve = |name: String| {
                let resolved = SystemEnvironment.addresses(&name).map_err(|error| error.to_string());
                (name, resolved)
            };
            if sandbox::drop_capabilities().is_ok() {
                // At the end of the program there is no receiver.
                let _ = sender.send(names.into_iter().map(resolve).collect());
            }
        };
        thread::Builder::new().name("names".into()).spawn(work)?;
        self.results = Some(results);
        Ok(())
    }

    /// Takes the results of the thread. Returns whether it has ended, so that sections can be read again.
    pub(super) fn finish(&mut self) -> bool {
        let Some(results) = &self.results else { return false };
        match results.try_recv() {
            Err(TryRecvError::Empty) => return false,
            Ok(resolved) => self.known.extend(resolved),
            Err(TryRecvError::Disconnected) => {}
        }
        self.results = None;
        true
    }

    /// Forgets the known names: a section that is loaded later gets the addresses of that time.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.missing.take();
    }
}

impl Environment for Names {
    fn read(&self, _: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn matching(&self, _: &Path, _: &str) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self.known.get(name) {
            Some(resolved) => resolved.clone().map_err(io::Error::other),
            None => {
                self.missing.borrow_mut().insert(name.to_owned());
                Err(io::Error::other("it is not resolved yet"))
            }
        }
    }
}
