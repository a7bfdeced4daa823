//! The tables of `verify/interop/scenarios`: what happens in each scenario, and what is expected.
//!
//! A table has one file for each category. A line that starts with `scenario` begins a scenario; each
//! further line is a step. Steps run in this order:
//!
//! ```text
//!     scenario net2net-psk
//!     delete moon rsa/* x509/*               removes files from the directory of swanctl
//!     start moon                             starts the daemon of a host
//!     initiate moon net-net                  initiates a Child SA
//!     initiate moon gw-gw/net-net            the same, with the name of the connection
//!     sa moon gw-gw remote-id=sun.strongswan.org / net-net local-ts=10.1.0.0/16
//!     none moon gw-gw                        no such SA
//!     ping alice 10.2.0.10                   an echo request that must get a reply
//!     silent alice 10.2.0.10                 one that must not get a reply
//!     traffic moon 192.168.0.2               one whose result does not matter
//!     connect carol 10.1.0.10 22             a TCP connection whose result does not matter
//!     esp 192.168.0.1 192.168.0.2            ESP from the first address to the second was on the wire
//!     ah 192.168.0.1 192.168.0.2             the same for AH
//!     sleep 2.5                              seconds
//!     nat moon 10.1.0.0/16 udp 192.168.0.1:1024-1100
//!     map moon 10.1.0.10 10.4.0.1            another source address of what enters a tunnel
//!     dnat sun 192.168.0.1 10.2.0.10         UDP from the first address goes to the second
//!     flush moon                             removes the rules and mappings of `nat` and `dnat`
//!     block carol 192.168.0.1                drops what comes from the address, until `unblock`
//!     reject carol 192.168.0.150 80          no connections to this TCP port
//!     iptables sun -t mangle -A PREROUTING ... a rule of the packet filter
//!     script sun etc/mark_updown             a file of the scenario that `swanctl.conf` names as /etc/...
//!     route carol fec1::/16 fec0::1          destination, next hop
//!     link alice eth1 up
//!     address alice eth1 192.168.0.5/24      another address of an interface
//!     name moon carol 192.168.0.200          what a host looks up for a name
//!     pings carol 10.1.0.10 5 1392           echo requests with a number of bytes; each must get a reply
//!     swanctl moon --terminate --ike gw      a command, which must succeed
//!     serve new.crl old.crl                  winnetou serves the first file under the path of the second
//!     radius alice                           starts FreeRADIUS with the files of the host
//!     accounting alice "User-Name = x"       the records of accounting contain the words
//! ```
//!
//! `sa` and `none` have the names and values of vici: first those of the IKE SA, then, after each `/`, the
//! name and the values of a Child SA. A name that ends with `*` is the beginning of a name. The IKE SA must
//! be established and its Child SAs installed. The value `%keyid` stands for every key ID. Words with
//! spaces are in double quotes. Four more lines are about a whole scenario:
//!
//! ```text
//!     charon REASON                          charon cannot take part on this machine: Casemate has all roles
//!     alias moon 10.1.0.10 10.1.0.20         addresses of other hosts that charon needs as its own
//!     role carol REASON                      Casemate cannot take this role
//!     skip REASON                            the scenario does not run
//! ```

use crate::change::Change;
use casemate_interop::{Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// A scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// Category of strongSwan's test suite, such as `ikev2`.
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// Reason why charon cannot take part on this machine.
    pub(crate) without_charon: Option<String>,
    /// Addresses of other hosts that charon needs as its own, with the host. kernel-libipsec installs no
    /// tunnel whose local traffic selector contains no address of the host.
    pub(crate) aliases: Vec<(String, String)>,
    /// Hosts whose role Casemate cannot take, with the reasons.
    pub(crate) without_role: BTreeMap<String, String>,
    /// Reason why the scenario does not run.
    pub(crate) skipped: Option<String>,
}

/// A step, with the text of its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) text: String,
    pub(crate) action: Action,
}

impl Step {
    /// First words of the line, which name the step in results.
    pub(crate) fn label(&self) -> String {
        self.text.split(' ').take(3).collect::<Vec<_>>().join(" ")
    }
}

/// What a step does or expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Delete { host: String, patterns: Vec<String> },
    Script { host: String, path: String },
    Start { host: String },
    Initiate { host: String, connection: Option<String>, child: String },
    Sa { host: String, sa: ExpectedSa },
    None { host: String, sa: ExpectedSa },
    Ping { host: String, to: String, expected: Option<bool> },
    Connect { host: String, to: String, port: String },
    OnWire { protocol: Protocol, from: String, to: String },
    Sleep(Duration),
    Change(Change),
    PingAll { host: String, to: String, count: String, size: String },
    Swanctl { host: String, arguments: Vec<String> },
    Accounting { host: String, words: String },
}

/// Protocol of protected packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Esp,
    Ah,
}

/// Names and values that a listing must contain.
pub(crate) type Values = Vec<(String, String)>;

/// Expected IKE SA with its Child SAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpectedSa {
    pub(crate) name: String,
    pub(crate) values: Values,
    /// Name and values of each Child SA.
    pub(crate) children: Vec<(String, Values)>,
}

impl Scenario {
    /// Returns the category and the name.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.category, self.name)
    }

    /// Whether all echo requests of the scenario must get a reply, and packets must be protected. Then no
    /// inner address may be seen outside.
    pub(crate) fn is_protected(&self) -> bool {
        let is_other =
            |step: &Step| matches!(&step.action, Action::Ping { expected, .. } if *expected != Some(true));
        let is_wire = |step: &Step| matches!(step.action, Action::OnWire { .. });
        self.steps.iter().any(is_wire) && !self.steps.iter().any(is_other)
    }

    /// Returns the hosts that run IKE, in the order in which they start.
    pub(crate) fn ike_hosts(&self) -> Vec<&str> {
        let mut hosts = Vec::new();
        for step in &self.steps {
            if let Action::Start { host } = &step.action
                && !hosts.contains(&host.as_str())
            {
                hosts.push(host.as_str());
            }
        }
        hosts
    }
}

/// Parses the table of a category.
pub(crate) fn parse(category: &str, text: &str) -> Result<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = || format!("scenarios/{category}.txt:{number}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "scenario" {
            scenarios.push(Scenario {
                category: category.into(),
                name: rest.trim().into(),
                ..Scenario::default()
            });
            continue;
        }
        let scenario = scenarios.last_mut().ok_or_else(|| Error::new(format!("{}: no scenario", at())))?;
        match word {
            "charon" => scenario.without_charon = Some(rest.into()),
            "alias" => {
                let (host, addresses) = rest.split_once(' ').unwrap_or((rest, ""));
                let aliases = addresses.split(' ').map(|address| (host.to_owned(), address.to_owned()));
                scenario.aliases.extend(aliases);
            }
            "role" => {
                let (host, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                scenario.without_role.insert(host.into(), reason.into());
            }
            "skip" => scenario.skipped = Some(rest.into()),
            _ => {
                let action = action(word, &words(rest)).map_err(Error::context(at()))?;
                scenario.steps.push(Step { text: line.into(), action });
            }
        }
    }
    Ok(scenarios)
}

fn action(word: &str, words: &[String]) -> Result<Action> {
    let expected = |expected| match words {
        [host, to] => Ok(Action::Ping { host: host.clone(), to: to.clone(), expected }),
        _ => Err(Error::new(format!("`{word}` expects a host and an address"))),
    };
    let wire = |protocol| match words {
        [from, to] => Ok(Action::OnWire { protocol, from: from.clone(), to: to.clone() }),
        _ => Err(Error::new(format!("`{word}` expects two addresses"))),
    };
    match (word, words) {
        ("delete", [host, patterns @ ..]) => {
            Ok(Action::Delete { host: host.clone(), patterns: patterns.to_vec() })
        }
        ("script", [host, path]) => Ok(Action::Script { host: host.clone(), path: path.clone() }),
        ("start", [host]) => Ok(Action::Start { host: host.clone() }),
        ("initiate", [host, child]) => Ok(match child.split_once('/') {
            None => Action::Initiate { host: host.clone(), connection: None, child: child.clone() },
            Some((connection, child)) => Action::Initiate {
                host: host.clone(),
                connection: Some(connection.into()),
                child: child.into(),
            },
        }),
        ("ping", _) => expected(Some(true)),
        ("silent", _) => expected(Some(false)),
        ("traffic", _) => expected(None),
        ("pings", [host, to, count, size]) => Ok(Action::PingAll {
            host: host.clone(),
            to: to.clone(),
            count: count.clone(),
            size: size.clone(),
        }),
        ("connect", [host, to, port]) => {
            Ok(Action::Connect { host: host.clone(), to: to.clone(), port: port.clone() })
        }
        ("esp", _) => wire(Protocol::Esp),
        ("ah", _) => wire(Protocol::Ah),
        ("sleep", [seconds]) => {
            let seconds: f64 = seconds.parse().map_err(Error::context("sleep"))?;
            Duration::try_from_secs_f64(seconds).map(Action::Sleep).map_err(Error::context("sleep"))
        }
        ("sa" | "none", [host, rest @ ..]) => {
            let (host, sa) = (host.clone(), expected_sa(rest)?);
            Ok(if word == "sa" { Action::Sa { host, sa } } else { Action::None { host, sa } })
        }
        ("swanctl", [host, arguments @ ..]) => {
            Ok(Action::Swanctl { host: host.clone(), arguments: arguments.to_vec() })
        }
        ("accounting", [host, words]) => Ok(Action::Accounting { host: host.clone(), words: words.clone() }),
        _ => Change::parse(word, words)
            .map(Action::Change)
            .ok_or_else(|| Error::new(format!("`{word}` with {} words is no step", words.len()))),
    }
}

fn expected_sa(words: &[String]) -> Result<ExpectedSa> {
    let mut sections = words.split(|word| word == "/").map(|section| {
        let (name, values) = section.split_first().ok_or_else(|| Error::new("an SA has no name"))?;
        let pair = |word: &String| {
            let pair = word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            pair.ok_or_else(|| Error::new(format!("`{word}` is not NAME=VALUE")))
        };
        Ok((name.clone(), values.iter().map(pair).collect::<Result<Values>>()?))
    });
    let (name, values) = sections.next().unwrap_or_else(|| Err(Error::new("an SA has no name")))?;
    Ok(ExpectedSa { name, values, children: sections.collect::<Result<_>>()? })
}

/// Splits a line at spaces outside of double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => {
                if let Some(word) = words.last_mut() {
                    word.push(character);
                }
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_scenarios() {
        let text = "# comment\nscenario one\ncharon no marks\nrole sun no time\nstart moon\ninitiate moon \
                    gw/net\n\
                    sa moon gw \"remote-id=C=CH, CN=x\" / net local-ts=10.1.0.0/16\n\nscenario two\nskip \
                    no DNS\n";
        let scenarios = parse("ikev2", text).unwrap();
        assert_eq!(scenarios.len(), 2);
        assert_eq!(scenarios[0].full_name(), "ikev2/one");
        assert_eq!(scenarios[0].ike_hosts(), ["moon"]);
        assert_eq!(scenarios[0].without_charon.as_deref(), Some("no marks"));
        assert_eq!(scenarios[0].without_role["sun"], "no time");
        assert_eq!(scenarios[1].skipped.as_deref(), Some("no DNS"));
        let Action::Initiate { connection, child, .. } = &scenarios[0].steps[1].action else { panic!() };
        assert_eq!((connection.as_deref(), child.as_str()), (Some("gw"), "net"));
        let Action::Sa { sa, .. } = &scenarios[0].steps[2].action else { panic!() };
        assert_eq!(sa.values, [("remote-id".to_owned(), "C=CH, CN=x".to_owned())]);
        assert_eq!(sa.children[0].0, "net");
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("ikev2", "scenario one\nfly moon\n").unwrap_err().to_string();
        assert_eq!(error, "scenarios/ikev2.txt:2: `fly` with 1 words is no step");
        assert!(parse("ikev2", "start moon\n").is_err());
    }
}
