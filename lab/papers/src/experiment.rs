//! Experiments, their steps, and the requirements of a step.

use crate::{Artifact, ArtifactPaths, Artifacts, Progress, bare, embedded, homenet, streams, voice};
use casemate_measure::report::{Paper, Part};
use casemate_testbed::governor::Governors;
use casemate_testbed::{Error, Netns, Result, is_root};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// All experiments, in the order in which they are listed to the user.
pub static ALL: &[&Experiment] =
    &[&streams::STREAMS, &voice::VOICE, &bare::BARE, &homenet::HOMENET, &embedded::EMBEDDED];

/// Returns the experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name)
}

/// Reproduction of an experiment from a paper.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line and of the result file.
    pub name: &'static str,
    /// Publication.
    pub paper: fn() -> Paper,
    /// Summary, one paragraph.
    pub summary: &'static str,
    /// What the short form cannot determine, each in one sentence.
    pub short_form_limits: &'static [&'static str],
    /// Artifacts that are built or downloaded before the time of the steps starts. Without one of them, a
    /// step skips the measurements that need it, or is skipped if the artifact is one of its requirements.
    pub artifacts: &'static [Artifact],
    /// Steps in their order of execution.
    pub steps: &'static [Step],
}

/// An independent step of an experiment. The results of the other steps are useful without it.
#[derive(Debug)]
pub struct Step {
    /// Short title.
    pub title: &'static str,
    /// Requirements. The step is skipped if one is missing.
    pub requirements: &'static [Requirement],
    /// Share of the experiment's time, relative to the other steps that can run.
    pub share: u32,
    /// Runs the step. Measurements that it has to skip are in [`Part::skipped`].
    pub run: fn(&Context) -> Result<Vec<Part>>,
}

/// Environment of a step.
#[derive(Debug, Clone)]
pub struct Context {
    /// Whether to run the short form, with fewer and shorter repetitions.
    pub quick: bool,
    /// Time for the step. The step is abandoned if it takes much longer.
    pub time: Duration,
    /// Path of the program `casemate`.
    pub program: PathBuf,
    /// Directory for temporary files. Its path is short.
    pub scratch: PathBuf,
    /// Artifacts of the experiment.
    pub artifacts: Artifacts,
    /// Progress display.
    pub progress: Progress,
}

impl Context {
    /// Returns the path of an artifact that the step requires.
    pub(crate) fn artifact(&self, artifact: Artifact) -> Result<&Path> {
        self.artifacts.path(artifact).map_err(|unavailable| Error::new(unavailable.why))
    }
}

/// A requirement that not every machine fulfils.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Root and network namespaces.
    Namespaces,
    /// TUN interfaces.
    Tun,
    /// A frequency governor that can be set.
    Governor,
    /// A program in the PATH, and the Debian package that contains it.
    Program(&'static str, &'static str),
    /// An artifact of the experiment.
    Artifact(Artifact),
}

impl Requirement {
    /// QEMU for x86-64, for firmware and guest.
    pub const QEMU: Self = Self::Program("qemu-system-x86_64", "qemu-system-x86");
    /// QEMU for ARM boards.
    pub const QEMU_ARM: Self = Self::Program("qemu-system-arm", "qemu-system-arm");
    /// Programs of the guest.
    pub const BUSYBOX: Self = Self::Program("/bin/busybox", "busybox-static");
    /// Program that resolves the dependencies of kernel modules.
    pub const MODPROBE: Self = Self::Program("/sbin/modprobe", "kmod");
    /// C compiler.
    pub const CC: Self = Self::Program("cc", "gcc");
    /// Rust compiler with the sources of `core`, for images of ARM boards.
    pub const RUSTC_WEB: Self = Self::Program("/usr/bin/rustc", "rustc-web");

    /// Returns what is missing, in one line; `None` if the requirement is fulfilled, or if the artifact may
    /// be built.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Namespaces if !is_root() => Some("no root: required for network namespaces".into()),
            Self::Namespaces => Netns::new().err().map(|error| error.to_string()),
            Self::Tun => {
                let opened = File::options().read(true).write(true).open("/dev/net/tun");
                opened.err().map(|error| format!("no TUN interfaces: /dev/net/tun: {error}"))
            }
            Self::Governor => Governors::detect().err().map(|error| error.to_string()),
            Self::Program(name, package) => {
                let started =
                    Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
                started.err().map(|error| format!("no program {name} (Debian package {package}): {error}"))
            }
            Self::Artifact(artifact) => artifact.missing(&ArtifactPaths::for_program(ArtifactPaths::CACHE)),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaces => f.write_str("root, network namespaces"),
            Self::Tun => f.write_str("TUN interfaces"),
            Self::Governor => f.write_str("a frequency governor that can be set"),
            Self::Program(name, _) => f.write_str(name),
            Self::Artifact(artifact) => write!(f, "the {artifact} ({})", artifact.variable()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let missing = Requirement::Program("no-such-program", "no-package").missing().unwrap();
        assert!(missing.contains("no-such-program (Debian package no-package)"), "{missing}");
        assert_eq!(Requirement::Program("sh", "dash").missing(), None);
    }
}
