//! Writer for cpio archives in the `newc` format, which the kernel unpacks as its initramfs (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive under construction. Parent directories are added automatically.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds an executable file. `path` is relative to the root.
    pub(super) fn add_file(&mut self, path: &str, content: &[u8]) {
        self.add_parents(path);
        self.write_entry(path, FILE, content);
    }

    /// Adds an empty directory.
    pub(super) fn add_directory(&mut self, path: &str) {
        self.add_parents(path);
        if self.directories.insert(path.to_owned()) {
            self.write_entry(path, DIRECTORY, &[]);
        }
    }

    /// Returns the finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write_entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add_parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.add_directory(parent);
        }
    }

    fn write_entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        let name_size = path.len().wrapping_add(1);
        // Magic, inode, mode, uid, gid, links, mtime, size, four device numbers, name size, checksum
        // (unused).
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}\
             {name_size:08x}{:08x}",
            self.entries,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first() {
        let mut archive = Archive::default();
        archive.add_file("a/b/one", b"1");
        archive.add_file("a/b/two", b"22222");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> = text.split("070701").skip(1).map(|entry| &entry[104..]).collect();
        let starts: Vec<_> = names.iter().map(|name| name.split('\0').next().unwrap()).collect();
        assert_eq!(starts, ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"]);
    }
}
