//! Changes of the network and of its servers: steps of a table that concern no IKE daemon.

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Firewall { host: String, rule: Rule },
    Nat { host: String, source: String, protocol: String, to: String },
    Map { host: String, source: String, to: String },
    Route { host: String, to: String, via: String },
    Link { host: String, interface: String, up: bool },
    Address { host: String, interface: String, address: String },
    Name { host: String, name: String, address: String },
    Serve { file: String, path: String },
    Radius { host: String },
}

/// Change of a packet filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Redirect {
        source: String,
        to: String,
    },
    Flush,
    Block {
        source: String,
    },
    Unblock,
    Reject {
        to: String,
        port: String,
    },
    /// Arguments of iptables.
    Iptables {
        arguments: Vec<String>,
    },
}

impl Change {
    /// Parses a line of a table: its first word and the others. Returns `None` if it is no change.
    pub(crate) fn parse(word: &str, words: &[String]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let firewall = |host: &str, rule| Self::Firewall { host: host.into(), rule };
        Some(match (word, words.as_slice()) {
            ("nat", [host, source, protocol, to]) => Self::Nat {
                host: (*host).into(),
                source: (*source).into(),
                protocol: (*protocol).into(),
                to: (*to).into(),
            },
            ("map", [host, source, to]) => {
                Self::Map { host: (*host).into(), source: (*source).into(), to: (*to).into() }
            }
            ("dnat", [host, source, to]) => {
                firewall(host, Rule::Redirect { source: (*source).into(), to: (*to).into() })
            }
            ("flush", [host]) => firewall(host, Rule::Flush),
            ("block", [host, source]) => firewall(host, Rule::Block { source: (*source).into() }),
            ("unblock", [host, _]) => firewall(host, Rule::Unblock),
            ("reject", [host, to, port]) => {
                firewall(host, Rule::Reject { to: (*to).into(), port: (*port).into() })
            }
            ("iptables", [host, arguments @ ..]) => {
                let arguments = arguments.iter().map(|&word| word.into()).collect();
                firewall(host, Rule::Iptables { arguments })
            }
            ("route", [host, to, via]) => {
                Self::Route { host: (*host).into(), to: (*to).into(), via: (*via).into() }
            }
            ("link", [host, interface, state]) => {
                Self::Link { host: (*host).into(), interface: (*interface).into(), up: *state == "up" }
            }
            ("address", [host, interface, address]) => Self::Address {
                host: (*host).into(),
                interface: (*interface).into(),
                address: (*address).into(),
            },
            ("name", [host, name, address]) => {
                Self::Name { host: (*host).into(), name: (*name).into(), address: (*address).into() }
            }
            ("serve", [file, path]) => Self::Serve { file: (*file).into(), path: (*path).into() },
            ("radius", [host]) => Self::Radius { host: (*host).into() },
            _ => return None,
        })
    }
}
