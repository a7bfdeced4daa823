//! Runs a scenario with an assignment of roles to hosts.

use crate::change::Change;
use crate::configuration;
use crate::daemon::{Daemon, Programs, Role, refusal};
use crate::network::Network;
use crate::radius::Radius;
use crate::source::Source;
use crate::table::{Action, ExpectedSa, Scenario, Values};
use crate::web::WebServer;
use casemate_interop::{Error, Listing, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit of a run, checked before each step.
const RUN_LIMIT: Duration = Duration::from_secs(90);
/// Time until an SA must be as expected.
const SA_LIMIT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Number of echo requests, of which one must get a reply.
const ATTEMPTS: u32 = 3;

/// Expected value that stands for every key ID: keys are new on each machine.
const KEY_ID: &str = "%keyid";

/// A run of a scenario.
pub(crate) struct Run<'a> {
    programs: &'a Programs,
    source: &'a Source,
    scenario: &'a Scenario,
    directory: PathBuf,
    /// Ends before the network, like the other servers.
    web: WebServer,
    radius: Option<Radius>,
    network: Network,
    daemons: BTreeMap<String, Daemon>,
}

impl<'a> Run<'a> {
    /// Creates the network, and the files of all hosts in `directory`.
    pub(crate) fn new(
        programs: &'a Programs,
        source: &'a Source,
        scenario: &'a Scenario,
        directory: &Path,
    ) -> Result<Self> {
        // Files of an earlier run.
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        let network = Network::new(directory)?;
        let web = WebServer::start(network.netns("winnetou")?, source.web_contents(&scenario.full_name()))?;
        let run = Self {
            web,
            radius: None,
            programs,
            source,
            scenario,
            directory: directory.into(),
            network,
            daemons: BTreeMap::new(),
        };
        for host in scenario.ike_hosts() {
            configuration::write(run.source, &scenario.full_name(), host, &run.host_directory(host))?;
        }
        Ok(run)
    }

    fn host_directory(&self, host: &str) -> PathBuf {
        self.directory.join(host)
    }

    /// Returns the hosts whose configuration Casemate refuses, with the reasons.
    pub(crate) fn refusals(&self) -> Result<BTreeMap<String, String>> {
        for step in &self.scenario.steps {
            if let Action::Delete { host, patterns } = &step.action {
                delete(&self.host_directory(host), patterns)?;
            }
        }
        let mut refusals = BTreeMap::new();
        for host in self.scenario.ike_hosts() {
            let netns = self.network.netns(host)?;
            if let Some(reason) = refusal(self.programs, netns, &self.host_directory(host))? {
                refusals.insert(host.to_owned(), reason);
            }
        }
        Ok(refusals)
    }

    /// Runs all steps and stops the daemons.
    pub(crate) fn perform(mut self, role_of: impl Fn(&str) -> Role) -> Result<()> {
        let start = Instant::now();
        for step in &self.scenario.steps {
            if start.elapsed() > RUN_LIMIT {
                return Err(Error::new(format!("not done after {} s", RUN_LIMIT.as_secs())));
            }
            self.step(&step.action, &role_of).map_err(Error::context(step.label()))?;
        }
        if self.scenario.is_protected() {
            self.network.expect_no_clear_text()?;
        }
        std::mem::take(&mut self.daemons)
            .into_iter()
            .try_for_each(|(host, daemon)| daemon.stop().map_err(Error::context(host)))
    }

    fn step(&mut self, action: &Action, role_of: impl Fn(&str) -> Role) -> Result<()> {
        match action {
            Action::Delete { host, patterns } => delete(&self.host_directory(host), patterns),
            Action::Script { host, path } => {
                let directory = self.host_directory(host);
                configuration::add_script(self.source, &self.scenario.full_name(), host, path, &directory)
            }
            Action::Start { host } => {
                let directory = self.host_directory(host);
                let daemon = Daemon::start(self.programs, &self.network, host, role_of(host), &directory)?;
                self.daemons.insert(host.clone(), daemon);
                Ok(())
            }
            Action::Initiate { host, connection, child } => {
                let netns = self.network.netns(host)?;
                self.set_aliases(true)?;
                self.daemon(host)?.initiate(self.programs, netns, connection.as_deref(), child)?;
                self.set_aliases(false)
            }
            Action::Sa { host, sa } => self.expect_sa(host, sa),
            Action::None { host, sa } => match difference(&self.sas(host)?, sa) {
                None => Err(Error::new("such an SA exists")),
                Some(_) => Ok(()),
            },
            Action::Ping { host, to, expected } => self.ping(host, to, *expected),
            Action::Connect { host, to, port } => self.network.connect_tcp(host, to, port),
            Action::OnWire { protocol, from, to } => self.network.expect_on_wire(*protocol, from, to),
            Action::Sleep(time) => {
                std::thread::sleep(*time);
                Ok(())
            }
            Action::PingAll { host, to, count, size } => self.network.ping_all(host, to, count, size),
            Action::Swanctl { host, arguments } => {
                self.daemon(host)?.command(self.programs, self.network.netns(host)?, arguments)
            }
            Action::Accounting { words, .. } => match &self.radius {
                Some(radius) => radius.expect_record(words),
                None => Err(Error::new("no RADIUS server runs")),
            },
            Action::Change(change) => self.change(change),
        }
    }

    fn change(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Firewall { host, rule } => self.network.change_firewall(host, rule),
            Change::Nat { host, source, protocol, to } => self.network.translate(host, source, protocol, to),
            Change::Map { host, source, to } => self.network.map(host, source, to),
            Change::Route { host, to, via } => {
                self.network.netns(host)?.ip(&format!("route add {to} via {via}\n"))
            }
            Change::Link { host, interface, up } => self.network.set_link(host, interface, *up),
            Change::Address { host, interface, address } => {
                self.network.add_address(host, interface, address)
            }
            Change::Name { host, name, address } => self.network.names().change(host, name, address),
            Change::Serve { file, path } => {
                self.web.replace(file, path);
                Ok(())
            }
            Change::Radius { host } => {
                let directory = self.directory.join("radius");
                let netns = self.network.netns(host)?;
                let name = self.scenario.full_name();
                self.radius = Some(Radius::start(self.source, netns, &name, host, &directory)?);
                Ok(())
            }
        }
    }

    fn daemon(&self, host: &str) -> Result<&Daemon> {
        self.daemons.get(host).ok_or_else(|| Error::new(format!("{host} runs no daemon")))
    }

    fn sas(&self, host: &str) -> Result<Listing> {
        self.daemon(host)?.sas(self.programs, self.network.netns(host)?)
    }

    /// Makes the aliases of hosts with charon local while an SA is set up. Afterwards packets to them are
    /// forwarded again.
    fn set_aliases(&self, are_local: bool) -> Result<()> {
        for (host, alias) in &self.scenario.aliases {
            if self.daemons.get(host).is_some_and(|daemon| daemon.role() == Role::Charon) {
                let netns = self.network.netns(host)?;
                netns.ip(&if are_local {
                    format!(
                        "addr replace {alias}/32 dev eth0\n\
                         route replace local {alias} dev eth0 table local\n"
                    )
                } else {
                    format!("route del local {alias} dev eth0 table local\n")
                })?;
            }
        }
        Ok(())
    }

    fn expect_sa(&self, host: &str, sa: &ExpectedSa) -> Result<()> {
        let start = Instant::now();
        while let Some(difference) = difference(&self.sas(host)?, sa) {
            if start.elapsed() > SA_LIMIT {
                return Err(Error::new(difference));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn ping(&self, host: &str, to: &str, expected: Option<bool>) -> Result<()> {
        let attempts = if expected == Some(true) { ATTEMPTS } else { 1 };
        let replied = self.network.ping(host, to, attempts)?;
        match expected {
            Some(expected) if expected != replied => {
                Err(Error::new(if replied { "a reply" } else { "no reply" }))
            }
            _ => Ok(()),
        }
    }
}

/// Removes the files of a directory that match patterns such as `rsa/*`.
fn delete(directory: &Path, patterns: &[String]) -> Result<()> {
    for pattern in patterns {
        let path = directory.join(pattern);
        match pattern.strip_suffix("/*") {
            Some(folder) => {
                for entry in fs::read_dir(directory.join(folder)).into_iter().flatten().flatten() {
                    fs::remove_file(entry.path()).map_err(Error::context(entry.path().display()))?;
                }
            }
            None if path.exists() => fs::remove_file(&path).map_err(Error::context(path.display()))?,
            None => {}
        }
    }
    Ok(())
}

/// Returns how the listing differs from the expected SA; `None` if it contains such an SA.
fn difference(listing: &Listing, expected: &ExpectedSa) -> Option<String> {
    let events = listing.sections.iter().flat_map(|(_, event)| &event.sections);
    let mut closest: Option<String> = None;
    let is_established = |sa: &Listing| sa.value("state") == "ESTABLISHED" && sa.value("version") == "2";
    let is_named = |name: &str| match expected.name.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == expected.name,
    };
    for (_, sa) in events.filter(|(name, sa)| is_named(name) && is_established(sa)) {
        closest = Some(sa_difference(sa, expected)?);
    }
    Some(closest.unwrap_or_else(|| "no established IKE SA has this name".into()))
}

fn sa_difference(sa: &Listing, expected: &ExpectedSa) -> Option<String> {
    if let Some(different) = different_value(sa, &expected.values) {
        return Some(different);
    }
    let children = sa.section("child-sas").map(|children| children.sections.as_slice()).unwrap_or_default();
    for (name, values) in &expected.children {
        let mut closest = format!("no Child SA `{name}`");
        let is_found = children.iter().filter(|(_, child)| is_installed(child, name)).any(|(_, child)| {
            different_value(child, values).map(|different| closest = format!("{name}: {different}")).is_none()
        });
        if !is_found {
            return Some(closest);
        }
    }
    None
}

fn is_installed(child: &Listing, name: &str) -> bool {
    child.value("name") == name && child.value("state") == "INSTALLED"
}

/// Returns the first value that differs. The expected value of a list has spaces between the items, in any
/// order.
fn different_value(section: &Listing, values: &Values) -> Option<String> {
    values.iter().find_map(|(name, expected)| {
        let list = section.list(name);
        let is_equal = if list.is_empty() {
            section.value(name) == expected || (expected == KEY_ID && is_key_id(section.value(name)))
        } else {
            sorted(list.iter().map(|item| numeric(item))) == sorted(expected.split(' ').map(numeric))
        };
        let found = if list.is_empty() { section.value(name).to_owned() } else { list.join(" ") };
        (!is_equal).then(|| format!("{name} is `{found}`"))
    })
}

/// Whether the text is a SHA-1 digest as charon writes it: bytes with colons.
fn is_key_id(text: &str) -> bool {
    let is_byte =
        |byte: &str| byte.len() == 2 && byte.bytes().all(|digit| b"0123456789abcdef".contains(&digit));
    text.split(':').count() == 20 && text.split(':').all(is_byte)
}

/// Returns a traffic selector with a numeric port. charon prints the name of a registered service.
fn numeric(selector: &str) -> String {
    selector.replace("/ssh]", "/22]")
}

fn sorted(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut items: Vec<String> = items.collect();
    items.sort_unstable();
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_value() {
        let text = "list-sa event {\n gw {\n state = ESTABLISHED\n version = 2\n initiator = yes\n \
                    child-sas {\n net-1 {\n \
                    name = net\n state = INSTALLED\n local-ts = [\n \
                    10.1.0.0/16\n ]\n }\n }\n }\n}\n";
        let listing = Listing::parse(text);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut expected = ExpectedSa {
            name: "gw".into(),
            values: vec![pair("initiator", "yes")],
            children: vec![("net".into(), vec![pair("local-ts", "10.1.0.0/16")])],
        };
        assert_eq!(difference(&listing, &expected), None);
        expected.children.push(("other".into(), Vec::new()));
        assert_eq!(difference(&listing, &expected).as_deref(), Some("no Child SA `other`"));
        expected.values.push(pair("remote-id", "x"));
        assert_eq!(difference(&listing, &expected).as_deref(), Some("remote-id is ``"));
        expected.values = vec![pair("remote-id", KEY_ID)];
        assert!(difference(&listing, &expected).is_some());
        assert!(is_key_id(&["0a"; 20].join(":")) && !is_key_id("0a:0b") && !is_key_id(&["0A"; 20].join(":")));
        expected.name = "no".into();
        assert!(difference(&listing, &expected).is_some());
    }
}
