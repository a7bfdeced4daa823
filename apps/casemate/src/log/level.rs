//! Levels of log messages, the subsystems they come from, and the filter of `--log-level`.

use std::fmt;
use std::str::FromStr;

/// How serious a message is. The order is from the most to the least serious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something that was requested does not work, and nothing repairs it.
    Error,
    /// Something does not work as configured, or a peer or packet was refused.
    Warning,
    /// An ordinary event, such as a new SA.
    Info,
    /// Details for the search for a fault.
    Debug,
}

impl Level {
    const ALL: [Self; 4] = [Self::Error, Self::Warning, Self::Info, Self::Debug];

    /// Name, as in messages and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Priority of syslog(3), which the journal uses.
    pub(super) const fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Part of the program that a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsystem {
    /// Start, configuration and commands.
    Program,
    /// Negotiation: IKE SAs, Child SAs, certificates and faults of peers.
    Ike,
    /// Packets: drops, lifetimes and policies.
    Datapath,
    /// The operating system: routes, sockets, packet filter and files.
    System,
    /// Applications of the stack server.
    Application,
}

impl Subsystem {
    const ALL: [Self; 5] = [Self::Program, Self::Ike, Self::Datapath, Self::System, Self::Application];

    /// Name, as in messages and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Ike => "ike",
            Self::Datapath => "datapath",
            Self::System => "system",
            Self::Application => "application",
        }
    }
}

/// Which messages are written: the least serious level, and exceptions for subsystems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelFilter {
    level: Level,
    exceptions: Vec<(Subsystem, Level)>,
}

impl Default for LevelFilter {
    fn default() -> Self {
        Self { level: Level::Info, exceptions: Vec::new() }
    }
}

impl LevelFilter {
    /// Whether messages of this level are written.
    pub fn admits(&self, level: Level, subsystem: Subsystem) -> bool {
        let exception = self.exceptions.iter().rev().find(|(of, _)| *of == subsystem);
        level <= exception.map_or(self.level, |(_, level)| *level)
    }
}

impl FromStr for LevelFilter {
    type Err = String;

    /// Parses `LEVEL[,SUBSYSTEM=LEVEL...]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for item in text.split(',').map(str::trim) {
            match item.split_once('=') {
                None => filter.level = parse_level(item)?,
                Some((subsystem, level)) => {
                    filter.exceptions.push((parse_subsystem(subsystem.trim())?, parse_level(level.trim())?));
                }
            }
        }
        Ok(filter)
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| expected(text, Level::ALL.map(Level::name)))
}

fn parse_subsystem(text: &str) -> Result<Subsystem, String> {
    let found = Subsystem::ALL.into_iter().find(|subsystem| subsystem.name() == text);
    found.ok_or_else(|| expected(text, Subsystem::ALL.map(Subsystem::name)))
}

fn expected<const N: usize>(text: &str, names: [&str; N]) -> String {
    format!("`{text}`: one of {} was expected", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_applies_to_its_subsystem_only() {
        let filter: LevelFilter = "warning, ike=debug,datapath=error".parse().unwrap();
        assert!(filter.admits(Level::Debug, Subsystem::Ike));
        assert!(filter.admits(Level::Warning, Subsystem::Program));
        assert!(!filter.admits(Level::Info, Subsystem::Program));
        assert!(!filter.admits(Level::Warning, Subsystem::Datapath));
        let filter: LevelFilter = "ike=error".parse().unwrap();
        assert!(filter.admits(Level::Info, Subsystem::System) && !filter.admits(Level::Info, Subsystem::Ike));
        assert_eq!("info".parse(), Ok(LevelFilter::default()));
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = |text: &str| text.parse::<LevelFilter>().unwrap_err();
        assert_eq!(error("loud"), "`loud`: one of error, warning, info, debug was expected");
        assert!(error("info,esp=debug").starts_with("`esp`: one of program, ike, datapath, system"));
        assert!(error("").starts_with("``"));
    }
}
