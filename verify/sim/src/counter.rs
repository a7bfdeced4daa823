//! Counts what nodes tell and send.

use crate::net::{Carries, Datagram};
use crate::node::Node;
use crate::style::{Layout, Style};
use crate::tally::{Seen, Tally};
use casemate::Notice;
use casemate_ike::config::{Connection, RemoteMethod};
use casemate_ike::{ChildId, ChildUp, Down, Event, IkeSaId, IkeStatus, Path, PeerFault, StateFault, Traffic};
use casemate_sa::{Mode, Protocol};
use casemate_wire::ike::{Body, ExchangeType, Message, NotifyType, PayloadType};
use std::collections::HashSet;

/// A node in one of its lives, which names SAs anew.
type Life = (usize, u32);

/// Counts, and remembers what was replaced, because what is replaced twice was so by both sides.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) tally: Tally,
    children: HashSet<(Life, ChildId)>,
    ikes: HashSet<(Life, IkeSaId)>,
}

impl Counter {
    /// Counts a notice.
    pub(crate) fn notice(&mut self, style: &Style, node: &Node, stranger: bool, notice: &Notice) {
        let Notice::Ike(event) = notice else { return };
        let life = (node.index, node.lives);
        match event {
            Event::IkeUp { ike, connection, .. } => {
                let status = node.ikes().into_iter().find(|status| status.id == *ike);
                self.ike(connection, status.as_ref());
            }
            Event::IkeRekeyed { old, .. } => {
                self.tally.count(Seen::IkeRekeyed);
                if !self.ikes.insert((life, *old)) {
                    self.tally.count(Seen::IkeCollision);
                }
            }
            Event::IkeDown { why, .. } => self.end(*why, stranger),
            Event::ChildUp(up) => {
                self.child(style, up);
                if up.replaces.is_some_and(|old| !self.children.insert((life, old))) {
                    self.tally.count(Seen::ChildCollision);
                }
            }
            Event::ChildDown { why: Down::Unconfigured, .. } => self.tally.count(Seen::ChildUnconfigured),
            Event::Moved { .. } => self.tally.count(Seen::Moved),
            Event::Assigned { .. } => self.tally.count(Seen::Assigned),
            Event::Fault { fault: PeerFault::State(fault), path } => self.fault(*fault, *path, node),
            _ => {}
        }
    }

    fn ike(&mut self, connection: &Connection, status: Option<&IkeStatus>) {
        let method = &connection.remote.method;
        let seen = [
            (Seen::Ike, true),
            (Seen::IkeSigned, matches!(method, RemoteMethod::Certificate(_))),
            (Seen::IkeOverV6, status.is_some_and(|ike| ike.path.remote.is_ipv6())),
            (Seen::IkeNat, status.is_some_and(|ike| ike.nat.0 || ike.nat.1)),
            (Seen::IkeChildless, status.is_some_and(|ike| ike.children.is_empty())),
        ];
        self.count(&seen);
    }

    fn end(&mut self, why: Down, stranger: bool) {
        let seen = [
            (Seen::Reauth, why == Down::Reauth),
            (Seen::Dead, why == Down::Dead),
            (Seen::NotUnique, why == Down::NotUnique),
            (Seen::IkeUnconfigured, why == Down::Unconfigured),
            (Seen::StrangerRefused, stranger && matches!(why, Down::Refused(_))),
        ];
        self.count(&seen);
    }

    fn fault(&mut self, fault: StateFault, path: Path, node: &Node) {
        // Without an IKE SA there, it was a first request.
        let is_late = || node.ikes().iter().any(|ike| ike.state == "established" && ike.path == path);
        let seen = [
            (Seen::PfsCorrected, fault == StateFault::KeMethod && is_late()),
            (Seen::NotUniqueRefused, fault == StateFault::NotUnique),
            (Seen::PoolEmpty, fault == StateFault::NoAddress),
        ];
        self.count(&seen);
    }

    fn child(&mut self, style: &Style, up: &ChildUp) {
        let inbound = &up.inbound;
        let is_less = |traffic: &[Traffic], ours: &[casemate_ike::TrafficTemplate]| {
            let wanted = |traffic: &Traffic| {
                ours.iter().any(|own| own.addrs.is_some_and(|addrs| addrs != traffic.addrs))
            };
            traffic.iter().any(wanted)
        };
        let seen = [
            (Seen::Child, true),
            (Seen::ChildRekeyed, up.replaces.is_some()),
            (Seen::Transport, inbound.mode == Mode::Transport),
            (Seen::Ah, inbound.transform.protocol() == Protocol::Ah),
            (Seen::Extended, inbound.esn),
            (Seen::InnerV6, up.local.iter().any(|traffic| !traffic.addrs.is_ipv4())),
            (Seen::Encap, inbound.encap.is_some()),
            (Seen::Pfs, up.suite.kex.is_some()),
            (Seen::Narrowed, is_less(&up.local, &up.child.local_ts)),
            (Seen::Nested, style.layout == Layout::Nested && up.child.name != "net0"),
        ];
        self.count(&seen);
    }

    /// Counts a datagram that a node sends.
    pub(crate) fn datagram(&mut self, datagram: &Datagram) {
        let Carries::Udp(payload) = &datagram.carries else { return };
        let Ok(message) = Message::parse(payload.strip_prefix(&[0; 4]).unwrap_or(payload)) else { return };
        let header = message.header();
        if header.next_payload == PayloadType::SKF {
            self.tally.count(Seen::Fragment);
        }
        if header.exchange != ExchangeType::IKE_SA_INIT || !header.flags.response {
            return;
        }
        for payload in message.payloads().filter_map(Result::ok) {
            let Ok(Body::Notify(notify)) = Body::parse(&payload) else { continue };
            let seen = [
                (Seen::Cookie, notify.kind == NotifyType::COOKIE),
                (Seen::InvalidKe, notify.kind == NotifyType::INVALID_KE_PAYLOAD),
            ];
            self.count(&seen);
        }
    }

    fn count(&mut self, seen: &[(Seen, bool)]) {
        seen.iter().filter(|(_, is_so)| *is_so).for_each(|(what, _)| self.tally.count(*what));
    }
}
