//! What a machine must have for a step.

use casemate_stage::governor::Governors;
use casemate_stage::{Netns, is_root};
use std::fmt;
use std::fs::File;
use std::process::{Command, Stdio};

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To be root, and network namespaces.
    Namespaces,
    /// TUN interfaces.
    Tun,
    /// Frequencies of the processor that can be governed.
    Governor,
    /// A program in the PATH, and the Debian package that it comes from.
    Program(&'static str, &'static str),
}

impl Need {
    /// What is missing here, in a line; `None` if nothing is.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Namespaces if !is_root() => Some("no root: network namespaces need it".into()),
            Self::Namespaces => Netns::new().err().map(|error| error.to_string()),
            Self::Tun => {
                let opened = File::options().read(true).write(true).open("/dev/net/tun");
                opened.err().map(|error| format!("no TUN interfaces: /dev/net/tun: {error}"))
            }
            Self::Governor => Governors::here().err().map(|error| error.to_string()),
            Self::Program(name, package) => {
                let started =
                    Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
                started.err().map(|error| format!("no program {name} (Debian package {package}): {error}"))
            }
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaces => f.write_str("root, network namespaces"),
            Self::Tun => f.write_str("TUN interfaces"),
            Self::Governor => f.write_str("a frequency governor that can be set"),
            Self::Program(name, _) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let missing = Need::Program("no-such-program", "no-package").missing().unwrap();
        assert!(missing.contains("no-such-program (Debian package no-package)"), "{missing}");
        assert_eq!(Need::Program("sh", "dash").missing(), None);
    }
}
