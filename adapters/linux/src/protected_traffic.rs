//! The protected traffic of an instance, in a file next to its journal: traffic that must not leave in clear.
//!
//! The guard of a dead instance shows what was protected, but only `nft` can read it from the kernel. So each
//! selector that is added to the guard or removed from it is a line in this file. The next start of the
//! instance reads the file and keeps that traffic blocked until SAs are up, unless the configuration does not
//! ask for it any more ([`SystemState`](crate::setup::SystemState)). Like the journal, the file outlives the
//! process and not a reboot.

use crate::Error;
use crate::instance::Instance;
use casemate_datapath::Direction;
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_wire::invariant::OrBroken;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "casemate promises 1";
/// Longest file that is read, in bytes: more than the largest SPD needs.
const MAX_LEN: u64 = 64 << 20;
/// The file is rewritten when it has this many more lines than selectors.
const SLACK: usize = 4_096;

/// A selector of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtectedSelector {
    /// Direction of the packets.
    pub direction: Direction,
    /// The packets.
    pub selector: Selector,
}

/// A change of the protected traffic, as a line of the file has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrafficChange {
    /// The selector is added, otherwise removed.
    pub(crate) is_added: bool,
    pub(crate) selector: ProtectedSelector,
}

/// The file and its contents.
#[derive(Debug)]
pub(crate) struct ProtectedTrafficFile {
    path: PathBuf,
    file: File,
    /// Number of policies for each selector.
    counts: HashMap<ProtectedSelector, u32>,
    lines: usize,
    /// The last write failed, so the last line may be incomplete.
    is_torn: bool,
    /// Lines that are not written yet.
    pending: String,
    /// There was protected traffic at some time.
    was_used: bool,
}

/// Reads the protected traffic of a former run of the instance.
pub fn former(instance: &Instance) -> Result<Vec<ProtectedSelector>, Error> {
    let path = instance.protected_traffic_file();
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(MAX_LEN).read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| file_error(&path, error))?,
    };
    let refused =
        |reason: String| Error::other(path.display().to_string(), reason + "; `casemate cleanup` removes it");
    // The guard did not change before the end of a line was written.
    let complete = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
    let mut lines = (1..).zip(complete.lines());
    if lines.next().is_some_and(|(_, line)| line != FIRST_LINE) {
        return Err(refused("not a file of this version".into()));
    }
    let mut counts: HashMap<ProtectedSelector, u32> = HashMap::new();
    for (number, line) in lines {
        let change = TrafficChange::parse(line);
        let change = change.ok_or_else(|| refused(format!("line {number} is damaged")))?;
        let count = counts.entry(change.selector).or_default();
        *count = if change.is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
    }
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).map(|(selector, _)| selector).collect())
}

const ADDED_BEFORE: &str = "a removed selector was added before";

impl ProtectedTrafficFile {
    /// Replaces the file by one with these selectors.
    pub(crate) fn start(
        instance: &Instance,
        traffic: impl Iterator<Item = ProtectedSelector>,
    ) -> Result<Self, Error> {
        let mut counts = HashMap::new();
        for selector in traffic {
            let count: &mut u32 = counts.entry(selector).or_default();
            *count = count.saturating_add(1);
        }
        let path = instance.protected_traffic_file();
        let file = replace_file(&path, &counts).map_err(|error| file_error(&path, error))?;
        let (lines, is_used) = (counts.len(), !counts.is_empty());
        Ok(Self { path, file, counts, lines, is_torn: false, pending: String::new(), was_used: is_used })
    }

    /// Whether there was protected traffic at some time.
    pub(crate) const fn was_used(&self) -> bool {
        self.was_used
    }

    /// Adds a selector, because of a new policy.
    pub(crate) fn add(&mut self, selector: ProtectedSelector) {
        let count = self.counts.entry(selector).or_default();
        *count = count.saturating_add(1);
        self.was_used = true;
        if *count == 1 {
            self.append(TrafficChange { is_added: true, selector });
        }
    }

    /// Removes a selector, because a policy was removed.
    pub(crate) fn remove(&mut self, selector: &ProtectedSelector) {
        let Some(count) = self.counts.get_mut(selector).or_report(ADDED_BEFORE) else { return };
        *count = count.checked_sub(1).or_broken(ADDED_BEFORE, 0);
        if *count == 0 {
            self.counts.remove(selector);
            self.append(TrafficChange { is_added: false, selector: *selector });
        }
    }

    /// Writes the changes to the file. Must be called before the guard changes.
    pub(crate) fn write(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = if self.is_torn || self.lines > self.counts.len().saturating_add(SLACK) {
            replace_file(&self.path, &self.counts).map(|file| {
                (self.file, self.lines) = (file, self.counts.len());
            })
        } else {
            self.file.write_all(self.pending.as_bytes())
        };
        self.is_torn = written.is_err();
        written.map_err(|error| file_error(&self.path, error))?;
        self.pending.clear();
        Ok(())
    }

    /// Removes the file, at an orderly end.
    pub(crate) fn close(self) {
        // A file that stays without a journal has no effect.
        let _ = std::fs::remove_file(&self.path);
    }

    fn append(&mut self, change: TrafficChange) {
        self.lines = self.lines.saturating_add(1);
        change.write(&mut self.pending);
    }
}

/// Path of the file that replaces another one.
pub(crate) fn temporary_file(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Replaces the file. At any moment there is a complete file.
fn replace_file(path: &Path, counts: &HashMap<ProtectedSelector, u32>) -> io::Result<File> {
    let fresh = temporary_file(path);
    let mut text = format!("{FIRST_LINE}\n");
    let added = counts.keys().map(|selector| TrafficChange { is_added: true, selector: *selector });
    added.for_each(|change| change.write(&mut text));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().append(true).create_new(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&fresh, path));
    written.inspect_err(|_| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&fresh);
    })?;
    Ok(file)
}

impl TrafficChange {
    fn write(&self, text: &mut String) {
        let ProtectedSelector { direction, selector } = &self.selector;
        let Selector { src, dst, proto, src_port, dst_port } = selector;
        let sign = if self.is_added { '+' } else { '-' };
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

    /// Parses a line.
    fn parse(line: &str) -> Option<Self> {
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
        let is_added = match *sign {
            "+" => true,
            "-" => false,
            _ => return None,
        };
        Some(Self { is_added, selector: ProtectedSelector { direction, selector } })
    }
}

fn file_error(path: &Path, error: io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;

    fn selector(n: u8) -> ProtectedSelector {
        let range = |net: u8| AddrRange::prefix([10, net, n, 0].into(), 24).unwrap();
        let mut selector = Selector::between(range(1), range(2));
        if n == 1 {
            (selector.proto, selector.dst_port) = (Some(17), PortRange::new(53, 60).unwrap());
        }
        ProtectedSelector { direction: Direction::Outbound, selector }
    }

    #[test]
    fn protected_traffic_outlives_the_process() {
        let scratch = TempDir::new("promises").unwrap();
        let instance = Instance::at(scratch.path(), "tun3");
        assert_eq!(former(&instance).unwrap(), []);
        let mut traffic =
            ProtectedTrafficFile::start(&instance, [selector(0), selector(0)].into_iter()).unwrap();
        traffic.add(selector(1));
        traffic.add(selector(2));
        traffic.remove(&selector(2));
        // Two policies ask for the selector; one of them remains.
        traffic.remove(&selector(0));
        traffic.write().unwrap();
        // An incomplete line has no effect.
        traffic.file.write_all(b"+ out 10.1.0.0 10.1.0.255 10.2").unwrap();
        let mut kept = former(&instance).unwrap();
        kept.sort_by_key(|kept| kept.selector.src.first());
        assert_eq!(kept, [selector(0), selector(1)]);
        let mut traffic = ProtectedTrafficFile::start(&instance, kept.into_iter()).unwrap();
        traffic.remove(&selector(0));
        traffic.remove(&selector(1));
        traffic.write().unwrap();
        assert_eq!(former(&instance).unwrap(), []);
        traffic.close();
        assert!(!instance.protected_traffic_file().exists());
    }

    /// A full file system may have taken part of a line.
    #[test]
    fn a_failed_write_damages_no_later_line() {
        let scratch = TempDir::new("promises").unwrap();
        let instance = Instance::at(scratch.path(), "tun3");
        let mut traffic = ProtectedTrafficFile::start(&instance, [].into_iter()).unwrap();
        traffic.add(selector(0));
        traffic.file.write_all(b"+ out 10.1.0.0 10.1").unwrap();
        let read_only = File::open(instance.protected_traffic_file()).unwrap();
        let file = std::mem::replace(&mut traffic.file, read_only);
        assert!(traffic.write().is_err());
        traffic.file = file;
        traffic.write().unwrap();
        assert_eq!(former(&instance).unwrap(), [selector(0)]);
        traffic.add(selector(3));
        traffic.write().unwrap();
        assert_eq!(former(&instance).unwrap().len(), 2);
    }

    #[test]
    fn a_failed_replacement_leaves_no_file() {
        let scratch = TempDir::new("promises").unwrap();
        let instance = Instance::at(scratch.path(), "tun3");
        // A file cannot replace a directory.
        std::fs::create_dir(instance.protected_traffic_file()).unwrap();
        assert!(ProtectedTrafficFile::start(&instance, [selector(0)].into_iter()).is_err());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    /// Traffic that a damaged line protected would leave in clear.
    #[test]
    fn a_damaged_line_is_an_error() {
        let scratch = TempDir::new("promises").unwrap();
        let instance = Instance::at(scratch.path(), "tun3");
        let line = "+ out 10.1.0.0 10.1.0.255 10.2.0.0 10.2.0.255 any 0 65535 0 65535";
        let read = |text: &str| {
            std::fs::write(instance.protected_traffic_file(), format!("{FIRST_LINE}\n{text}")).unwrap();
            former(&instance).map(|selectors| selectors.len())
        };
        assert_eq!(read(&format!("{line}\n")).unwrap(), 1);
        assert_eq!(read(line).unwrap(), 0, "an incomplete line was not written before the guard changed");
        let error = read(&format!("{line}\n+ out 10.1.0.0 {line}\n")).unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn the_file_size_is_bounded() {
        let scratch = TempDir::new("promises").unwrap();
        let instance = Instance::at(scratch.path(), "tun3");
        let mut traffic = ProtectedTrafficFile::start(&instance, [selector(3)].into_iter()).unwrap();
        for _ in 0..SLACK {
            traffic.add(selector(4));
            traffic.write().unwrap();
            traffic.remove(&selector(4));
            traffic.write().unwrap();
        }
        let text = std::fs::read_to_string(instance.protected_traffic_file()).unwrap();
        assert!(text.lines().count() <= SLACK + 10, "{}", text.lines().count());
        assert_eq!(former(&instance).unwrap(), [selector(3)]);
    }
}
