//! The command line.

use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "Casemate against a Linux kernel, case by case.

Usage: kernel-matrix [--peer casemate|smoltcp|lwip|lwip-below|kernel] [--casemate PROGRAM] [--list | --show] [FILTER...]

  --peer smoltcp       a device in place of the gateway: smoltcp behind Casemate (the program casemate-device)
  --peer lwip          lwIP with Casemate inside of its IP (the example of adapters/lwip), without the legacy algorithms
  --peer lwip-below    the same with Casemate below IP
  --peer kernel        a second guest in place of Casemate: checks the matrix itself
  --casemate PROGRAM   the program to test (default: beside this one)
  --list               print the names of the cases
  --show               print the `ip xfrm` lines of the cases, for our side and for the guest
  FILTER               run the cases whose names contain every FILTER, such as `esp tunnel v6`

Guest and log files are kept in target/interop.
";

/// What stands on our side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OurSide {
    /// The program at this path.
    Casemate(PathBuf),
    /// A device with smoltcp, by the program at this path.
    Smoltcp(PathBuf),
    /// A device with lwIP, by the program at this path; whether Casemate stands below IP.
    Lwip(PathBuf, bool),
    /// A second guest.
    Kernel,
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) our_side: OurSide,
    pub(crate) list: bool,
    pub(crate) show: bool,
    pub(crate) help: bool,
    filters: Vec<String>,
    /// This crate's program `probe`.
    pub(crate) probe: PathBuf,
    /// The program `casemate-device`.
    device: PathBuf,
    /// The example of adapters/lwip, with sanitizers.
    lwip: PathBuf,
    /// Images, consoles, files of the cases.
    pub(crate) directory: PathBuf,
}

impl Options {
    /// From the arguments; the other programs lie beside this one, where cargo puts them.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::in_front("this program"))?;
        let beside = program.parent().unwrap_or(Path::new("."));
        let mut options = Self {
            our_side: OurSide::Casemate(beside.join("casemate")),
            list: false,
            show: false,
            help: false,
            filters: Vec::new(),
            probe: beside.join("probe"),
            device: beside.join("casemate-device"),
            lwip: beside.parent().unwrap_or(beside).join("lwip/casemate-lwip-2.2.1-memory"),
            directory: beside.parent().unwrap_or(beside).join("interop"),
        };
        options.read(arguments)?;
        Ok(options)
    }

    fn read(&mut self, mut arguments: impl Iterator<Item = String>) -> Result<()> {
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => self.help = true,
                "--list" => self.list = true,
                "--show" => self.show = true,
                "--peer" => match arguments.next().as_deref() {
                    Some("kernel") => self.our_side = OurSide::Kernel,
                    Some("smoltcp") => self.our_side = OurSide::Smoltcp(self.device.clone()),
                    Some("lwip") => self.our_side = OurSide::Lwip(self.lwip.clone(), false),
                    Some("lwip-below") => self.our_side = OurSide::Lwip(self.lwip.clone(), true),
                    Some("casemate") => {}
                    _ => {
                        return Err(Error::new("--peer wants casemate, smoltcp, lwip, lwip-below or kernel"));
                    }
                },
                "--casemate" => match arguments.next() {
                    Some(program) => self.our_side = OurSide::Casemate(program.into()),
                    None => return Err(Error::new("--casemate wants a program")),
                },
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("no option `{option}` (--help)")));
                }
                filter => self.filters.push(filter.into()),
            }
        }
        Ok(())
    }

    /// Whether a case of this name is to run.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
    }

    /// Removes what only this run wrote.
    pub(crate) fn clean_up(&self) {
        let own = format!(".{}", std::process::id());
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(&own) {
                // A leftover log hurts nobody.
                let _ = std::fs::remove_dir_all(entry.path()).or_else(|_| std::fs::remove_file(entry.path()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        Options::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn every_filter_has_to_match() {
        let options = parse(&["esp", "v6", "--peer", "kernel"]).unwrap();
        assert_eq!(options.our_side, OurSide::Kernel);
        assert!(options.selects("esp/null-sha1/tunnel/v6"));
        assert!(!options.selects("esp/null-sha1/tunnel/v4"));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse(&["--nonsense"]).is_err());
        assert!(parse(&["--peer", "strongswan"]).is_err());
        assert!(parse(&["--casemate"]).is_err());
    }
}
