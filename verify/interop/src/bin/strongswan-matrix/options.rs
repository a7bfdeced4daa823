//! The command line.

use crate::cases::{Case, Whom};
use crate::strongswan::Esp;
use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "Casemate against strongSwan, case by case.

Usage: strongswan-matrix [--left casemate|smoltcp|lwip|firmware|strongswan] [--casemate PROGRAM] [--esp libipsec|kernel] [--only PATTERN]
                         [--jobs N] [--keep DIR] [--json] [--list] [FILTER...]

  --left smoltcp       a device in place of Casemate: smoltcp behind Casemate (the program casemate-device);
                       runs a choice of the cases, unless some are named
  --left lwip          lwIP with Casemate in it (the example of adapters/lwip), with cases of its own
  --left firmware      the machine without an operating system (target/firmware/casemate-firmware), with cases of its own
  --left strongswan    a second strongSwan in place of Casemate: checks the matrix itself
  --casemate PROGRAM   the program to test (default: beside this one)
  --esp libipsec       only the cases in which strongSwan brings its own ESP: in a namespace
  --esp kernel         only those in which it has a kernel's ESP and AH: in a guest under QEMU
  --only PATTERN       run the cases whose names match; `*` stands for anything, as in 'rekey/*/initiate'
  FILTER               run the cases whose names contain every FILTER, such as `esp gcm`
  --jobs N             so many cases at a time (default: 2)
  --keep DIR           keep logs, configuration and capture of every case in DIR, not only of those that fail
  --json               print one JSON object for each case, and one for the run
  --list               print the names of the cases

What a failed case leaves behind is kept in target/interop/strongswan.
";

/// What stands on the left side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// The program at this path.
    Casemate(PathBuf),
    /// A device with smoltcp, by the program at this path.
    Smoltcp(PathBuf),
    /// The example of adapters/lwip at this path.
    Lwip(PathBuf),
    /// The machine without an operating system, by its image at this path.
    Firmware(PathBuf),
    /// A second strongSwan.
    StrongSwan,
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) left: Left,
    pub(crate) list: bool,
    pub(crate) help: bool,
    pub(crate) json: bool,
    pub(crate) jobs: usize,
    /// Where all cases are kept, if all.
    pub(crate) keep: Option<PathBuf>,
    esp: Option<Esp>,
    only: Option<String>,
    filters: Vec<String>,
    /// This crate's program `probe`.
    pub(crate) probe: PathBuf,
    /// The program `casemate-device`.
    device: PathBuf,
    /// The example of adapters/lwip, with sanitizers.
    lwip: PathBuf,
    /// The firmware's image.
    image: PathBuf,
    /// Where failed cases are kept.
    pub(crate) failures: PathBuf,
    /// Where the guest's kernel and initramfs are kept.
    pub(crate) cache: PathBuf,
}

impl Options {
    /// From the arguments; the other programs lie beside this one, where cargo puts them.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::in_front("this program"))?;
        let beside = program.parent().unwrap_or(Path::new("."));
        let cache = beside.parent().unwrap_or(beside).join("interop");
        let mut options = Self {
            left: Left::Casemate(beside.join("casemate")),
            list: false,
            help: false,
            json: false,
            jobs: 2,
            keep: None,
            esp: None,
            only: None,
            filters: Vec::new(),
            probe: beside.join("probe"),
            device: beside.join("casemate-device"),
            lwip: beside.parent().unwrap_or(beside).join("lwip/casemate-lwip-2.2.1-memory"),
            image: beside.parent().unwrap_or(beside).join("firmware/casemate-firmware"),
            failures: cache.join("strongswan"),
            cache,
        };
        options.read(arguments)?;
        Ok(options)
    }

    fn read(&mut self, mut arguments: impl Iterator<Item = String>) -> Result<()> {
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| Error::new(format!("{argument} wants a value")));
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
                        return Err(Error::new(format!("--left: {wanted}, not `{other}`")));
                    }
                },
                "--esp" => match value()?.as_str() {
                    "libipsec" => self.esp = Some(Esp::Libipsec),
                    "kernel" => self.esp = Some(Esp::Kernel),
                    other => {
                        return Err(Error::new(format!("--esp: `libipsec` or `kernel`, not `{other}`")));
                    }
                },
                "--casemate" => self.left = Left::Casemate(value()?.into()),
                "--only" => self.only = Some(value()?),
                "--keep" => self.keep = Some(value()?.into()),
                "--jobs" => match value()?.parse() {
                    Ok(jobs @ 1..=64) => self.jobs = jobs,
                    _ => return Err(Error::new("--jobs wants a number from 1 to 64")),
                },
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("no option `{option}` (--help)")));
                }
                filter => self.filters.push(filter.into()),
            }
        }
        Ok(())
    }

    /// Whether a case is to run.
    pub(crate) fn selects(&self, case: &Case) -> bool {
        let is_meant = match self.left {
            Left::Casemate(_) => matches!(case.whom, Whom::Everybody | Whom::Casemate),
            Left::StrongSwan => case.whom == Whom::Everybody,
            Left::Firmware(_) => case.whom == Whom::Firmware,
            Left::Lwip(_) => case.whom == Whom::Lwip,
            Left::Smoltcp(_) if self.names_cases() => matches!(case.whom, Whom::Everybody | Whom::Device),
            Left::Smoltcp(_) => case.is_for_devices(),
        };
        is_meant && self.esp.is_none_or(|esp| case.esp == esp) && self.selects_name(&case.name)
    }

    fn names_cases(&self) -> bool {
        self.only.is_some() || !self.filters.is_empty()
    }

    fn selects_name(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
            && self.only.as_ref().is_none_or(|pattern| matches(pattern, name))
    }
}

/// Whether the whole name matches; `*` stands for any characters, and for none.
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
    fn filters_and_pattern_all_have_to_match() {
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
    fn nonsense_is_refused() {
        assert!(parse(&["--nonsense"]).is_err());
        assert!(parse(&["--left", "kernel"]).is_err());
        assert!(parse(&["--esp", "hardware"]).is_err());
        assert!(parse(&["--jobs", "0"]).is_err());
        assert!(parse(&["--keep"]).is_err());
    }
}
