//! The traffic that an instance has promised to keep off the wire in clear, in a file beside its journal.
//!
//! The guard of a dead instance says what was protected, and the kernel has it in a form that only `nft`
//! reads. So each selector that comes into the guard or leaves it is a line here. The next start of the
//! instance reads the file and keeps the promises that the configuration does not take back, until SAs are up
//! ([`Live`](crate::setup::Live)). Like the journal, the file outlives the process and not the machine.

use crate::Error;
use crate::instance::Instance;
use casemate_datapath::Direction;
use casemate_sa::{AddrRange, PortRange, Selector};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "casemate promises 1";
/// More than the largest SPD needs; what is behind it is not read.
const MAX_LEN: u64 = 64 << 20;
/// The file is written anew when it has so many lines more than there are promises.
const SLACK: usize = 4_096;

/// Packets of one direction.
pub type Promise = (Direction, Selector);

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct Promises {
    path: PathBuf,
    file: File,
    /// How many policies ask for each.
    counts: HashMap<Promise, u32>,
    lines: usize,
    /// Not written yet.
    pending: String,
    /// There were any at some time.
    is_used: bool,
}

/// What a former run of the instance had promised.
pub fn former(instance: &Instance) -> Result<Vec<Promise>, Error> {
    let path = instance.promises();
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(MAX_LEN).read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| at(&path, error))?,
    };
    let mut lines = text.lines();
    if lines.next().is_some_and(|line| line != FIRST_LINE) {
        return Err(Error::other(
            path.display().to_string(),
            "not a file of this version; `casemate cleanup` removes it",
        ));
    }
    let mut counts: HashMap<Promise, u32> = HashMap::new();
    for (comes, promise) in lines.filter_map(read_line) {
        let count = counts.entry(promise).or_default();
        *count = if comes { count.saturating_add(1) } else { count.saturating_sub(1) };
    }
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).map(|(promise, _)| promise).collect())
}

impl Promises {
    /// Puts a file with these promises in the place of the one that is there.
    pub(crate) fn start(instance: &Instance, promises: impl Iterator<Item = Promise>) -> Result<Self, Error> {
        let mut counts = HashMap::new();
        for promise in promises {
            let count: &mut u32 = counts.entry(promise).or_default();
            *count = count.saturating_add(1);
        }
        let path = instance.promises();
        let file = write_anew(&path, &counts).map_err(|error| at(&path, error))?;
        let (lines, is_used) = (counts.len(), !counts.is_empty());
        Ok(Self { path, file, counts, lines, pending: String::new(), is_used })
    }

    /// Whether there were any at some time.
    pub(crate) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// A policy that keeps packets off the wire comes.
    pub(crate) fn add(&mut self, promise: Promise) {
        let count = self.counts.entry(promise).or_default();
        *count = count.saturating_add(1);
        self.is_used = true;
        if *count == 1 {
            self.note('+', &promise);
        }
    }

    /// One goes.
    pub(crate) fn remove(&mut self, promise: &Promise) {
        let Some(count) = self.counts.get_mut(promise) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.counts.remove(promise);
            self.note('-', promise);
        }
    }

    /// Writes down what came and went. To be called before the guard changes.
    pub(crate) fn write(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = if self.lines > self.counts.len().saturating_add(SLACK) {
            write_anew(&self.path, &self.counts).map(|file| {
                (self.file, self.lines) = (file, self.counts.len());
            })
        } else {
            self.file.write_all(self.pending.as_bytes())
        };
        written.map_err(|error| at(&self.path, error))?;
        self.pending.clear();
        Ok(())
    }

    /// Takes all of them back: the orderly end.
    pub(crate) fn close(self) {
        // A file that stays without a journal is not looked at.
        let _ = std::fs::remove_file(&self.path);
    }

    fn note(&mut self, sign: char, promise: &Promise) {
        self.lines = self.lines.saturating_add(1);
        line(sign, promise, &mut self.pending);
    }
}

/// There is a whole file at any moment.
fn write_anew(path: &Path, counts: &HashMap<Promise, u32>) -> io::Result<File> {
    let fresh = path.with_extension("new");
    let mut text = format!("{FIRST_LINE}\n");
    counts.keys().for_each(|promise| line('+', promise, &mut text));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().append(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)?;
    Ok(file)
}

fn line(sign: char, (direction, selector): &Promise, text: &mut String) {
    let Selector { src, dst, proto, src_port, dst_port } = selector;
    let direction = if *direction == Direction::Outbound { "out" } else { "in" };
    let proto = proto.map_or("any".into(), |proto| proto.to_string());
    let _ = write!(
        text,
        "{sign} {direction} {} {} {} {} {proto}",
        src.first(),
        src.last(),
        dst.first(),
        dst.last()
    );
    for range in [src_port, dst_port] {
        let _ = write!(text, " {} {}", range.first(), range.last());
    }
    text.push('\n');
}

/// Whether a promise comes, and which. `None` for a line that was not finished.
fn read_line(line: &str) -> Option<(bool, Promise)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [sign, direction, src_first, src_last, dst_first, dst_last, proto, ports @ ..] = words.as_slice()
    else {
        return None;
    };
    let range = |first: &str, last: &str| AddrRange::new(first.parse().ok()?, last.parse().ok()?).ok();
    let [src_from, src_to, dst_from, dst_to] = ports else { return None };
    let ports = |first: &str, last: &str| PortRange::new(first.parse().ok()?, last.parse().ok()?);
    let selector = Selector {
        src: range(src_first, src_last)?,
        dst: range(dst_first, dst_last)?,
        proto: if *proto == "any" { None } else { Some(proto.parse().ok()?) },
        src_port: ports(src_from, src_to)?,
        dst_port: ports(dst_from, dst_to)?,
    };
    let direction = match *direction {
        "out" => Direction::Outbound,
        "in" => Direction::Inbound,
        _ => return None,
    };
    let comes = match *sign {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    Some((comes, (direction, selector)))
}

fn at(path: &Path, error: io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_scratch::Scratch;

    fn promise(n: u8) -> Promise {
        let range = |net: u8| AddrRange::prefix([10, net, n, 0].into(), 24).unwrap();
        let mut selector = Selector::between(range(1), range(2));
        if n == 1 {
            (selector.proto, selector.dst_port) = (Some(17), PortRange::new(53, 60).unwrap());
        }
        (Direction::Outbound, selector)
    }

    #[test]
    fn promises_outlive_the_process() {
        let scratch = Scratch::new("promises");
        let instance = Instance::at(scratch.path(), "tun3");
        assert_eq!(former(&instance).unwrap(), []);
        let mut promises = Promises::start(&instance, [promise(0), promise(0)].into_iter()).unwrap();
        promises.add(promise(1));
        promises.add(promise(2));
        promises.remove(&promise(2));
        // Two asked for it, one still does.
        promises.remove(&promise(0));
        promises.write().unwrap();
        // What was not finished was not promised.
        promises.file.write_all(b"+ out 10.1.0.0 10.1.0.255 10.2").unwrap();
        let mut kept = former(&instance).unwrap();
        kept.sort_by_key(|(_, selector)| selector.src.first());
        assert_eq!(kept, [promise(0), promise(1)]);
        let mut promises = Promises::start(&instance, kept.into_iter()).unwrap();
        promises.remove(&promise(0));
        promises.remove(&promise(1));
        promises.write().unwrap();
        assert_eq!(former(&instance).unwrap(), []);
        promises.close();
        assert!(!instance.promises().exists());
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let scratch = Scratch::new("promises");
        let instance = Instance::at(scratch.path(), "tun3");
        let mut promises = Promises::start(&instance, [promise(3)].into_iter()).unwrap();
        for _ in 0..SLACK {
            promises.add(promise(4));
            promises.write().unwrap();
            promises.remove(&promise(4));
            promises.write().unwrap();
        }
        let text = std::fs::read_to_string(instance.promises()).unwrap();
        assert!(text.lines().count() <= SLACK + 10, "{}", text.lines().count());
        assert_eq!(former(&instance).unwrap(), [promise(3)]);
    }
}
