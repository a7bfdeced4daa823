//! FreeRADIUS of Debian on a host, with the configuration that strongSwan's test suite has for it.
//!
//! The suite's machines have the files of the Debian package in `/etc/freeradius/3.0`, replaced in part by
//! those of the suite and of the scenario. Here they are in a directory of the run, so paths of that machine
//! become paths in it.

use crate::source::{Source, copy_all};
use casemate_interop::{Background, Error, Netns, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/sbin/freeradius";
/// Files of the Debian package.
const DEFAULTS: &str = "/etc/freeradius/3.0";
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time until a record of accounting is in its file.
const RECORD_LIMIT: Duration = Duration::from_secs(4);

/// Running server. It ends when the value is dropped.
pub(crate) struct Radius {
    _process: Background,
    records: PathBuf,
}

impl Radius {
    /// Starts the server of a host, with its files and its log in `directory`.
    pub(crate) fn start(
        source: &Source,
        netns: &Netns,
        scenario: &str,
        host: &str,
        directory: &Path,
    ) -> Result<Self> {
        if !Path::new(PROGRAM).exists() {
            return Err(Error::new(format!("{PROGRAM} (Debian package freeradius) is missing")));
        }
        let settings = directory.join("raddb");
        copy_with_links(Path::new(DEFAULTS), &settings)?;
        for files in source.host_directories(scenario, host, "etc/freeradius/3.0") {
            copy_all(&files, &settings)?;
        }
        for certificates in source.host_directories(scenario, host, "etc/raddb/certs") {
            copy_all(&certificates, &directory.join("certs"))?;
        }
        let file = settings.join("radiusd.conf");
        let text = fs::read_to_string(&file).map_err(Error::context(file.display()))?;
        fs::write(&file, with_paths(&text, directory)).map_err(Error::context(file.display()))?;
        let records = directory.join("radacct");
        fs::create_dir_all(&records).map_err(Error::context(records.display()))?;
        let mut command = netns.command(PROGRAM);
        command.arg("-X").arg("-d").arg(&settings);
        let mut process = Background::start("freeradius", command, &directory.join("log"))?;
        process.wait_until(START_LIMIT, |output| output.contains("Ready to process requests"))?;
        Ok(Self { _process: process, records })
    }

    /// Waits until the records of accounting contain the words.
    pub(crate) fn expect_record(&self, words: &str) -> Result<()> {
        let start = Instant::now();
        while !files_contain(&self.records, words) {
            if start.elapsed() > RECORD_LIMIT {
                return Err(Error::new("no record contains these words"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// Copies the files of a directory and its subdirectories. Links within it remain: a file of the suite then
/// replaces the one to which `users` or a link to an enabled module leads, as on the suite's machines.
fn copy_with_links(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::context(to.display()))?;
    for entry in fs::read_dir(from).map_err(Error::context(from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match fs::read_link(&source) {
            // A file that is written through another link would not be in the copy.
            Ok(link) if link.is_relative() => {
                symlink(&link, &target).map_err(Error::context(target.display()))?
            }
            _ if source.is_dir() => copy_with_links(&source, &target)?,
            _ if source.is_file() => {
                fs::copy(&source, &target).map_err(Error::context(source.display()))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns `radiusd.conf` with paths below `directory`, and without the user and the group that the server
/// would become, who may not read there.
fn with_paths(text: &str, directory: &Path) -> String {
    let directory = directory.display();
    let paths = [
        ("raddbdir", format!("{directory}/raddb")),
        ("logdir", directory.to_string()),
        ("certdir", format!("{directory}/certs")),
        ("cadir", format!("{directory}/certs")),
        ("run_dir", directory.to_string()),
        ("libdir", "/usr/lib/freeradius".to_owned()),
    ];
    let line = |line: &str| {
        let name = line.split('=').next().unwrap_or_default().trim();
        match paths.iter().find(|(path, _)| *path == name) {
            Some((_, path)) => format!("{name} = {path}\n"),
            None if name == "user" || name == "group" => String::new(),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// Whether a file in the directory or below it contains the words, apart from quotation marks.
fn files_contain(directory: &Path, words: &str) -> bool {
    fs::read_dir(directory).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return files_contain(&path, words);
        }
        fs::read_to_string(&path).is_ok_and(|text| text.replace('"', "").contains(words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_run() {
        let text = "raddbdir = /etc/freeradius/3.0\nradacctdir = ${logdir}/radacct\n  user = freerad\n";
        assert_eq!(
            with_paths(text, Path::new("/r")),
            "raddbdir = /r/raddb\nradacctdir = ${logdir}/radacct\n"
        );
    }
}
