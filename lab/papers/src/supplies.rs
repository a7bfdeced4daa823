//! Files that an experiment obtains before its steps: the firmware's image and the kernel of a guest. An
//! environment variable names one that exists; otherwise the firmware is built in a checkout, and the kernel
//! is downloaded into a cache directory.

use crate::{Progress, Requirement};
use casemate_testbed::{build_firmware, find_checkout, obtain_kernel, unpacked_kernel};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file or directory that an experiment can do without, but not some of its measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Supply {
    /// Image of the firmware.
    Firmware,
    /// Linux kernel for a guest, in `boot` and `lib/modules` of a directory.
    GuestKernel,
}

/// Reason why a supply is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Object, cause and next step.
    pub why: String,
    /// Whether a build failed that should have succeeded on this machine.
    pub failed: bool,
}

/// Directories in which supplies are searched or stored.
#[derive(Debug, Clone)]
pub struct Places {
    /// Paths that may be inside a checkout, in order of preference: the program and the working directory.
    pub checkouts: Vec<PathBuf>,
    /// Directory for downloads, which keeps them for the next run.
    pub cache: PathBuf,
}

/// Where a supply comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Path in the environment variable.
    Given(PathBuf),
    /// Built in this checkout.
    Build(PathBuf),
    /// Downloaded by an earlier run.
    Cached(PathBuf),
    /// Downloaded into this cache directory.
    Download(PathBuf),
}

/// Supplies of one run. Supplies that were not requested are unavailable.
#[derive(Debug, Clone, Default)]
pub struct Supplies(BTreeMap<Supply, Result<PathBuf, Unavailable>>);

impl Places {
    /// Directory for downloads unless a caller selects another one. Only root can run what needs them.
    pub const CACHE: &'static str = "/var/cache/casemate";

    /// Places of this program.
    pub fn of_program(cache: impl Into<PathBuf>) -> Self {
        let paths = [std::env::current_exe(), std::env::current_dir()];
        Self { checkouts: paths.into_iter().flatten().collect(), cache: cache.into() }
    }
}

impl Supply {
    /// Environment variable with a path. An empty value excludes the supply.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Firmware => "CASEMATE_FIRMWARE",
            Self::GuestKernel => "CASEMATE_GUEST_KERNEL",
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Firmware => "the image that `cargo xtask firmware` builds",
            Self::GuestKernel => "a directory with boot/vmlinuz-* and lib/modules",
        }
    }

    /// What the machine needs to use the supply.
    pub const fn requirements(self) -> &'static [Requirement] {
        use Requirement as R;
        match self {
            Self::Firmware => &[R::Namespaces, R::Tun, R::QEMU],
            Self::GuestKernel => &[R::Namespaces, R::Tun, R::QEMU, R::BUSYBOX, R::MODPROBE],
        }
    }

    /// Returns why the supply cannot be used here, without a build or a download; `None` if it may be possible.
    pub fn missing(self, places: &Places) -> Option<String> {
        let missing = self.requirements().iter().find_map(|requirement| requirement.missing());
        missing.or_else(|| self.source(std::env::var_os(self.variable()), places).err())
    }

    /// Decides where the supply comes from, given the value of its variable.
    pub(crate) fn source(self, given: Option<OsString>, places: &Places) -> Result<Source, String> {
        let (variable, expected) = (self.variable(), self.expected());
        if let Some(given) = given {
            if given.is_empty() {
                return Err(format!("{self}: excluded by the empty environment variable {variable}"));
            }
            let path = PathBuf::from(given);
            return match std::fs::metadata(&path) {
                Ok(_) => Ok(Source::Given(path)),
                Err(error) => Err(format!("{variable}: {}: {error}; expected {expected}", path.display())),
            };
        }
        match self {
            Self::Firmware => self.find_checkout(places).map(Source::Build),
            Self::GuestKernel => Ok(match unpacked_kernel(&places.cache) {
                kernel if kernel.exists() => Source::Cached(kernel),
                _ => Source::Download(places.cache.clone()),
            }),
        }
    }

    fn find_checkout(self, places: &Places) -> Result<PathBuf, String> {
        let found = places.checkouts.iter().find_map(|path| find_checkout(path));
        found.map(Path::to_path_buf).ok_or_else(|| {
            let paths: Vec<String> = places.checkouts.iter().map(|path| path.display().to_string()).collect();
            format!(
                "{self}: no checkout of Casemate contains {}: run the program in a checkout, or {}",
                paths.join(" or "),
                self.hint()
            )
        })
    }

    /// Next step if a supply could not be obtained.
    fn hint(self) -> String {
        format!("set {} to {}", self.variable(), self.expected())
    }

    /// Obtains the supply. Shows on standard error what it does.
    fn obtain(self, places: &Places, progress: &Progress) -> Result<PathBuf, Unavailable> {
        let unavailable = |why| Unavailable { why, failed: false };
        if let Some(missing) = self.missing(places) {
            return Err(unavailable(missing));
        }
        let source = self.source(std::env::var_os(self.variable()), places).map_err(unavailable)?;
        let start = Instant::now();
        let report = |line: &str| progress.set_message(line);
        let done = match &source {
            Source::Given(path) | Source::Cached(path) => return Ok(path.clone()),
            Source::Build(checkout) => {
                progress.print_line(&format!("{self}: builds it in {} with cargo", checkout.display()));
                build_firmware(checkout, &report)
            }
            Source::Download(cache) => {
                progress.print_line(&format!("{self}: downloads it to {} with apt-get", cache.display()));
                obtain_kernel(cache, &report)
            }
        };
        match done {
            Ok(path) => {
                let seconds = start.elapsed().as_secs_f64();
                progress.print_line(&format!("{self}: {} after {seconds:.0} s", path.display()));
                Ok(path)
            }
            Err(error) => Err(Unavailable {
                why: format!("{self}: {error}; to use another one, {}", self.hint()),
                failed: matches!(source, Source::Build(_)),
            }),
        }
    }
}

impl fmt::Display for Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firmware => "firmware",
            Self::GuestKernel => "kernel of the guest",
        })
    }
}

impl Supplies {
    /// Obtains these supplies.
    pub(crate) fn obtain(supplies: &[Supply], places: &Places, progress: &Progress) -> Self {
        Self(supplies.iter().map(|supply| (*supply, supply.obtain(places, progress))).collect())
    }

    /// Returns the path of a supply.
    pub(crate) fn path(&self, supply: Supply) -> Result<&Path, Unavailable> {
        match self.0.get(&supply) {
            Some(Ok(path)) => Ok(path),
            Some(Err(unavailable)) => Err(unavailable.clone()),
            None => Err(Unavailable { why: format!("{supply}: not requested"), failed: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_testbed::TempDir;
    use std::fs;

    /// Places without a checkout and with an empty cache.
    fn empty(scratch: &TempDir) -> Places {
        Places { checkouts: vec![scratch.path().into()], cache: scratch.file("cache") }
    }

    #[test]
    fn variable_overrides_checkout_and_cache() {
        let scratch = TempDir::new("supplies").unwrap();
        let places = Places { checkouts: vec![env!("CARGO_MANIFEST_DIR").into()], ..empty(&scratch) };
        fs::create_dir_all(unpacked_kernel(&places.cache)).unwrap();
        for supply in [Supply::Firmware, Supply::GuestKernel] {
            let source = supply.source(Some("/".into()), &places);
            assert_eq!(source, Ok(Source::Given("/".into())));
            let wrong = supply.source(Some("/no/such/file".into()), &places).unwrap_err();
            assert!(wrong.starts_with(&format!("{}: /no/such/file: ", supply.variable())), "{wrong}");
            assert!(wrong.ends_with(supply.expected()), "{wrong}");
            let excluded = supply.source(Some("".into()), &places).unwrap_err();
            assert!(excluded.contains("excluded") && excluded.contains(supply.variable()), "{excluded}");
        }
    }

    #[test]
    fn firmware_is_built_in_a_checkout() {
        let scratch = TempDir::new("supplies").unwrap();
        let mut places = empty(&scratch);
        let missing = Supply::Firmware.source(None, &places).unwrap_err();
        assert!(missing.contains(&format!("contains {}", scratch.path().display())), "{missing}");
        assert!(missing.contains("set CASEMATE_FIRMWARE to the image"), "{missing}");
        places.checkouts.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let Ok(Source::Build(checkout)) = Supply::Firmware.source(None, &places) else {
            panic!("no checkout")
        };
        assert!(checkout.join("apps/firmware/Cargo.toml").is_file());
    }

    #[test]
    fn kernel_comes_from_the_cache_or_a_download() {
        let scratch = TempDir::new("supplies").unwrap();
        let places = empty(&scratch);
        let source = || Supply::GuestKernel.source(None, &places);
        assert_eq!(source(), Ok(Source::Download(places.cache.clone())));
        let kernel = unpacked_kernel(&places.cache);
        fs::create_dir_all(&kernel).unwrap();
        assert_eq!(source(), Ok(Source::Cached(kernel)));
    }

    #[test]
    fn supplies_that_were_not_requested_are_unavailable() {
        let unavailable = Supplies::default().path(Supply::Firmware).unwrap_err();
        assert_eq!((unavailable.why.as_str(), unavailable.failed), ("firmware: not requested", false));
    }
}
