//! Which of two sockets hears a packet: what is urgent has one of its own, which is read first.
//!
//! Protected packets show no more than their outer header, so it is the DSCP there that says what is urgent.

use super::{BYTE, HALF, Step};
use casemate_sched::{Class, DscpTable};
use casemate_wire::dscp::Dscp;
use casemate_wire::ip::IpVersion;

/// `A &= k` (linux/bpf_common.h).
const AND: u16 = 0x54;
/// Added to an offset: counted from the IP header, wherever the packet begins for the program (linux/filter.h).
const FROM_IP_HEADER: u32 = 0xfff0_0000;

/// The code points of the class that goes first; there is one at least.
#[derive(Debug, Clone)]
pub(crate) struct Urgent(Vec<Dscp>);

/// Which packets a socket hears.
#[derive(Debug)]
pub(crate) enum Share {
    /// All of them.
    Everything,
    /// What is urgent.
    Urgent(Urgent),
    /// All others.
    Rest(Urgent),
}

impl Urgent {
    /// Of a table; `None` if nothing in it is urgent.
    pub(crate) fn of(table: &DscpTable) -> Option<Self> {
        let all = (0..=u8::MAX).map_while(Dscp::new);
        let points: Vec<Dscp> = all.filter(|dscp| table.class_of(*dscp) == Class::LowLatency).collect();
        (!points.is_empty()).then_some(Self(points))
    }

    /// Keeps what is urgent; all others go on. For programs that do not begin at the IP header.
    pub(super) fn kept(&self, version: IpVersion) -> Vec<Step> {
        let keep = |dscp: &Dscp| Step::KeepIf(field(version, *dscp));
        load(version, FROM_IP_HEADER).into_iter().chain(self.0.iter().map(keep)).collect()
    }
}

impl Share {
    /// The shares of all sockets, the one that is read first in front.
    pub(crate) fn all(urgent: Option<&Urgent>) -> Vec<Self> {
        match urgent {
            Some(urgent) => vec![Self::Urgent(urgent.clone()), Self::Rest(urgent.clone())],
            None => vec![Self::Everything],
        }
    }

    /// Drops what is not in the share; the rest goes on. For programs that begin at the IP header.
    pub(super) fn steps(&self, version: IpVersion) -> Vec<Step> {
        let mut steps = load(version, 0).to_vec();
        match self {
            Self::Everything => return Vec::new(),
            Self::Rest(Urgent(points)) => {
                steps.extend(points.iter().map(|dscp| Step::DropIf(field(version, *dscp))));
            }
            Self::Urgent(Urgent(points)) => {
                let Some((last, others)) = points.split_last() else { return Vec::new() };
                for (at, dscp) in (0u8..).zip(others) {
                    let left = u8::try_from(others.len()).unwrap_or(u8::MAX).saturating_sub(at);
                    steps.push(Step::SkipIf(field(version, *dscp), left));
                }
                steps.push(Step::DropUnless(field(version, *last)));
            }
        }
        steps
    }
}

/// Loads the field that has the DSCP, and clears the rest of it.
fn load(version: IpVersion, from: u32) -> [Step; 2] {
    match version {
        IpVersion::V4 => [Step::Load(BYTE, from | 1), Step::Load(AND, 0xfc)],
        IpVersion::V6 => [Step::Load(HALF, from), Step::Load(AND, 0x0fc0)],
    }
}

/// What is loaded of a packet with this DSCP.
fn field(version: IpVersion, dscp: Dscp) -> u32 {
    let places = match version {
        IpVersion::V4 => 2,
        IpVersion::V6 => 6,
    };
    u32::from(dscp.value()) << places
}

#[cfg(test)]
mod tests {
    use super::super::tests::keeps;
    use super::*;

    #[test]
    fn every_packet_is_in_one_share() {
        let table = DscpTable::default();
        let urgent = Urgent::of(&table).unwrap();
        let [first, rest] = &Share::all(Some(&urgent))[..] else { unreachable!() };
        for version in [IpVersion::V4, IpVersion::V6] {
            for dscp in (0..64).filter_map(Dscp::new) {
                let mut packet = vec![7; 40];
                match version {
                    IpVersion::V4 => packet[1] = dscp.value() << 2 | 3,
                    IpVersion::V6 => {
                        (packet[0], packet[1]) = (0x60 | dscp.value() >> 2, dscp.value() << 6 | 0x3f)
                    }
                }
                // Whatever is not dropped by a share is kept behind it.
                let end = [Step::Load(BYTE, 0), Step::KeepIf(packet[0].into())];
                let hears = |share: &Share| keeps(&[&share.steps(version)[..], &end].concat(), &packet);
                let is_urgent = table.class_of(dscp) == Class::LowLatency;
                assert_eq!((hears(first), hears(rest)), (is_urgent, !is_urgent), "{version:?} {dscp:?}");
                assert!(hears(&Share::Everything));
            }
        }
        assert!(Urgent::of(&DscpTable::FLAT).is_none());
        assert!(matches!(Share::all(None)[..], [Share::Everything]));
    }
}
