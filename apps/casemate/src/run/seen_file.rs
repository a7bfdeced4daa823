//! The file with what this node has seen of the cluster of its cell: with it, a node notices after a restart
//! that the cluster was set back or replaced, and does not use its contents.
//!
//! ```text
//! casemate cluster of a cell 1
//! cluster 14841639068965178418 revision 1234
//! ```
//! A thread writes the file, because the event loop must not wait for a disk.

use casemate_etcd::Seen;
use casemate_linux::private_file;
use casemate_linux::sandbox;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// First line of the file.
const FIRST_LINE: &str = "casemate cluster of a cell 1";
/// Maximum size of the file in bytes.
const MAX_FILE: u64 = 4_096;
/// Shortest time between two writes.
const INTERVAL: Duration = Duration::from_secs(60);

/// The file with what was seen of a cluster, and the thread that writes it.
#[derive(Debug)]
pub struct SeenFile {
    path: PathBuf,
    /// The state that the file has, or gets from the thread.
    written: Option<Seen>,
    /// Time of the last write.
    written_at: Option<Instant>,
    /// The last state that was noted.
    noted: Option<Seen>,
    /// `None` once the file ends.
    states: Option<SyncSender<Seen>>,
    thread: Option<JoinHandle<()>>,
    /// Why the file was not written.
    problem: Arc<Mutex<Option<String>>>,
}

impl SeenFile {
    /// Opens the file of a node in `directory` and starts its thread, which has no capabilities. Returns what
    /// an earlier process has seen, too; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, is malformed, or if other users have access.
    pub fn open(directory: &Path, cell: &str, node: &str) -> Result<(Self, Option<Seen>), String> {
        // Neither name contains an `@`.
        let path = directory.join(format!("cell-{cell}@{node}.seen"));
        let at = |why: String| format!("{}: {why}", path.display());
        let text = private_file::read_text(&path, MAX_FILE).map_err(|error| at(error.to_string()))?;
        let known = text.as_deref().map(parse).transpose().map_err(at)?;
        let (states, new_states) = sync_channel(1);
        let (problem, of_thread) = (Arc::default(), path.clone());
        let problem_of_thread = Arc::clone(&problem);
        let (entered, result) = sync_channel(1);
        let run = move || {
            let restricted = sandbox::drop_capabilities();
            let may_run = restricted.is_ok();
            // The caller waits for it.
            let _ = entered.send(restricted);
            if may_run {
                write_states(&of_thread, &new_states, &problem_of_thread);
            }
        };
        let thread = thread::Builder::new().name("cell seen".into()).spawn(run);
        let thread = thread.map_err(|error| at(error.to_string()))?;
        result.recv().map_err(|error| at(error.to_string()))?.map_err(|error| at(error.to_string()))?;
        let file = Self {
            written: known,
            written_at: None,
            noted: known,
            states: Some(states),
            thread: Some(thread),
            problem,
            path,
        };
        Ok((file, known))
    }

    /// Path of the file. To accept another cluster, or one that was restored from a backup, the administrator
    /// removes it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes what the store has seen. The file is written if the revision has grown, at most once a minute
    /// and at the end. Does not wait for the disk.
    pub fn note(&mut self, seen: Seen) {
        self.note_at(seen, Instant::now());
    }

    fn note_at(&mut self, seen: Seen, now: Instant) {
        let is_later = |known: Seen| seen.cluster == known.cluster && seen.revision > known.revision;
        if !self.noted.is_none_or(is_later) {
            return;
        }
        self.noted = Some(seen);
        let is_due = self.written_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        // If the thread has not taken the last state, a later call tries again.
        if is_due && self.states.as_ref().is_some_and(|states| states.try_send(seen).is_ok()) {
            (self.written, self.written_at) = (Some(seen), Some(now));
        }
    }

    /// Returns why the file was not written, once.
    pub fn take_problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for SeenFile {
    /// Waits until the last state is written.
    fn drop(&mut self) {
        if let (Some(states), Some(noted)) = (self.states.take(), self.noted)
            && self.written != self.noted
        {
            // Fails if the thread has ended.
            let _ = states.send(noted);
        }
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

fn write_states(path: &Path, states: &Receiver<Seen>, problem: &Mutex<Option<String>>) {
    while let Ok(seen) = states.recv() {
        if let Err(error) = private_file::replace(path, to_text(seen).as_bytes()) {
            let why = format!("{}: {error}", path.display());
            *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }
}

fn to_text(seen: Seen) -> String {
    format!("{FIRST_LINE}\ncluster {} revision {}\n", seen.cluster, seen.revision)
}

fn parse(text: &str) -> Result<Seen, String> {
    let numbers = || {
        let numbers = text.strip_prefix(FIRST_LINE)?.strip_prefix("\ncluster ")?.strip_suffix('\n')?;
        let (cluster, revision) = numbers.split_once(" revision ")?;
        Some(Seen { cluster: cluster.parse().ok()?, revision: revision.parse().ok()? })
    };
    let seen = numbers().filter(|seen| to_text(*seen) == text);
    seen.ok_or_else(|| {
        format!(
            "`{FIRST_LINE}` and a line with a cluster and its revision were expected; without the file, this \
             node accepts the cluster as it is"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(directory: &TempDir) -> (SeenFile, Option<Seen>) {
        SeenFile::open(directory.path(), "berlin", "gw1").unwrap()
    }

    fn seen(revision: u64) -> Seen {
        Seen { cluster: u64::MAX, revision }
    }

    /// Revision in the file once the thread has written it.
    fn written(file: SeenFile) -> Option<u64> {
        let path = file.path().to_owned();
        drop(file);
        private_file::read_text(&path, MAX_FILE).unwrap().map(|text| parse(&text).unwrap().revision)
    }

    #[test]
    fn the_next_process_knows_what_was_seen() {
        let dir = TempDir::new("seen").unwrap();
        let (mut file, known) = open(&dir);
        assert_eq!(known, None);
        file.note(seen(7));
        file.note(seen(9));
        let path = file.path().to_owned();
        assert!(path.ends_with("cell-berlin@gw1.seen"), "{path:?}");
        assert_eq!(written(file), Some(9), "the last state is written at the end");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (file, known) = open(&dir);
        assert_eq!(known, Some(seen(9)));
        assert_eq!(SeenFile::open(dir.path(), "berlin", "gw2").unwrap().1, None, "another node");
        drop(file);
    }

    /// The writes are seen by what is left for the end.
    #[test]
    fn a_state_is_written_once_a_minute_if_it_has_grown() {
        let dir = TempDir::new("seen").unwrap();
        let (mut file, _) = open(&dir);
        let start = Instant::now();
        let note = |file: &mut SeenFile, revision, at: Duration| {
            file.note_at(seen(revision), start + at);
            // The thread takes a state before the next one comes.
            casemate_test_support::eventually("the thread has written", || {
                let text = private_file::read_text(file.path(), MAX_FILE).unwrap()?;
                (Some(parse(&text).unwrap()) == file.written).then_some(())
            });
            file.written.unwrap().revision
        };
        assert_eq!(note(&mut file, 5, SECOND), 5, "at once");
        assert_eq!(note(&mut file, 6, 2 * SECOND), 5);
        assert_eq!(note(&mut file, 7, 60 * SECOND), 5, "less than a minute");
        assert_eq!(note(&mut file, 7, 61 * SECOND), 5, "it has not grown");
        assert_eq!(note(&mut file, 8, 61 * SECOND), 8);
        assert_eq!(note(&mut file, 4, 300 * SECOND), 8, "an older revision");
        file.note_at(Seen { cluster: 1, revision: 100 }, start + 400 * SECOND);
        assert_eq!(file.written, Some(seen(8)), "another cluster");
        assert_eq!(written(file), Some(8));
    }

    #[test]
    fn a_malformed_file_is_refused() {
        let dir = TempDir::new("seen").unwrap();
        let (mut file, _) = open(&dir);
        file.note(seen(3));
        let path = file.path().to_owned();
        drop(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "casemate cluster of a cell 1\ncluster 18446744073709551615 revision 3\n");
        let long = format!("{text}{}", " ".repeat(5_000));
        for wrong in
            ["", "x", &text[..text.len() - 1], &text.replace('3', "-3"), &text.replace('3', "03"), &long]
        {
            fs::write(&path, wrong).unwrap();
            let why = SeenFile::open(dir.path(), "berlin", "gw1").unwrap_err();
            assert!(why.contains("gw1.seen: `casemate cluster of a cell 1` and a line with"), "{why}");
        }
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(SeenFile::open(dir.path(), "berlin", "gw1").unwrap_err().contains("0600 was expected"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_reported_once() {
        let dir = TempDir::new("seen").unwrap();
        let inner = dir.file("inner");
        fs::create_dir(&inner).unwrap();
        let (mut file, _) = SeenFile::open(&inner, "berlin", "gw1").unwrap();
        fs::remove_dir(&inner).unwrap();
        file.note(seen(1));
        let why = casemate_test_support::eventually("the problem", || file.take_problem());
        assert!(why.contains("gw1.seen: No such file or directory"), "{why}");
        assert_eq!(file.take_problem(), None);
    }
}
