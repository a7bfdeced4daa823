//! What a seed decides before anything happens: who there is, how each is configured, and what the network does to them.

use crate::dice::Dice;
use crate::style::Style;
use std::time::Duration;

/// A whole run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Who speaks with whom.
    pub(crate) shape: Shape,
    /// Of two sites, only the second begins at first.
    pub(crate) one_begins: bool,
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
    /// Messages of INFORMATIONAL exchanges arrive later by up to this time.
    pub(crate) late: Duration,
    /// UDP datagrams in longer IP packets never arrive.
    pub(crate) longest: Option<usize>,
}

/// What else happens, each so often in a thousand seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// A node is cut off for a while.
    pub(crate) outages: u32,
    /// What an attacker does.
    pub(crate) attacks: u32,
}

impl Plan {
    /// What `dice` says.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let shape = if dice.coin() { Shape::Sites } else { Shape::Clients(1 + dice.below(3)) };
        // One run in four has a perfect network, where nothing may be lost; in one in sixteen somebody attacks it.
        let gentle = dice.below(4) == 0;
        let mut style = Style::draw(dice, shape, gentle);
        let longest = dice.coin().then_some(style.fragment_bytes.max(SHORTEST_PATH));
        let weather = if gentle { Weather::FAIR } else { Weather::draw(dice) };
        let trouble = match (gentle, dice.below(4)) {
            (true, 0) => Trouble::SIEGE,
            (true, _) => Trouble::GENTLE,
            (false, _) => Trouble::draw(dice),
        };
        if trouble == Trouble::SIEGE {
            // A flood fills the table of half-open SAs, unless cookies are asked for before.
            style.cookies_from = style.cookies_from.min(HALF_OPEN / 2);
        }
        let rough = Duration::from_secs(60 + dice.below(240) as u64);
        let weather = Weather { longest, ..weather };
        Self { shape, one_begins: false, weather, style, trouble, rough }
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        match self.shape {
            Shape::Sites => 2,
            Shape::Clients(clients) => 1 + clients,
        }
    }

    /// Whether a node is one that nobody trusts.
    pub(crate) fn is_stranger(&self, node: usize) -> bool {
        self.style.stranger && node + 1 == self.nodes()
    }

    /// Whether no packet may be lost.
    pub(crate) fn is_lossless(&self) -> bool {
        self.weather.loss == 0 && self.trouble.only_rekeys
    }
}

/// Half-open SAs that a node takes.
pub(crate) const HALF_OPEN: usize = 32;
/// First requests are never cut, and have to pass.
const SHORTEST_PATH: usize = 576;

impl Weather {
    /// Nothing is lost, nothing overtakes.
    pub(crate) const FAIR: Self = Self {
        loss: 0,
        twice: 0,
        changed: 0,
        fast: Duration::from_millis(20),
        slow: Duration::from_millis(20),
        late: Duration::ZERO,
        longest: None,
    };

    /// The same delays, and nothing lost or duplicated.
    pub(crate) const fn calm(self) -> Self {
        Self { loss: 0, twice: 0, changed: 0, late: Duration::ZERO, ..self }
    }

    fn draw(dice: &mut Dice) -> Self {
        let mut rate = |most: usize| if dice.coin() { dice.below(most) as u32 } else { 0 };
        let (loss, twice, changed) = (rate(300), rate(200), rate(100));
        let fast = Duration::from_millis(1 + dice.below(50) as u64);
        let slow = fast + Duration::from_millis(dice.pick(&[0, 20, 200, 3_000]));
        Self { loss, twice, changed, fast, slow, ..Self::FAIR }
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
        outages: 0,
        attacks: 0,
    };

    /// The same, with an attacker who can do everything but take packets away.
    pub(crate) const SIEGE: Self = Self { attacks: 3_000, ..Self::GENTLE };

    fn draw(dice: &mut Dice) -> Self {
        let mut rate = |most: usize| if dice.coin() { dice.below(most) as u32 } else { 0 };
        Self {
            commands: rate(300),
            only_rekeys: false,
            restarts: rate(20),
            jumps: rate(20),
            reloads: rate(30),
            forgotten: rate(60),
            outages: rate(20),
            attacks: rate(3_000),
        }
    }
}
