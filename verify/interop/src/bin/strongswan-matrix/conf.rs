//! Configuration in nested sections: `swanctl.conf`, which both peers read, and `strongswan.conf`.

use std::collections::BTreeMap;
use std::fmt;

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
