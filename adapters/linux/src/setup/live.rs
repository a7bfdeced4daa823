//! What was changed in the system, kept in step with policies and addresses that come and go.

use super::{Plan, Wanted, loosened, routes, script_of};
use crate::guard;
use crate::journal::{Journal, Undo, sysctl_path};
use crate::netlink::Netlink;
use crate::route::{Numbers, Route, Rule};
use crate::{Error, nft};
use casemate_datapath::spd::Policy;
use casemate_datapath::{Datapath, Direction};
use std::net::IpAddr;

/// The changes that stand. Dropping it takes them back.
pub struct Live {
    journal: Journal,
    netlink: Netlink,
    tun: String,
    tun_mtu: usize,
    numbers: Numbers,
    encap_ports: Vec<u16>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
    guard: String,
}

impl Live {
    /// What an applied plan has made, of an instance that serves IKE at `encap_ports`.
    pub fn new(plan: &Plan, wanted: &Wanted<'_>, journal: Journal, netlink: Netlink) -> Self {
        let mut live = Self {
            journal,
            netlink,
            tun: wanted.tun.into(),
            tun_mtu: wanted.tun_mtu,
            numbers: wanted.numbers,
            encap_ports: wanted.encap_ports.into(),
            routes: Vec::new(),
            rules: Vec::new(),
            guard: script_of(wanted),
        };
        for change in plan.changes() {
            match change {
                super::Change::Route(route) => live.routes.push(route.clone()),
                super::Change::Rule(rule) => live.rules.push(*rule),
                _ => {}
            }
        }
        live
    }

    /// Follows the policies of a data path. What is new comes before what is gone goes.
    pub(crate) fn follow(&mut self, datapath: &Datapath, peers: &[IpAddr]) -> Result<(), Error> {
        let of = |direction| -> Vec<Policy> {
            datapath.policies(direction).map(|(_, policy)| policy.clone()).collect()
        };
        let (outbound, inbound) = (of(Direction::Outbound), of(Direction::Inbound));
        let (outbound, inbound): (Vec<&Policy>, Vec<&Policy>) =
            (outbound.iter().collect(), inbound.iter().collect());
        let (tun, ports) = (self.tun.clone(), self.encap_ports.clone());
        let wanted = Wanted {
            tun: &tun,
            tun_mtu: self.tun_mtu,
            numbers: self.numbers,
            outbound: &outbound,
            inbound: &inbound,
            encap_ports: &ports,
            peers,
        };
        let new = routes(&wanted, &self.netlink.addresses()?);
        self.follow_guard(&wanted)?;
        for change in loosened(&wanted, &new, &mut self.netlink)? {
            if let super::Change::Sysctl { name, value } = change {
                let path = sysctl_path(&name);
                let failed = |error| Error::new(format!("sysctl {name}"), error);
                let before = std::fs::read_to_string(&path).map_err(failed)?;
                self.journal.note(Undo::Sysctl { name: name.clone(), value: before.trim().into() })?;
                std::fs::write(path, value).map_err(failed)?;
            }
        }
        self.follow_routes(new)
    }

    fn follow_guard(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        let script = script_of(wanted);
        if script != self.guard {
            // In one transaction: there is no moment without a filter. The first line makes the second one right in any case.
            let table = guard::table_name(&self.tun);
            nft::run(&format!("table inet {table} {{ }}\ndelete table inet {table}\n{script}"))?;
            self.guard = script;
        }
        Ok(())
    }

    fn follow_routes(&mut self, new: Vec<Route>) -> Result<(), Error> {
        let failed = |route: &Route, error| Error::new(format!("`{route}`"), error);
        // A route to the same destination has to make room first: the kernel takes one of each.
        let stays = |old: &Route| new.contains(old);
        for old in self.routes.iter().filter(|old| !stays(old)) {
            old.remove(&mut self.netlink).or_else(gone).map_err(|error| failed(old, error))?;
        }
        self.routes.retain(stays);
        for route in new {
            if !self.routes.contains(&route) {
                self.journal.note_once(Undo::Route(route.clone()))?;
                route.add(&mut self.netlink).or_else(there).map_err(|error| failed(&route, error))?;
                self.routes.push(route);
            }
        }
        for v4 in [true, false] {
            let rule = Rule { v4, numbers: self.numbers };
            let needed = self.routes.iter().any(|route| route.dst.is_ipv4() == v4);
            if needed && !self.rules.contains(&rule) {
                self.journal.note_once(Undo::Rule(rule))?;
                rule.add(&mut self.netlink).map_err(|error| Error::new(format!("`{rule}`"), error))?;
                self.rules.push(rule);
            }
        }
        Ok(())
    }

    /// Gives the TUN interface a virtual address.
    pub(crate) fn add_address(&mut self, addr: IpAddr) -> Result<(), Error> {
        let index = self.netlink.link(&self.tun)?.index;
        self.netlink.add_address(index, addr, if addr.is_ipv4() { 32 } else { 128 })
    }

    /// Takes a virtual address away.
    pub(crate) fn remove_address(&mut self, addr: IpAddr) -> Result<(), Error> {
        let index = self.netlink.link(&self.tun)?.index;
        self.netlink.remove_address(index, addr, if addr.is_ipv4() { 32 } else { 128 })
    }
}

/// What is gone already need not be removed: the kernel takes routes away with an address or an interface.
fn gone(error: std::io::Error) -> std::io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT | libc::ENODEV) => Ok(()),
        _ => Err(error),
    }
}

/// What is there already need not be added.
fn there(error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}
