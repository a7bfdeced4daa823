//! Command line.

use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "Tests Casemate against a Linux kernel.

Usage: kernel-matrix [--peer casemate|smoltcp|lwip|lwip-below|kernel] [--casemate PROGRAM] [--list | --show] [FILTER...]

  --peer smoltcp       a device in place of the gateway: smoltcp behind Casemate (the program casemate-device)
  --peer lwip          a device with lwIP and Casemate inside its IP layer (adapters/lwip/example), without legacy algorithms
  --peer lwip-below    as lwip, with Casemate below IP
  --peer kernel        a second guest in place of Casemate, to test the matrix itself
  --casemate PROGRAM   program to test (default: `casemate` in the directory of this program)
  --list               print the names of the cases
  --show               print the `ip xfrm` lines of the cases, for our side and for the guest
  FILTER               run the cases whose names contain every FILTER, for example `esp tunnel v6`

Images and logs are in target/interop.
";

/// Implementation on our side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OurSide {
    /// Casemate, the program at this path.
    Casemate(PathBuf),
    /// Device with smoltcp, the program at this path.
    Smoltcp(PathBuf),
    /// Device with lwIP.
    Lwip {
        program: PathBuf,
        /// Whether Casemate is below IP instead of inside it.
        is_below: bool,
    },
    /// Second guest.
    Kernel,
}

/// Options of the program.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) our_side: OurSide,
    pub(crate) list: bool,
    pub(crate) show: bool,
    pub(crate) help: bool,
    filters: Vec<String>,
    /// Path of `probe`.
    pub(crate) probe: PathBuf,
    /// Path of `casemate-device`.
    device: PathBuf,
    /// Path of the example of adapters/lwip, built with sanitizers.
    lwip: PathBuf,
    /// Directory of images, consoles and files of the cases.
    pub(crate) directory: PathBuf,
}

impl Options {
    /// Parses the arguments. The other programs are in the directory of this one, where cargo puts them.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::context("this program"))?;
        let programs = program.parent().unwrap_or(Path::new("."));
        let mut options = Self {
            our_side: OurSide::Casemate(programs.join("casemate")),
            list: false,
            show: false,
            help: false,
            filters: Vec::new(),
            probe: programs.join("probe"),
            device: programs.join("casemate-device"),
            lwip: programs.parent().unwrap_or(programs).join("lwip/casemate-lwip-2.2.1-memory"),
            directory: programs.parent().unwrap_or(programs).join("interop"),
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
                    Some(name @ ("lwip" | "lwip-below")) => {
                        let is_below = name == "lwip-below";
                        self.our_side = OurSide::Lwip { program: self.lwip.clone(), is_below };
                    }
                    Some("casemate") => {}
                    _ => {
                        return Err(Error::new("--peer needs casemate, smoltcp, lwip, lwip-below or kernel"));
                    }
                },
                "--casemate" => match arguments.next() {
                    Some(program) => self.our_side = OurSide::Casemate(program.into()),
                    None => return Err(Error::new("--casemate needs a program")),
                },
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("unknown option `{option}` (see --help)")));
                }
                filter => self.filters.push(filter.into()),
            }
        }
        Ok(())
    }

    /// Whether the filters select a case.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
    }

    /// Removes the files of this run.
    pub(crate) fn clean_up(&self) {
        let own = format!(".{}", std::process::id());
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(&own) {
                // A file that cannot be removed does no harm.
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
    fn invalid_arguments_are_rejected() {
        assert!(parse(&["--nonsense"]).is_err());
        assert!(parse(&["--peer", "strongswan"]).is_err());
        assert!(parse(&["--casemate"]).is_err());
    }
}
