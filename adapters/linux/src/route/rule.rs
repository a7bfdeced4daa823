//! The rules that select the routing table of an instance.

use super::RoutingNumbers;
use crate::netlink::{self, Netlink};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use std::fmt;
use std::io;

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
        rules.iter().any(|rule| netlink::is_same_rule(rule, &own))
    }

    fn message(self) -> RuleMessage {
        let RoutingNumbers { mark, table, priority } = self.numbers;
        let mut message = RuleMessage::default();
        message.header.family = netlink::family(self.v4);
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
