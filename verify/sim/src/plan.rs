//! What a seed decides before anything happens: who there is, how each is configured, and what the network does to them.

use crate::dice::Dice;
use std::time::Duration;

/// A whole run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Who speaks with whom.
    pub(crate) shape: Shape,
    /// What the network does.
    pub(crate) weather: Weather,
    /// How SAs are made.
    pub(crate) style: Style,
    /// What else happens.
    pub(crate) trouble: Trouble,
    /// How long the trouble lasts.
    pub(crate) rough: Duration,
}

/// Who speaks with whom. The first node is the gateway, or one of both sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Two sites, either of which may begin.
    Sites,
    /// A gateway, and so many clients that begin.
    Clients(usize),
}

/// What the network does to datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Of a thousand datagrams, so many are lost.
    pub(crate) loss: u32,
    /// So many come twice.
    pub(crate) twice: u32,
    /// So many are changed on their way.
    pub(crate) changed: u32,
    /// The shortest time on the way.
    pub(crate) fast: Duration,
    /// The longest one. Datagrams overtake each other within it.
    pub(crate) slow: Duration,
}

/// How SAs are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Time between rekeyings of Child SAs.
    pub(crate) child_life: Duration,
    /// Time between rekeyings of IKE SAs.
    pub(crate) ike_life: Duration,
    /// Packets after which a Child SA is rekeyed.
    pub(crate) rekey_packets: Option<u64>,
    /// Key exchanges for Child SAs.
    pub(crate) pfs: bool,
    /// The second side takes only what the first one offers second: each guess of a key exchange is wrong.
    pub(crate) wrong_guess: bool,
    /// AES-CBC with HMAC rather than AES-GCM.
    pub(crate) separate: bool,
    /// Extended sequence numbers.
    pub(crate) extended: bool,
    /// Child SAs of each connection.
    pub(crate) children: usize,
    /// One side asks for more than the other grants.
    pub(crate) narrowed: bool,
    /// Length of IP packets from which IKE messages are cut.
    pub(crate) fragment_bytes: usize,
    /// Clients get their addresses from the gateway.
    pub(crate) virtual_addrs: bool,
    /// Clients are behind NATs.
    pub(crate) nat: bool,
    /// Packets bring Child SAs about.
    pub(crate) traps: bool,
    /// Half-open SAs from which on cookies are asked for.
    pub(crate) cookies_from: usize,
}

/// What else happens, each so often in a thousand seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// Commands to end, replace or begin something.
    pub(crate) commands: u32,
    /// Of these, only those that replace something.
    pub(crate) only_rekeys: bool,
    /// An endpoint loses its memory.
    pub(crate) restarts: u32,
    /// A clock jumps ahead.
    pub(crate) jumps: u32,
    /// Another configuration.
    pub(crate) reloads: u32,
    /// A NAT forgets.
    pub(crate) forgotten: u32,
    /// What an attacker does.
    pub(crate) attacks: u32,
}

impl Plan {
    /// What `dice` says.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let shape = if dice.coin() { Shape::Sites } else { Shape::Clients(1 + dice.below(3)) };
        // One run in four has a perfect network, where nothing may be lost.
        let gentle = dice.below(4) == 0;
        let style = Style::draw(dice, shape);
        Self {
            shape,
            weather: if gentle { Weather::FAIR } else { Weather::draw(dice) },
            style,
            trouble: if gentle { Trouble::GENTLE } else { Trouble::draw(dice) },
            rough: Duration::from_secs(60 + dice.below(240) as u64),
        }
    }

    /// Whether no packet may be lost.
    pub(crate) fn is_lossless(&self) -> bool {
        self.weather.loss == 0 && self.trouble.only_rekeys
    }
}

impl Weather {
    /// Nothing is lost, nothing overtakes.
    pub(crate) const FAIR: Self = Self {
        loss: 0,
        twice: 0,
        changed: 0,
        fast: Duration::from_millis(20),
        slow: Duration::from_millis(20),
    };

    fn draw(dice: &mut Dice) -> Self {
        let mut rate = |most: usize| if dice.coin() { dice.below(most) as u32 } else { 0 };
        let (loss, twice, changed) = (rate(300), rate(200), rate(100));
        let fast = Duration::from_millis(1 + dice.below(50) as u64);
        let slow = fast + Duration::from_millis(dice.pick(&[0, 20, 200, 3_000]));
        Self { loss, twice, changed, fast, slow }
    }
}

impl Style {
    fn draw(dice: &mut Dice, shape: Shape) -> Self {
        let clients = shape != Shape::Sites;
        let virtual_addrs = clients && dice.coin();
        Self {
            child_life: Duration::from_secs(15 + dice.below(60) as u64),
            ike_life: Duration::from_secs(25 + dice.below(120) as u64),
            rekey_packets: dice.coin().then(|| 20 + dice.below(50) as u64),
            pfs: dice.coin(),
            wrong_guess: dice.below(5) == 0,
            separate: dice.below(4) == 0,
            extended: dice.coin(),
            children: if virtual_addrs { 1 } else { 1 + dice.below(3) },
            narrowed: dice.below(3) == 0,
            fragment_bytes: dice.pick(&[1_280, 576, 256]),
            virtual_addrs,
            nat: clients && dice.coin(),
            traps: !virtual_addrs && dice.coin(),
            cookies_from: dice.pick(&[0, 2, 64]),
        }
    }
}

impl Trouble {
    /// Only what must not disturb traffic.
    pub(crate) const GENTLE: Self = Self {
        commands: 200,
        only_rekeys: true,
        restarts: 0,
        jumps: 0,
        reloads: 0,
        forgotten: 0,
        attacks: 0,
    };

    fn draw(dice: &mut Dice) -> Self {
        let mut rate = |most: usize| if dice.coin() { dice.below(most) as u32 } else { 0 };
        Self {
            commands: rate(300),
            only_rekeys: false,
            restarts: rate(20),
            jumps: rate(20),
            reloads: rate(30),
            forgotten: rate(60),
            attacks: rate(3_000),
        }
    }
}
