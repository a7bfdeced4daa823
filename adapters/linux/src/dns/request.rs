//! Requests to change name servers, their text for the runner, and the execution in either process.
//!
//! ```text
//! set file casemate0              restore file casemate0
//! server 10.1.0.53
//! domain corp.example
//! all
//! ```

use super::resolv_conf::ResolvConf;
use super::{DnsMethod, DnsSettings, managers};
use crate::Error;
use crate::runner::Runner;
use casemate_ike::config::DomainName;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// A request to change the name servers of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Set these settings, in place of former ones.
    Set(DnsTarget, DnsSettings),
    /// Restore what was before.
    Restore(DnsTarget),
}

/// A change of name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsTarget {
    /// How it is changed.
    pub method: DnsMethod,
    /// Name of the TUN interface.
    pub tun: String,
}

impl DnsTarget {
    /// Restores what was before, at the start or the end of a run. The TUN interface is then new, or about to
    /// end, and the settings of systemd-resolved with it: an error of that is none. Returns a warning.
    pub(crate) fn restore(&self, dns: &DnsHandle) -> Result<Option<String>, Error> {
        match (dns.restore(self), self.method) {
            (Err(_), DnsMethod::SystemdResolved) => Ok(None),
            (restored, _) => restored,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restore(DnsTarget { method, tun }) => writeln!(f, "restore {method} {tun}"),
            Self::Set(DnsTarget { method, tun }, DnsSettings { servers, domains, all_names }) => {
                writeln!(f, "set {method} {tun}")?;
                servers.iter().try_for_each(|server| writeln!(f, "server {server}"))?;
                domains.iter().try_for_each(|domain| writeln!(f, "domain {domain}"))?;
                if *all_names { writeln!(f, "all") } else { Ok(()) }
            }
        }
    }
}

impl FromStr for Request {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::other("name servers", "a malformed request");
        let mut lines = text.lines();
        let words: Vec<&str> = lines.next().ok_or_else(bad)?.split(' ').collect();
        let (word, method, tun) = match words.as_slice() {
            [word, method, tun] => (*word, method.parse().map_err(|()| bad())?, (*tun).to_owned()),
            _ => return Err(bad()),
        };
        let target = DnsTarget { method, tun };
        if word == "restore" {
            return Ok(Self::Restore(target));
        }
        let mut settings = DnsSettings::default();
        for line in lines {
            match line.split_once(' ') {
                Some(("server", addr)) => settings.servers.push(addr.parse().map_err(|_| bad())?),
                Some(("domain", name)) => {
                    settings.domains.push(DomainName::parse(name.as_bytes()).ok_or_else(bad)?);
                }
                None if line == "all" => settings.all_names = true,
                _ => return Err(bad()),
            }
        }
        if word == "set" { Ok(Self::Set(target, settings)) } else { Err(bad()) }
    }
}

/// Changes name servers, in the process of the caller.
#[derive(Debug, Default)]
pub(super) struct Changer {
    /// The file, once this process has changed it.
    file: Option<ResolvConf>,
}

impl Changer {
    /// Fulfils a request of the parent. Returns a warning for the user, or nothing.
    pub(super) fn handle(&mut self, request: &str) -> Result<String, Error> {
        let request: Request = request.parse()?;
        Ok(self.fulfil(&request)?.unwrap_or_default())
    }

    fn fulfil(&mut self, request: &Request) -> Result<Option<String>, Error> {
        match request {
            Request::Set(DnsTarget { method: DnsMethod::SystemdResolved, tun }, settings) => {
                managers::set_link(tun, settings).map(|()| None)
            }
            Request::Restore(DnsTarget { method: DnsMethod::SystemdResolved, tun }) => {
                managers::revert_link(tun).map(|()| None)
            }
            Request::Set(DnsTarget { method: DnsMethod::Resolvconf, tun }, settings) => {
                managers::add_record(tun, settings).map(|()| None)
            }
            Request::Restore(DnsTarget { method: DnsMethod::Resolvconf, tun }) => {
                managers::remove_record(tun).map(|()| None)
            }
            Request::Set(DnsTarget { method: DnsMethod::File, .. }, settings) => {
                self.file.get_or_insert_with(ResolvConf::of_system).set(settings).map(|()| None)
            }
            Request::Restore(DnsTarget { method: DnsMethod::File, .. }) => match self.file.take() {
                Some(mut file) => file.restore(),
                None => ResolvConf::of_system().restore_former(),
            },
        }
    }
}

/// Changes name servers. Clones share one runner.
#[derive(Debug, Clone)]
pub struct DnsHandle(Option<Arc<Mutex<Runner>>>);

impl DnsHandle {
    /// This process changes the name servers itself.
    pub const fn direct() -> Self {
        Self(None)
    }

    /// Starts a process that changes them: this program with the argument `entry`, for which it calls
    /// [`run_dns_server`](super::run_dns_server). The process ends with the calling thread.
    pub fn runner(entry: &str) -> Result<Self, Error> {
        let runner = Runner::start("name servers", &[entry])?;
        Ok(Self(Some(Arc::new(Mutex::new(runner)))))
    }

    /// An error if name servers cannot be changed any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.0.as_deref().map_or(Ok(()), Runner::check_shared)
    }

    /// Sets name servers. Waits for the programs that do so, each of which has a time limit.
    pub(super) fn set(&self, target: &DnsTarget, settings: &DnsSettings) -> Result<(), Error> {
        self.send(&Request::Set(target.clone(), settings.clone())).map(drop)
    }

    /// Restores what was before. Returns a warning if another program has changed that, too.
    pub(crate) fn restore(&self, target: &DnsTarget) -> Result<Option<String>, Error> {
        self.send(&Request::Restore(target.clone()))
    }

    fn send(&self, request: &Request) -> Result<Option<String>, Error> {
        let Some(runner) = &self.0 else { return Changer::default().fulfil(request) };
        let reply = runner.lock().unwrap_or_else(PoisonError::into_inner).run(&request.to_string())?;
        Ok(Some(reply).filter(|reply| !reply.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        let target = |method| DnsTarget { method, tun: "casemate0".into() };
        let settings = DnsSettings {
            servers: vec!["10.1.0.53".parse().unwrap(), "fd00::53".parse().unwrap()],
            domains: vec![DomainName::parse(b"corp.example").unwrap()],
            all_names: true,
        };
        for request in [
            Request::Set(target(DnsMethod::File), settings),
            Request::Set(target(DnsMethod::SystemdResolved), DnsSettings::default()),
            Request::Restore(target(DnsMethod::Resolvconf)),
        ] {
            assert_eq!(request.to_string().parse::<Request>().unwrap(), request);
        }
        for text in [
            "",
            "set",
            "set file",
            "set nothing tun",
            "undo file tun",
            "set file tun\nserver x",
            "set file tun\ndomain a b",
            "set file tun\nall names",
            "set file tun\nexec x",
        ] {
            assert!(text.parse::<Request>().is_err(), "{text:?}");
        }
    }
}
