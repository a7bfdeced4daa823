//! Policy rules, which select routing tables: those of the kernel, and those of an instance.

use super::{Netlink, family};
use crate::Error;
use crate::route::RoutingNumbers;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use std::fmt;
use std::io;

impl Netlink {
    /// All policy rules of an IP version.
    pub(crate) fn rules(&mut self, v4: bool) -> Result<Vec<RuleMessage>, Error> {
        let mut message = RuleMessage::default();
        message.header.family = family(v4);
        let replies = self
            .request(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP)
            .map_err(|error| Error::new("list of rules", error))?;
        let rule = |reply| match reply {
            RouteNetlinkMessage::NewRule(rule) => Some(rule),
            _ => None,
        };
        Ok(replies.into_iter().filter_map(rule).collect())
    }

    pub(crate) fn add_rule(&mut self, rule: RuleMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewRule(rule), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    pub(crate) fn remove_rule(&mut self, rule: RuleMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRule(rule), NLM_F_ACK).map(drop)
    }
}

/// Whether a rule of the kernel is this one. The kernel adds attributes and flags of its own.
fn is_same_rule(rule: &RuleMessage, wanted: &RuleMessage) -> bool {
    let header = |rule: &RuleMessage| {
        let is_inverted = rule.header.flags.contains(RuleFlags::Invert);
        (rule.header.family, rule.header.action, rule.header.src_len, rule.header.dst_len, is_inverted)
    };
    header(rule) == header(wanted) && wanted.attributes.iter().all(|own| rule.attributes.contains(own))
}

/// A rule: packets without our mark use our table first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// For IPv4, otherwise for IPv6.
    pub v4: bool,
    /// The numbers of the instance.
    pub numbers: RoutingNumbers,
}

impl Rule {
    pub(crate) fn add(self, netlink: &mut Netlink) -> io::Result<()> {
        netlink.add_rule(self.message())
    }

    pub(crate) fn remove(self, netlink: &mut Netlink) -> io::Result<()> {
        netlink.remove_rule(self.message())
    }

    /// Whether it is among these rules of the kernel.
    pub(crate) fn is_among(self, rules: &[RuleMessage]) -> bool {
        let own = self.message();
        rules.iter().any(|rule| is_same_rule(rule, &own))
    }

    fn message(self) -> RuleMessage {
        let RoutingNumbers { mark, table, priority } = self.numbers;
        let mut message = RuleMessage::default();
        message.header.family = family(self.v4);
        message.header.action = RuleAction::ToTable;
        message.header.flags = RuleFlags::Invert;
        message.attributes = vec![
            RuleAttribute::Priority(priority),
            RuleAttribute::FwMark(mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(table),
        ];
        message
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoutingNumbers { mark, table, priority } = self.numbers;
        let version = if self.v4 { "-4" } else { "-6" };
        write!(f, "ip {version} rule add pref {priority} not fwmark {mark} lookup {table}")
    }
}
