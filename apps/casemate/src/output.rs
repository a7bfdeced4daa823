//! Standard error and standard output that never block the program.
//!
//! A full pipe blocks write(2), so a separate thread writes from a bounded queue. Lines that do not fit
//! into the queue are counted, and the count is written when there is room again. The file descriptors
//! are not made non-blocking, because other processes, such as a shell, share them.

use crate::failure::Failure;
use casemate_linux::sandbox;
use casemate_linux::unix_socket::{self, PollFd};
use casemate_wire::invariant::OrBroken;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;
use std::{panic, thread};

/// Capacity of the queue, in lines.
const QUEUE: usize = 1_024;
/// Maximum time to wait for the queue to be written at the end of the program.
const FLUSH: Duration = Duration::from_secs(1);
/// Timeout of one wait for a descriptor that another process has made non-blocking.
const RETRY: Duration = Duration::from_secs(1);

/// A queue of lines and the thread that writes them. Dropping it waits up to one second for the remaining
/// lines.
#[derive(Debug)]
pub struct Output {
    queue: SyncSender<Item>,
    lost: u64,
    /// Lines that were lost since the start.
    lost_in_all: u64,
    /// Formats a note about lost lines.
    note: fn(&str) -> String,
}

#[derive(Debug)]
enum Item {
    /// Text with its line breaks.
    Text(String),
    /// Marker: the thread drops the sender when everything before it is written.
    Flush(Sender<()>),
}

impl Output {
    /// Writes to standard error.
    pub fn standard_error() -> io::Result<Self> {
        Self::start(io::stderr().as_fd().try_clone_to_owned()?)
    }

    /// Writes to standard output.
    pub fn standard_output() -> io::Result<Self> {
        Self::start(io::stdout().as_fd().try_clone_to_owned()?)
    }

    /// Writes to `file`. The thread has no capabilities.
    pub fn start(file: OwnedFd) -> io::Result<Self> {
        let (queue, items) = sync_channel(QUEUE);
        let (started, has_started) = channel();
        let work = move || {
            let dropped = sandbox::drop_capabilities();
            let is_confined = dropped.is_ok();
            // Sending fails only if `start` has panicked.
            drop(started.send(dropped));
            if is_confined {
                write_all(&File::from(file), &items);
            }
        };
        thread::Builder::new().name("output".into()).spawn(work)?;
        has_started.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(Self { queue, lost: 0, lost_in_all: 0, note: |text| format!("casemate: {text}") })
    }

    /// Sets the format of notes about lost lines, which is that of the other lines.
    #[must_use]
    pub(crate) fn with_notes_as(mut self, note: fn(&str) -> String) -> Self {
        self.note = note;
        self
    }

    /// Queues a line, or counts it as lost if the queue is full. Never blocks.
    pub fn write(&mut self, line: &str) {
        self.report_lost();
        if self.lost > 0 || !self.try_queue(format!("{line}\n")) {
            self.lost = self.lost.saturating_add(1);
            self.lost_in_all = self.lost_in_all.saturating_add(1);
        }
    }

    /// Queues the count of lost lines if there are any and the queue has room.
    pub fn report_lost(&mut self) {
        if self.lost == 0 {
            return;
        }
        let lost = counted(self.lost, "line was", "lines were");
        let note = (self.note)(&format!("{lost} lost here: the output was not read in time"));
        if self.try_queue(format!("{note}\n")) {
            self.lost = 0;
        }
    }

    /// Number of lines that were lost since the start.
    pub const fn lost_lines(&self) -> u64 {
        self.lost_in_all
    }

    fn try_queue(&self, text: String) -> bool {
        self.queue.try_send(Item::Text(text)).is_ok()
    }

    /// Waits until everything is written, but at most one second.
    pub fn flush(&mut self) {
        self.report_lost();
        let (done, is_done) = channel();
        match self.queue.try_send(Item::Flush(done)) {
            // The thread drops the sender, which ends the wait.
            Ok(()) => drop(is_done.recv_timeout(FLUSH)),
            // The reader has not read for a long time and will not within a second.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes text to standard error and waits at most one second for it.
pub fn show_error(text: &dyn Display) {
    match Output::standard_error() {
        Ok(mut output) => output.write(&text.to_string()),
        // Without a thread, a blocking write is better than no message. An error has nowhere to go.
        Err(_) => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Writes a warning to standard error.
pub fn warn(warning: &dyn Display) {
    // A command does not fail because its warnings cannot be written.
    drop(writeln!(io::stderr(), "casemate: warning: {warning}"));
}

/// Installs a panic hook that reports panics with [`show_error`]. The hook of the standard library blocks
/// until standard error takes the message, and a thread that blocks there never ends.
pub fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("without a name");
        show_error(&Failure::failed(format_args!("thread {thread}: {info}")));
    }));
}

/// Writes a line to standard output and waits at most one second for it.
pub fn show(line: &str) -> io::Result<()> {
    Output::standard_output().map(|mut output| output.write(line))
}

/// A count with its noun.
pub fn counted<C: Display + PartialEq + From<u8>>(count: C, singular: &str, plural: &str) -> String {
    let noun = if count == C::from(1) { singular } else { plural };
    format!("{count} {noun}")
}

/// Writes text to standard output. A reader that closes its end, as `| head` does, wants no more text, which
/// is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_if_open(text).map(drop)
}

/// Like [`print()`]. Returns false if the reader has closed its end.
pub fn print_if_open(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("standard output: {error}"))),
    }
}

fn write_all(file: &File, items: &Receiver<Item>) {
    for item in items {
        match item {
            // An error is ignored: a FIFO may have another reader for the next line.
            Item::Text(text) => drop(write(file, text.as_bytes())),
            Item::Flush(done) => drop(done),
        }
    }
}

fn write(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).or_broken_default("no more is written than was given"),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                unix_socket::poll(&mut [PollFd::new(file.as_fd(), false, true)], RETRY)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// More lines than a pipe and the queue hold.
    const LINES: usize = 4 * QUEUE;

    #[test]
    fn one_is_singular() {
        let lines = [0u64, 1, 2].map(|count| counted(count, "line was", "lines were"));
        assert_eq!(lines, ["0 lines were", "1 line was", "2 lines were"]);
    }

    #[test]
    fn unread_pipe_does_not_block_and_lost_lines_are_counted() {
        let (reader, writer) = io::pipe().unwrap();
        let mut output = Output::start(writer.into()).unwrap();
        let start = Instant::now();
        (0..LINES).for_each(|n| output.write(&format!("{n:064}")));
        output.flush();
        assert!(start.elapsed() < Duration::from_secs(20), "the output waited for the reader");
        // The reader resumes.
        let reads = thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect());
        while output.lost > 0 {
            assert!(start.elapsed() < Duration::from_secs(40), "the queue never has room again");
            thread::sleep(Duration::from_millis(10));
            output.report_lost();
        }
        while !output.try_queue("the last line\n".into()) {
            assert!(start.elapsed() < Duration::from_secs(60), "the queue never has room again");
            thread::sleep(Duration::from_millis(10));
        }
        drop(output);
        let lines: Vec<String> = reads.join().unwrap();
        let (last, lines) = lines.split_last().unwrap();
        assert_eq!(last, "the last line");
        // The lines are in order, and each gap contains the count of missing lines.
        let (mut next, mut gaps) = (0, 0);
        for line in lines {
            match line.strip_prefix("casemate: ").and_then(|line| line.split_once(" line")) {
                Some((lost, _)) => (next, gaps) = (next + lost.parse::<usize>().unwrap(), gaps + 1),
                None => {
                    assert_eq!(*line, format!("{next:064}"));
                    next += 1;
                }
            }
        }
        assert_eq!(next, LINES);
        assert!(gaps > 0);
    }

    #[test]
    #[ignore = "started as a process by panic_ends_its_thread_when_stderr_is_not_read"]
    fn panics() {
        report_panics();
        assert!(thread::spawn(|| panic!("on purpose")).join().is_err());
    }

    #[test]
    fn panic_ends_its_thread_when_stderr_is_not_read() {
        for is_full in [true, false] {
            let (reader, writer) = io::pipe().unwrap();
            if is_full {
                let mut writer = writer.try_clone().unwrap();
                let filled = thread::spawn(move || while writer.write(&[b'.'; 4_096]).is_ok() {});
                thread::sleep(Duration::from_millis(500));
                assert!(!filled.is_finished(), "the pipe is not full");
            }
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "output::tests::panics", "--nocapture"]);
            let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
            drop(command);
            let start = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if start.elapsed() > Duration::from_secs(20) {
                    child.kill().unwrap();
                    panic!("the process does not end");
                }
                thread::sleep(Duration::from_millis(10));
            };
            assert!(status.success());
            if !is_full {
                let stderr = io::read_to_string(reader).unwrap();
                assert!(stderr.starts_with("casemate: thread without a name: panicked at "), "{stderr}");
                assert!(stderr.contains("casemate: on purpose"), "{stderr}");
            }
        }
    }

    #[test]
    fn drop_writes_everything() {
        let (reader, writer) = io::pipe().unwrap();
        let mut output = Output::start(writer.into()).unwrap();
        (0..100).for_each(|n| output.write(&n.to_string()));
        drop(output);
        let lines: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
        assert_eq!(lines, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
