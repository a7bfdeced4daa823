//! Artifacts that an experiment obtains before its steps, for example the firmware's image and the kernel of
//! a guest. An environment variable names an artifact that exists. Otherwise the artifact is installed, built
//! in a checkout, or downloaded into a cache directory.

use crate::{Progress, Requirement};
use casemate_testbed::{
    Error, build_in_checkout, check_download_programs, find_cargo, find_checkout, obtain_kernel,
    unpacked_kernel,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file or directory that an experiment can do without, but not some of its measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Artifact {
    /// Image of the firmware.
    Firmware,
    /// Linux kernel for a guest, in `boot` and `lib/modules` of a directory.
    GuestKernel,
    /// Program with lwIP.
    Lwip,
    /// Image for the Raspberry Pi, which counts instructions.
    Pi,
}

/// Reason why an artifact is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Object, cause and next step.
    pub why: String,
    /// Whether a build failed that should have succeeded on this machine.
    pub failed: bool,
}

/// Directories in which artifacts are searched, built or stored.
#[derive(Debug, Clone)]
pub struct ArtifactPaths {
    /// Paths that may be inside a checkout, in order of preference: the program and the working directory.
    pub checkouts: Vec<PathBuf>,
    /// Directories of installed programs, in order of preference: that of the running program, and the PATH.
    pub programs: Vec<PathBuf>,
    /// Directory for downloads, which keeps them for the next run.
    pub cache: PathBuf,
}

/// Where an artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Path in the environment variable.
    Given(PathBuf),
    /// Installed program.
    Installed(PathBuf),
    /// Built in this checkout with this task of `cargo xtask`.
    Build(PathBuf, &'static [&'static str]),
    /// Downloaded by an earlier run.
    Cached(PathBuf),
    /// Downloaded into this cache directory.
    Download(PathBuf),
}

/// Artifacts of one run. Artifacts that were not requested are unavailable.
#[derive(Debug, Clone, Default)]
pub struct Artifacts {
    obtained: BTreeMap<Artifact, Result<PathBuf, Unavailable>>,
    excluded: BTreeSet<Artifact>,
}

impl ArtifactPaths {
    /// Directory for downloads unless a caller selects another one. Only root can run what needs them.
    pub const CACHE: &'static str = "/var/cache/casemate";

    /// Paths of the running program.
    pub fn for_program(cache: impl Into<PathBuf>) -> Self {
        let [program, directory] = [std::env::current_exe().ok(), std::env::current_dir().ok()];
        let own = program.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            programs: own.into_iter().chain(std::env::split_paths(&path)).collect(),
            checkouts: program.into_iter().chain(directory).collect(),
            cache: cache.into(),
        }
    }
}

impl Artifact {
    /// Environment variable with a path. An empty value excludes the artifact.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Firmware => "CASEMATE_FIRMWARE",
            Self::GuestKernel => "CASEMATE_GUEST_KERNEL",
            Self::Lwip => "CASEMATE_LWIP",
            Self::Pi => "CASEMATE_PI",
        }
    }

    /// Task of `cargo xtask` that builds the artifact and prints its path in the last line; `None` if the
    /// artifact is downloaded.
    const fn task(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Firmware => Some(&["firmware"]),
            Self::GuestKernel => None,
            Self::Lwip => Some(&["lwip", "--example"]),
            Self::Pi => Some(&["pi"]),
        }
    }

    /// File name of an installed program; `None` if the artifact cannot be installed.
    const fn installed_name(self) -> Option<&'static str> {
        match self {
            Self::Lwip => Some("casemate-lwip"),
            Self::Firmware | Self::GuestKernel | Self::Pi => None,
        }
    }

    /// What the machine needs to build the artifact, in addition to cargo.
    const fn build_requirements(self) -> &'static [Requirement] {
        match self {
            Self::Firmware | Self::GuestKernel => &[],
            Self::Lwip => &[Requirement::CC],
            Self::Pi => &[Requirement::RUSTC_WEB],
        }
    }

    /// Whether a failure to obtain the artifact is an error. The task for lwIP and the download of the kernel
    /// fail without a network.
    const fn must_build(self) -> bool {
        matches!(self, Self::Firmware | Self::Pi)
    }

    /// What the environment variable has to name.
    fn expected(self) -> String {
        match self.task() {
            Some(task) => format!("the file that `cargo xtask {}` builds", task.join(" ")),
            None => "a directory with boot/vmlinuz-* and lib/modules".into(),
        }
    }

    /// What the machine needs to use the artifact.
    pub const fn requirements(self) -> &'static [Requirement] {
        use Requirement as R;
        match self {
            Self::Firmware => &[R::Namespaces, R::Tun, R::QEMU],
            Self::GuestKernel => &[R::Namespaces, R::Tun, R::QEMU, R::BUSYBOX, R::MODPROBE],
            Self::Lwip => &[R::Namespaces, R::Tun],
            Self::Pi => &[R::QEMU_ARM],
        }
    }

    /// Returns why the artifact cannot be used here, without a build or a download; `None` if it may be
    /// possible.
    pub fn missing(self, paths: &ArtifactPaths) -> Option<String> {
        let missing = self.requirements().iter().find_map(|requirement| requirement.missing());
        missing.or_else(|| self.source(std::env::var_os(self.variable()), paths).err())
    }

    /// Decides where the artifact comes from, given the value of its variable.
    pub(crate) fn source(self, given: Option<OsString>, paths: &ArtifactPaths) -> Result<Source, String> {
        let (variable, expected) = (self.variable(), self.expected());
        if is_exclusion(given.as_deref()) {
            return Err(format!("{self}: excluded by the empty environment variable {variable}"));
        }
        if let Some(given) = given {
            let path = PathBuf::from(given);
            return match std::fs::metadata(&path) {
                Ok(_) => Ok(Source::Given(path)),
                Err(error) => Err(format!("{variable}: {}: {error}; expected {expected}", path.display())),
            };
        }
        if let Some(program) = self.find_installed(paths) {
            return Ok(Source::Installed(program));
        }
        let explain = |error| format!("{self}: {error}; or {}", self.hint());
        if let Some(task) = self.task() {
            let checkout = self.find_checkout(paths)?;
            find_cargo(&checkout).map_err(explain)?;
            let missing = self.build_requirements().iter().find_map(|requirement| requirement.missing());
            return match missing {
                Some(missing) => Err(explain(Error::new(missing))),
                None => Ok(Source::Build(checkout, task)),
            };
        }
        let kernel = unpacked_kernel(&paths.cache);
        if kernel.exists() {
            return Ok(Source::Cached(kernel));
        }
        check_download_programs().map_err(explain)?;
        Ok(Source::Download(paths.cache.clone()))
    }

    fn find_installed(self, paths: &ArtifactPaths) -> Option<PathBuf> {
        let name = self.installed_name()?;
        paths.programs.iter().map(|directory| directory.join(name)).find(|program| program.is_file())
    }

    fn find_checkout(self, paths: &ArtifactPaths) -> Result<PathBuf, String> {
        let found = paths.checkouts.iter().find_map(|path| find_checkout(path));
        found.map(Path::to_path_buf).ok_or_else(|| {
            let paths: Vec<String> = paths.checkouts.iter().map(|path| path.display().to_string()).collect();
            format!(
                "{self}: no checkout of Casemate contains {}: run the program in a checkout, or {}",
                paths.join(" or "),
                self.hint()
            )
        })
    }

    /// Next step if an artifact could not be obtained.
    fn hint(self) -> String {
        let set = format!("set {} to {}", self.variable(), self.expected());
        match self.installed_name() {
            Some(name) => format!("{set}, or install it as {name} in the PATH"),
            None => set,
        }
    }

    /// Obtains the artifact. Shows on standard error what it does.
    fn obtain(self, paths: &ArtifactPaths, progress: &Progress) -> Result<PathBuf, Unavailable> {
        let unavailable = |why| Unavailable { why, failed: false };
        if let Some(missing) = self.missing(paths) {
            return Err(unavailable(missing));
        }
        let source = self.source(std::env::var_os(self.variable()), paths).map_err(unavailable)?;
        let start = Instant::now();
        let report = |line: &str| progress.set_message(line);
        let done = match &source {
            Source::Given(path) | Source::Installed(path) | Source::Cached(path) => return Ok(path.clone()),
            Source::Build(checkout, task) => {
                progress.print_line(&format!(
                    "{self}: cargo xtask {} in {}",
                    task.join(" "),
                    checkout.display()
                ));
                build_in_checkout(checkout, task, &report)
            }
            Source::Download(cache) => {
                progress.print_line(&format!("{self}: download to {} with apt-get", cache.display()));
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
                why: format!("{self}: {error}; or {}", self.hint()),
                failed: self.must_build(),
            }),
        }
    }
}

/// Returns whether the value of a variable excludes its artifact.
fn is_exclusion(value: Option<&OsStr>) -> bool {
    value.is_some_and(OsStr::is_empty)
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firmware => "firmware",
            Self::GuestKernel => "kernel of the guest",
            Self::Lwip => "program with lwIP",
            Self::Pi => "image for the Raspberry Pi",
        })
    }
}

impl Artifacts {
    /// Obtains these artifacts.
    pub fn obtain(artifacts: &[Artifact], paths: &ArtifactPaths, progress: &Progress) -> Self {
        let is_excluded =
            |artifact: &Artifact| is_exclusion(std::env::var_os(artifact.variable()).as_deref());
        Self {
            obtained: artifacts
                .iter()
                .map(|artifact| (*artifact, artifact.obtain(paths, progress)))
                .collect(),
            excluded: artifacts.iter().copied().filter(is_excluded).collect(),
        }
    }

    /// Artifacts of a run for which the user has excluded this one.
    #[cfg(test)]
    pub(crate) fn excluding(artifact: Artifact) -> Self {
        Self { excluded: BTreeSet::from([artifact]), ..Self::default() }
    }

    /// Returns whether the user has excluded an artifact. A page does not mention what needs it.
    pub(crate) fn is_excluded(&self, artifact: Artifact) -> bool {
        self.excluded.contains(&artifact)
    }

    /// Returns the path of an artifact.
    pub fn path(&self, artifact: Artifact) -> Result<&Path, Unavailable> {
        match self.obtained.get(&artifact) {
            Some(Ok(path)) => Ok(path),
            Some(Err(unavailable)) => Err(unavailable.clone()),
            None => Err(Unavailable { why: format!("{artifact}: not requested"), failed: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_testbed::TempDir;
    use std::fs;

    /// Paths without a checkout and with an empty cache.
    fn empty(scratch: &TempDir) -> ArtifactPaths {
        let programs = vec![scratch.file("first"), scratch.file("second")];
        ArtifactPaths { checkouts: vec![scratch.path().into()], programs, cache: scratch.file("cache") }
    }

    #[test]
    fn variable_overrides_checkout_and_cache() {
        let scratch = TempDir::new("artifacts").unwrap();
        let paths = ArtifactPaths { checkouts: vec![env!("CARGO_MANIFEST_DIR").into()], ..empty(&scratch) };
        fs::create_dir_all(unpacked_kernel(&paths.cache)).unwrap();
        for artifact in [Artifact::Firmware, Artifact::GuestKernel, Artifact::Lwip, Artifact::Pi] {
            let source = artifact.source(Some("/".into()), &paths);
            assert_eq!(source, Ok(Source::Given("/".into())));
            let wrong = artifact.source(Some("/no/such/file".into()), &paths).unwrap_err();
            assert!(wrong.starts_with(&format!("{}: /no/such/file: ", artifact.variable())), "{wrong}");
            assert!(wrong.ends_with(&artifact.expected()), "{wrong}");
            let excluded = artifact.source(Some("".into()), &paths).unwrap_err();
            assert!(excluded.contains("excluded") && excluded.contains(artifact.variable()), "{excluded}");
        }
    }

    #[test]
    fn firmware_is_built_in_a_checkout() {
        let scratch = TempDir::new("artifacts").unwrap();
        let mut paths = empty(&scratch);
        let missing = Artifact::Firmware.source(None, &paths).unwrap_err();
        assert!(missing.contains(&format!("contains {}", scratch.path().display())), "{missing}");
        assert!(missing.contains("set CASEMATE_FIRMWARE to the file"), "{missing}");
        paths.checkouts.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let Ok(Source::Build(checkout, ["firmware"])) = Artifact::Firmware.source(None, &paths) else {
            panic!("no checkout")
        };
        assert!(checkout.join("apps/firmware/Cargo.toml").is_file());
    }

    #[test]
    fn an_installed_lwip_program_precedes_a_build() {
        let scratch = TempDir::new("artifacts").unwrap();
        let mut paths = empty(&scratch);
        let missing = Artifact::Lwip.source(None, &paths).unwrap_err();
        assert!(
            missing.contains("`cargo xtask lwip --example` builds, or install it as casemate-lwip"),
            "{missing}"
        );
        paths.checkouts.push(env!("CARGO_MANIFEST_DIR").into());
        match Artifact::Lwip.source(None, &paths) {
            Ok(source) => assert!(matches!(source, Source::Build(_, ["lwip", "--example"])), "{source:?}"),
            Err(missing) => assert!(missing.contains("no program cc (Debian package gcc)"), "{missing}"),
        }
        for directory in ["second", "first"] {
            let program = scratch.file(directory).join("casemate-lwip");
            fs::create_dir_all(scratch.file(directory)).unwrap();
            fs::write(&program, "").unwrap();
            assert_eq!(Artifact::Lwip.source(None, &paths), Ok(Source::Installed(program)));
        }
    }

    #[test]
    fn kernel_comes_from_the_cache_or_a_download() {
        let scratch = TempDir::new("artifacts").unwrap();
        let paths = empty(&scratch);
        let source = || Artifact::GuestKernel.source(None, &paths);
        match check_download_programs() {
            Ok(()) => assert_eq!(source(), Ok(Source::Download(paths.cache.clone()))),
            Err(error) => assert!(source().unwrap_err().contains(&error.to_string())),
        }
        let kernel = unpacked_kernel(&paths.cache);
        fs::create_dir_all(&kernel).unwrap();
        assert_eq!(source(), Ok(Source::Cached(kernel)));
    }

    #[test]
    fn artifacts_that_were_not_requested_are_unavailable() {
        let unavailable = Artifacts::default().path(Artifact::Firmware).unwrap_err();
        assert_eq!((unavailable.why.as_str(), unavailable.failed), ("firmware: not requested", false));
        assert!(!Artifacts::default().is_excluded(Artifact::Firmware));
    }

    #[test]
    fn only_an_empty_variable_excludes() {
        assert!(is_exclusion(Some("".as_ref())));
        assert!(!is_exclusion(Some("/".as_ref())));
        assert!(!is_exclusion(None));
    }
}
