//! Configuration of a case for both sides: a plain tunnel with a pre-shared key, plus the changes of the
//! case. The files have nested sections: `swanctl.conf`, which both peers read, and `strongswan.conf`.

use crate::peer::{Family, Side};
use crate::pki::{Credential, Pki};
use casemate_interop::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Names of the connection and the child of every case.
pub(crate) const CONNECTION: &str = "t";
pub(crate) const CHILD: &str = "c";
/// Name of the second child, for cases with two children.
pub(crate) const SECOND_CHILD: &str = "c2";

/// Configuration of one side.
#[derive(Debug, Clone, Default)]
pub(crate) struct SidePlan {
    /// `swanctl.conf`.
    pub(crate) conf: Conf,
    /// Settings of `strongswan.conf` below the name of the daemon, for strongSwan only.
    pub(crate) daemon: Conf,
    /// Certificates, keys and CRLs.
    pub(crate) credentials: Vec<Credential>,
}

impl SidePlan {
    /// Writes `swanctl.conf` and its credentials to a directory, and returns the path of `swanctl.conf`.
    pub(crate) fn write(&self, directory: &Path, pki: &Pki) -> Result<PathBuf> {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        self.credentials.iter().try_for_each(|credential| pki.install(*credential, directory))?;
        let file = directory.join("swanctl.conf");
        fs::write(&file, self.conf.to_string()).map_err(Error::context(file.display()))?;
        Ok(file)
    }
}

/// Endpoints of the traffic of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// The networks behind the two sides.
    Networks,
    /// The two hosts themselves.
    Hosts,
}

impl Between {
    /// Returns the address of a side for this traffic.
    pub(crate) fn address(self, side: Side, family: Family) -> String {
        match self {
            Self::Networks => side.behind(family),
            Self::Hosts => side.wire(family),
        }
    }
}

/// Configuration of both sides.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) initiator: Side,
    pub(crate) between: Between,
    /// Source ports to which the router translates the initiator before the peers start, such as
    /// `20000-20099`.
    pub(crate) hidden_behind: Option<String>,
    outer: Family,
    left: SidePlan,
    right: SidePlan,
}

impl Plan {
    /// Creates the plan of a tunnel between the networks behind the two sides, with IPv4 inside and
    /// outside.
    pub(crate) fn new(initiator: Side) -> Self {
        let (left, right) = (SidePlan::default(), SidePlan::default());
        let (between, outer) = (Between::Networks, Family::V4);
        let mut plan = Self { initiator, between, hidden_behind: None, outer, left, right };
        plan.connection("version", "2");
        plan.connection("proposals", "aes128-sha256-x25519");
        plan.connection("mobike", "no");
        plan.child("esp_proposals", "aes128gcm16");
        plan.outer(Family::V4);
        plan.inner(&[Family::V4]);
        for side in Side::BOTH {
            plan.connection_of(side, "local.auth", "psk");
            plan.connection_of(side, "local.id", side.id());
            plan.connection_of(side, "remote.auth", "psk");
            plan.connection_of(side, "remote.id", side.other().id());
        }
        plan.both("secrets.ike-t.secret", "\"a secret of the two\"");
        plan
    }

    /// Creates the plan of transport mode between the two hosts, with IPv4.
    pub(crate) fn transport(initiator: Side) -> Self {
        let mut plan = Self::new(initiator);
        plan.between = Between::Hosts;
        for (setting, value) in [("mode", "transport"), ("local_ts", "dynamic"), ("remote_ts", "dynamic")] {
            plan.child(setting, value);
        }
        plan
    }

    /// Returns the configuration of a side.
    pub(crate) fn side(&self, side: Side) -> &SidePlan {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut SidePlan {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    /// Returns the side that does not initiate.
    pub(crate) fn responder(&self) -> Side {
        self.initiator.other()
    }

    /// Sets a path of `swanctl.conf` on one side.
    pub(crate) fn on(&mut self, side: Side, path: &str, value: &str) {
        self.side_mut(side).conf.set(path, value);
    }

    /// Removes a path of `swanctl.conf` on one side.
    pub(crate) fn without(&mut self, side: Side, path: &str) {
        self.side_mut(side).conf.remove(path);
    }

    /// Stores a section of `swanctl.conf` on one side.
    pub(crate) fn put(&mut self, side: Side, path: &str, section: Conf) {
        self.side_mut(side).conf.put(path, section);
    }

    /// Sets a path of `swanctl.conf` on both sides.
    pub(crate) fn both(&mut self, path: &str, value: &str) {
        Side::BOTH.into_iter().for_each(|side| self.on(side, path, value));
    }

    /// Sets a value of the connection on both sides.
    pub(crate) fn connection(&mut self, path: &str, value: &str) {
        Side::BOTH.into_iter().for_each(|side| self.connection_of(side, path, value));
    }

    /// Sets a value of the connection on one side.
    pub(crate) fn connection_of(&mut self, side: Side, path: &str, value: &str) {
        self.on(side, &format!("connections.{CONNECTION}.{path}"), value);
    }

    /// Sets a value of the child on both sides.
    pub(crate) fn child(&mut self, path: &str, value: &str) {
        Side::BOTH.into_iter().for_each(|side| self.child_of(side, path, value));
    }

    /// Sets a value of the child on one side.
    pub(crate) fn child_of(&mut self, side: Side, path: &str, value: &str) {
        self.connection_of(side, &format!("children.{CHILD}.{path}"), value);
    }

    /// Sets a value of the daemon of strongSwan, if the side is strongSwan.
    pub(crate) fn daemon(&mut self, side: Side, path: &str, value: &str) {
        self.side_mut(side).daemon.set(path, value);
    }

    /// Adds a credential to a side.
    pub(crate) fn credential(&mut self, side: Side, credential: Credential) {
        self.side_mut(side).credentials.push(credential);
    }

    /// Sets the IP version between the peers.
    pub(crate) fn outer(&mut self, family: Family) {
        self.outer = family;
        for side in Side::BOTH {
            self.connection_of(side, "local_addrs", &side.wire(family));
            self.connection_of(side, "remote_addrs", &side.other().wire(family));
        }
    }

    /// Returns the IP version between the peers.
    pub(crate) fn family(&self) -> Family {
        self.outer
    }

    /// Sets the IP versions inside the tunnel.
    pub(crate) fn inner(&mut self, families: &[Family]) {
        let networks =
            |side: Side| families.iter().map(|&family| side.network(family)).collect::<Vec<_>>().join(",");
        for side in Side::BOTH {
            self.child_of(side, "local_ts", &networks(side));
            self.child_of(side, "remote_ts", &networks(side.other()));
        }
    }

    /// Adds a second child between the second networks.
    pub(crate) fn second_child(&mut self) {
        for side in Side::BOTH {
            let path = |name| format!("children.{SECOND_CHILD}.{name}");
            self.connection_of(side, &path("esp_proposals"), "aes128gcm16");
            self.connection_of(side, &path("local_ts"), &side.second_network());
            self.connection_of(side, &path("remote_ts"), &side.other().second_network());
        }
    }
}

/// Section with settings and subsections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conf {
    settings: BTreeMap<String, String>,
    sections: BTreeMap<String, Conf>,
}

impl Conf {
    /// Sets the value at `path`, such as `connections.t.proposals`, and replaces an earlier value.
    pub(crate) fn set(&mut self, path: &str, value: &str) {
        match path.split_once('.') {
            Some((section, rest)) => self.sections.entry(section.into()).or_default().set(rest, value),
            None => drop(self.settings.insert(path.into(), value.into())),
        }
    }

    /// Returns the value at `path`, or an empty string.
    pub(crate) fn get(&self, path: &str) -> &str {
        match path.split_once('.') {
            Some((section, rest)) => self.sections.get(section).map_or("", |section| section.get(rest)),
            None => self.settings.get(path).map_or("", String::as_str),
        }
    }

    /// Returns a copy of the section at `path`, or an empty section.
    pub(crate) fn section(&self, path: &str) -> Self {
        let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let section = self.sections.get(name);
        match rest {
            Some(rest) => section.map_or_else(Self::default, |section| section.section(rest)),
            None => section.cloned().unwrap_or_default(),
        }
    }

    /// Stores a section at `path` and replaces an earlier section.
    pub(crate) fn put(&mut self, path: &str, section: Self) {
        match path.split_once('.') {
            Some((name, rest)) => self.sections.entry(name.into()).or_default().put(rest, section),
            None => drop(self.sections.insert(path.into(), section)),
        }
    }

    /// Removes the setting or the whole section at `path`.
    pub(crate) fn remove(&mut self, path: &str) {
        match path.split_once('.') {
            Some((section, rest)) => self.sections.entry(section.into()).or_default().remove(rest),
            None => {
                self.settings.remove(path);
                self.sections.remove(path);
            }
        }
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "    ".repeat(depth);
        for (name, value) in &self.settings {
            writeln!(f, "{indent}{name} = {value}")?;
        }
        for (name, section) in &self.sections {
            writeln!(f, "{indent}{name} {{")?;
            section.print(f, depth.saturating_add(1))?;
            writeln!(f, "{indent}}}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Conf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_creates_sections_and_replaces_values() {
        let mut conf = Conf::default();
        conf.set("connections.t.version", "1");
        conf.set("connections.t.local.id", "left.test");
        conf.set("connections.t.version", "2");
        conf.set("secrets.ike.secret", "x");
        conf.remove("secrets.ike");
        let expected = "connections {\n    t {\n        version = 2\n        local {\n            id = left.test\n        }\n    \
                        }\n}\nsecrets {\n}\n";
        assert_eq!(conf.to_string(), expected);
    }
}
