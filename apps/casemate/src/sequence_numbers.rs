//! The sequence numbers of EAP-AKA (TS 33.102 annex C), which a file keeps across restarts.
//!
//! The numbers are changed in memory, and a thread writes them to the file, because the event loop must not
//! wait for it. If the machine stops between the two, the home network needs a resynchronisation, and a USIM
//! may accept the last vector again.

use casemate_eap::{NetworkSequence, UsimSequence};
use casemate_linux::private_file;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// First line of the file.
const FIRST_LINE: &str = "casemate EAP-AKA sequence numbers 1";
/// Maximum size of the file in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Number of SEQ of a USIM.
const USIM_NUMBERS: usize = 32;

/// The numbers of all subscribers, by the name of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Numbers {
    network: BTreeMap<Vec<u8>, NetworkSequence>,
    usim: BTreeMap<Vec<u8>, UsimSequence>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    numbers: Mutex<Numbers>,
    /// Why the file was not written.
    problem: Mutex<Option<String>>,
}

/// The sequence numbers of a run, and the thread that writes them.
#[derive(Default)]
pub(crate) struct SequenceStore {
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

struct Writer {
    /// `None` once the store ends.
    changed: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SequenceStore {
    /// Reads the file, which need not exist, and starts the thread.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let at = |why: String| format!("{}: {why}", path.display());
        private_file::check_parent(private_file::directory_of(path))
            .map_err(|error| at(error.to_string()))?;
        let numbers = private_file::read_text(path, MAX_FILE).map_err(|error| at(error.to_string()))?;
        let numbers = numbers.map_or(Ok(Numbers::default()), |text| Numbers::parse(&text)).map_err(at)?;
        // Fails now rather than after the first authentication.
        private_file::replace(path, numbers.to_text().as_bytes()).map_err(|error| at(error.to_string()))?;
        let shared = Arc::new(Shared { numbers: Mutex::new(numbers), problem: Mutex::default() });
        let (changed, changes) = sync_channel(1);
        let (of_thread, path) = (Arc::clone(&shared), path.to_path_buf());
        let thread = std::thread::Builder::new().name("aka".into());
        let thread = thread.spawn(move || run(&of_thread, &path, &changes)).map_err(|e| at(e.to_string()))?;
        Ok(Self { shared, writer: Some(Writer { changed: Some(changed), thread: Some(thread) }) })
    }

    /// Changes the number of the home network for the subscriber with keys of this name.
    pub(crate) fn change_network(&self, name: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        change(lock(&self.shared.numbers).network.entry(name.into()).or_default());
        self.wake_writer();
    }

    /// Changes the numbers of the USIM of the subscriber with keys of this name.
    pub(crate) fn change_usim(&self, name: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        change(lock(&self.shared.numbers).usim.entry(name.into()).or_insert(UsimSequence::NEW));
        self.wake_writer();
    }

    fn wake_writer(&self) {
        if let Some(changed) = self.writer.as_ref().and_then(|writer| writer.changed.as_ref()) {
            // If the channel is full, the thread writes this change with the former one.
            let _ = changed.try_send(());
        }
    }

    /// Returns why the file was not written, once.
    pub(crate) fn take_problem(&self) -> Option<String> {
        lock(&self.shared.problem).take()
    }
}

impl Drop for SequenceStore {
    /// Waits until the last change is written.
    fn drop(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        writer.changed = None;
        if let Some(thread) = writer.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, path: &Path, changes: &Receiver<()>) {
    while changes.recv().is_ok() {
        let text = lock(&shared.numbers).to_text();
        if let Err(error) = private_file::replace(path, text.as_bytes()) {
            *lock(&shared.problem) = Some(format!("{}: {error}", path.display()));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (name, network) in &self.network {
            let _ = writeln!(text, "network {} {}", hex(name), network.sqn());
        }
        for (name, usim) in &self.usim {
            let seqs: Vec<String> = usim.seqs().iter().map(u64::to_string).collect();
            let _ = writeln!(text, "usim {} {}", hex(name), seqs.join(" "));
        }
        text
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("the first line was expected to be `{FIRST_LINE}`"));
        }
        let mut numbers = Self::default();
        for (line, number) in lines.zip(2_usize..) {
            numbers.add(line).ok_or_else(|| {
                format!("line {number}: `network` or `usim` with a name and numbers was expected")
            })?;
        }
        Ok(numbers)
    }

    /// Adds the numbers of a line; `None` if it is malformed or repeats a name.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (kind, name) = (words.next()?, from_hex(words.next()?)?);
        let seqs: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        let is_new = match kind {
            "network" => {
                let [sqn] = seqs[..] else { return None };
                self.network.insert(name, NetworkSequence::new(sqn)).is_none()
            }
            "usim" => {
                let seqs = <[u64; USIM_NUMBERS]>::try_from(seqs).ok()?;
                self.usim.insert(name, UsimSequence::new(seqs)?).is_none()
            }
            _ => return None,
        };
        is_new.then_some(())
    }
}

/// A name in hexadecimal digits; `-` if it is empty.
fn hex(name: &[u8]) -> String {
    if name.is_empty() { "-".into() } else { name.iter().map(|byte| format!("{byte:02x}")).collect() }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if digits == "-" {
        return Some(Vec::new());
    }
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() && !pairs.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs;

    fn change(store: &SequenceStore, sqn: u64) {
        store.change_network(b"carol", &mut |network| *network = NetworkSequence::new(sqn));
        let mut seqs = [0; USIM_NUMBERS];
        seqs[1] = sqn;
        store.change_usim(b"", &mut |usim| *usim = UsimSequence::new(seqs).unwrap());
    }

    #[test]
    fn numbers_outlive_the_store() {
        let directory = TempDir::new("sequence-numbers").unwrap();
        let path = directory.file("numbers");
        for (before, after) in [(0, 7), (7, 65), (65, 66)] {
            let store = SequenceStore::open(&path).unwrap();
            store.change_network(b"carol", &mut |network| assert_eq!(network.sqn(), before));
            store.change_usim(b"", &mut |usim| assert_eq!(usim.seqs()[1], before));
            change(&store, after);
            assert_eq!(store.take_problem(), None);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("network 6361726f6c 66\nusim - 0 66 0"), "{text}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let directory = TempDir::new("damaged-sequence-numbers").unwrap();
        let path = directory.file("numbers");
        drop(SequenceStore::open(&path).unwrap());
        for lines in [
            "network 00",
            "network 00 x",
            "network 0 1",
            "network 00 1 2",
            "usim 00 1",
            "other 00 1",
            "network 00 1\nnetwork 00 2",
            "",
            "\n",
        ] {
            fs::write(&path, format!("{FIRST_LINE}\n{lines}\n")).unwrap();
            let error = SequenceStore::open(&path).err();
            assert!(error.as_ref().is_some_and(|error| error.contains("line ")), "{lines:?} {error:?}");
        }
        fs::write(&path, "another file\n").unwrap();
        assert!(SequenceStore::open(&path).err().is_some_and(|error| error.contains("first line")));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_reported() {
        let directory = TempDir::new("lost-sequence-numbers").unwrap();
        let path = directory.file("numbers");
        let store = SequenceStore::open(&path).unwrap();
        // The temporary file can neither be removed nor created.
        fs::create_dir(directory.file("numbers.new")).unwrap();
        change(&store, 1);
        let shared = Arc::clone(&store.shared);
        drop(store);
        let problem = lock(&shared.problem).take();
        assert!(problem.is_some_and(|problem| problem.contains("numbers")));
    }
}
