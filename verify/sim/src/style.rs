//! How the SAs of a run are made: what its configurations say.

use crate::dice::Dice;
use crate::plan::{HALF_OPEN, Shape};
use casemate_ike::config::{Childless, OnClose, Unique};
use std::time::Duration;

/// How SAs are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Time between rekeyings of Child SAs.
    pub(crate) child_life: Duration,
    /// Time between rekeyings of IKE SAs.
    pub(crate) ike_life: Duration,
    /// Time after which those who begin authenticate anew.
    pub(crate) reauth: Option<Duration>,
    /// Whether the first node reauthenticates, and whether the others do.
    pub(crate) reauth_by: (bool, bool),
    /// Packets after which a Child SA is rekeyed.
    pub(crate) rekey_packets: Option<u64>,
    /// Key exchanges for Child SAs.
    pub(crate) pfs: bool,
    /// The second side takes only what the first one offers second: each guess of a key exchange is wrong.
    pub(crate) wrong_guess: bool,
    /// What protects packets.
    pub(crate) protection: Protection,
    /// Extended sequence numbers.
    pub(crate) extended: bool,
    /// IPv6 between the nodes.
    pub(crate) outer_v6: bool,
    /// IPv6 between the hosts that they protect.
    pub(crate) inner_v6: bool,
    /// Child SAs of each connection.
    pub(crate) children: usize,
    /// What the Child SAs carry.
    pub(crate) layout: Layout,
    /// One side asks for more than the other grants.
    pub(crate) narrowed: bool,
    /// Some hosts are to be reached in clear, some not at all.
    pub(crate) shunts: bool,
    /// Length of IP packets from which IKE messages are cut.
    pub(crate) fragment_bytes: usize,
    /// Nodes prove who they are with signatures.
    pub(crate) certificates: bool,
    /// IKE SAs without a Child SA: at the first node, and at the others.
    pub(crate) childless: (Childless, Childless),
    /// What a second IKE SA with the same peer means.
    pub(crate) unique: Unique,
    /// How clients get their addresses.
    pub(crate) virtual_addrs: VirtualAddrs,
    /// Clients are behind NATs.
    pub(crate) nat: bool,
    /// Packets bring Child SAs about.
    pub(crate) traps: bool,
    /// Half-open SAs from which on cookies are asked for.
    pub(crate) cookies_from: usize,
    /// Two nodes have SAs with manual keys beside the others, if these can be.
    pub(crate) manual: bool,
    /// The last node has keys that nobody trusts.
    pub(crate) stranger: bool,
    /// What follows when a peer closes a Child SA; `None`: who begins it, begins it anew.
    pub(crate) close: Option<OnClose>,
    /// Nodes check whether their peers live.
    pub(crate) liveness: bool,
    /// Repetitions of a request.
    pub(crate) tries: u32,
    /// IKE SAs of a node, and of the same two identities.
    pub(crate) most_ikes: (usize, usize),
    /// Half-open IKE SAs of a node.
    pub(crate) most_half_open: usize,
}

/// More IKE SAs than a run needs.
pub(crate) const MOST_IKES: (usize, usize) = (64, 64);

/// What protects packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// ESP with AES-GCM.
    Combined,
    /// ESP with AES-CBC and HMAC.
    Separate,
    /// AH with HMAC.
    Ah,
}

/// What the Child SAs of a connection carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Networks behind the nodes, one for each Child SA, in tunnel mode.
    Networks,
    /// The same, but the first Child SA's networks hold those of the others.
    Nested,
    /// Ports of the nodes themselves, one for each Child SA, in transport mode.
    Ports,
}

/// How clients get their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VirtualAddrs {
    /// They have networks of their own.
    No,
    /// From the gateway, which has enough of them.
    Plenty,
    /// From the gateway, which has only one.
    One,
}

impl Style {
    /// After how long a node reauthenticates its peers.
    pub(crate) fn reauth_of(&self, node: usize) -> Option<Duration> {
        let (first, others) = self.reauth_by;
        self.reauth.filter(|_| if node == 0 { first } else { others })
    }

    /// What `dice` says. On a `gentle` network nothing is drawn that interrupts traffic.
    pub(crate) fn draw(dice: &mut Dice, shape: Shape, gentle: bool) -> Self {
        let clients = shape != Shape::Sites;
        let virtual_addrs = match dice.below(4) {
            0 | 1 if clients && !gentle => dice.pick(&[VirtualAddrs::Plenty, VirtualAddrs::One]),
            0 if clients => VirtualAddrs::Plenty,
            _ => VirtualAddrs::No,
        };
        let plain = virtual_addrs == VirtualAddrs::No;
        let nat = clients && dice.below(5) < 2;
        let layout = match dice.below(6) {
            // The checksums behind a NAT are not repaired (RFC 3948 section 3.1.2).
            0 if plain && !nat => Layout::Ports,
            1 | 2 if plain => Layout::Nested,
            _ => Layout::Networks,
        };
        let outer_v6 = dice.below(3) == 0;
        let inner_v6 = if layout == Layout::Ports { outer_v6 } else { dice.below(3) == 0 };
        // No NAT lets AH pass.
        let protections: &[_] =
            if nat { &[Protection::Separate] } else { &[Protection::Separate, Protection::Ah] };
        Self {
            child_life: Duration::from_secs(15 + dice.below(60) as u64),
            ike_life: Duration::from_secs(25 + dice.below(120) as u64),
            reauth: (!gentle && dice.below(5) == 0).then(|| Duration::from_secs(30 + dice.below(90) as u64)),
            reauth_by: (false, true),
            rekey_packets: dice.coin().then(|| 20 + dice.below(50) as u64),
            pfs: dice.coin(),
            wrong_guess: dice.below(5) == 0,
            protection: if dice.below(3) == 0 { dice.pick(protections) } else { Protection::Combined },
            extended: dice.coin(),
            outer_v6,
            inner_v6,
            children: if plain { 1 + dice.below(3) } else { 1 },
            layout,
            // Of nested networks, a part of one may be a part of another.
            narrowed: layout != Layout::Nested && dice.below(3) == 0,
            shunts: plain && layout != Layout::Ports && dice.below(4) == 0,
            fragment_bytes: dice.pick(&[1_280, 576, 256]),
            certificates: dice.below(6) == 0,
            childless: draw_childless(dice),
            unique: dice.pick(&[Unique::No, Unique::No, Unique::Never, Unique::Keep, Unique::Replace]),
            virtual_addrs,
            nat,
            traps: plain && dice.coin(),
            cookies_from: dice.pick(&[0, 2, 64]),
            manual: dice.below(4) == 0,
            stranger: clients && dice.below(8) == 0,
            close: None,
            liveness: true,
            tries: 4,
            most_ikes: MOST_IKES,
            most_half_open: HALF_OPEN,
        }
    }
}

/// Settings that go together, whoever begins.
fn draw_childless(dice: &mut Dice) -> (Childless, Childless) {
    use Childless::{Allow, Force, Never, Prefer};
    dice.pick(&[
        (Allow, Allow),
        (Allow, Allow),
        (Never, Never),
        (Never, Allow),
        (Prefer, Allow),
        (Force, Force),
    ])
}
