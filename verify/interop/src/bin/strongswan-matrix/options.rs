//! Command line of the strongSwan matrix.

use crate::cases::{Case, RunsOn};
use crate::strongswan::Esp;
use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "Runs interoperability tests of Casemate with strongSwan.

Usage: strongswan-matrix [--left casemate|smoltcp|lwip|firmware|strongswan] [--casemate PROGRAM] [--esp libipsec|kernel] [--only PATTERN]
                         [--jobs N] [--keep DIR] [--json] [--list] [FILTER...]

  --left smoltcp       tests a device: smoltcp with Casemate (the program casemate-device);
                       runs a selection of the cases unless cases are named
  --left lwip          tests lwIP with Casemate (the example of adapters/lwip); has its own cases
  --left firmware      tests the firmware without an operating system (target/firmware/casemate-firmware);
                       has its own cases
  --left strongswan    runs a second strongSwan instead of Casemate, to test the matrix itself
  --casemate PROGRAM   program to test (default: in the directory of this program)
  --esp libipsec       run only the cases in which strongSwan uses its own ESP, in a namespace
  --esp kernel         run only the cases in which strongSwan uses the ESP and AH of a kernel, in a guest in QEMU
  --root DIR           take strongSwan's daemon of another release of Debian, which is unpacked in DIR; the cases
                       post-quantum/... need strongSwan 6 with ML-KEM and run with this option only
  --only PATTERN       run the cases whose names match; `*` matches anything, as in 'rekey/*/initiate'
  FILTER               run the cases whose names contain every FILTER, such as `esp gcm`
  --jobs N             run N cases in parallel (default: 2)
  --keep DIR           keep the logs, configuration and capture of every case in DIR, not only of failed cases
  --json               print one JSON object for each case and one for the run
  --list               print the names of the cases

The files of a failed case are kept in target/interop/strongswan.
";

/// Implementation on the left side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// Casemate, the program at this path.
    Casemate(PathBuf),
    /// Device with smoltcp, the program at this path.
    Smoltcp(PathBuf),
    /// Example of adapters/lwip at this path.
    Lwip(PathBuf),
    /// Firmware without an operating system, by the path of its image.
    Firmware(PathBuf),
    /// Second strongSwan.
    StrongSwan,
}

/// Options of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) left: Left,
    pub(crate) list: bool,
    pub(crate) help: bool,
    pub(crate) json: bool,
    pub(crate) jobs: usize,
    /// Root directory with the daemon of strongSwan, if it is not the one of this machine.
    pub(crate) root: Option<PathBuf>,
    /// Directory in which the files of all cases are kept, if requested.
    pub(crate) keep: Option<PathBuf>,
    esp: Option<Esp>,
    only: Option<String>,
    filters: Vec<String>,
    /// Path of the program `probe` of this crate.
    pub(crate) probe: PathBuf,
    /// Path of the program `casemate-device`.
    device: PathBuf,
    /// Path of the example of adapters/lwip with sanitizers.
    lwip: PathBuf,
    /// Path of the firmware image.
    image: PathBuf,
    /// Directory in which the files of failed cases are kept.
    pub(crate) failures: PathBuf,
    /// Directory in which the kernel and initramfs of the guest are kept.
    pub(crate) cache: PathBuf,
}

impl Options {
    /// Parses the arguments. The other programs are in the directory of this program, as cargo puts them.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::context("this program"))?;
        let programs = program.parent().unwrap_or(Path::new("."));
        let cache = programs.parent().unwrap_or(programs).join("interop");
        let mut options = Self {
            left: Left::Casemate(programs.join("casemate")),
            list: false,
            help: false,
            json: false,
            jobs: 2,
            root: None,
            keep: None,
            esp: None,
            only: None,
            filters: Vec::new(),
            probe: programs.join("probe"),
            device: programs.join("casemate-device"),
            lwip: programs.parent().unwrap_or(programs).join("lwip/casemate-lwip-2.2.1-memory"),
            image: programs.parent().unwrap_or(programs).join("firmware/casemate-firmware"),
            failures: cache.join("strongswan"),
            cache,
        };
        options.read(arguments)?;
        Ok(options)
    }

    fn read(&mut self, mut arguments: impl Iterator<Item = String>) -> Result<()> {
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| Error::new(format!("{argument} requires a value")));
            match argument.as_str() {
                "--help" | "-h" => self.help = true,
                "--list" => self.list = true,
                "--json" => self.json = true,
                "--left" => match value()?.as_str() {
                    "strongswan" => self.left = Left::StrongSwan,
                    "smoltcp" => self.left = Left::Smoltcp(self.device.clone()),
                    "lwip" => self.left = Left::Lwip(self.lwip.clone()),
                    "firmware" => self.left = Left::Firmware(self.image.clone()),
                    "casemate" => {}
                    other => {
                        let wanted = "`casemate`, `smoltcp`, `lwip`, `firmware` or `strongswan`";
                        return Err(Error::new(format!(
                            "--left: unknown value `{other}`, expected {wanted}"
                        )));
                    }
                },
                "--esp" => match value()?.as_str() {
                    "libipsec" => self.esp = Some(Esp::Libipsec),
                    "kernel" => self.esp = Some(Esp::Kernel),
                    other => {
                        return Err(Error::new(format!(
                            "--esp: unknown value `{other}`, expected `libipsec` or `kernel`"
                        )));
                    }
                },
                "--casemate" => self.left = Left::Casemate(value()?.into()),
                "--root" => self.root = Some(value()?.into()),
                "--only" => self.only = Some(value()?),
                "--keep" => self.keep = Some(value()?.into()),
                "--jobs" => match value()?.parse() {
                    Ok(jobs @ 1..=64) => self.jobs = jobs,
                    _ => return Err(Error::new("--jobs requires a number from 1 to 64")),
                },
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("unknown option `{option}` (see --help)")));
                }
                filter => self.filters.push(filter.into()),
            }
        }
        Ok(())
    }

    /// Returns whether a case is selected.
    pub(crate) fn selects(&self, case: &Case) -> bool {
        let is_meant = match self.left {
            Left::Casemate(_) => matches!(case.runs_on, RunsOn::All | RunsOn::Casemate),
            Left::StrongSwan => case.runs_on == RunsOn::All,
            Left::Firmware(_) => case.runs_on == RunsOn::Firmware,
            Left::Lwip(_) => case.runs_on == RunsOn::Lwip,
            Left::Smoltcp(_) if self.names_cases() => matches!(case.runs_on, RunsOn::All | RunsOn::Device),
            Left::Smoltcp(_) => case.is_default_for_devices(),
        };
        is_meant
            && (self.root.is_some() || !case.needs_ml_kem)
            && self.esp.is_none_or(|esp| case.esp == esp)
            && self.selects_name(&case.name)
    }

    fn names_cases(&self) -> bool {
        self.only.is_some() || !self.filters.is_empty()
    }

    fn selects_name(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
            && self.only.as_ref().is_none_or(|pattern| matches(pattern, name))
    }
}

/// Returns whether the whole name matches; `*` matches any characters or none.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, rest)) => name.strip_prefix(front).is_some_and(|name| {
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .any(|at| name.get(at..).is_some_and(|tail| matches(rest, tail)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        Options::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn requires_all_filters_and_the_pattern_to_match() {
        let options =
            parse(&["esp", "gcm", "--only", "proposals/*/initiate", "--left", "strongswan"]).unwrap();
        assert_eq!(options.left, Left::StrongSwan);
        assert!(options.selects_name("proposals/esp/aes128gcm16/initiate"));
        assert!(!options.selects_name("proposals/esp/aes128gcm16/respond"));
        assert!(!options.selects_name("proposals/esp/aes128-sha1/initiate"));
        assert!(!matches("a*b*c", "axbx"));
        assert!(matches("a*b*c", "abbc"));
    }

    #[test]
    fn rejects_invalid_arguments() {
        assert!(parse(&["--nonsense"]).is_err());
        assert!(parse(&["--left", "kernel"]).is_err());
        assert!(parse(&["--esp", "hardware"]).is_err());
        assert!(parse(&["--jobs", "0"]).is_err());
        assert!(parse(&["--keep"]).is_err());
    }
}
