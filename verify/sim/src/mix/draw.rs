//! What a seed of a mix decides: the two endpoints, their operations, and what happens to single datagrams.

use super::scenario::{self, Scenario};
use super::{Mix, Rules};
use crate::dice::Dice;
use crate::plan::{HALF_OPEN, Plan, Shape, Trouble, Weather};
use crate::style::{Layout, MOST_IKES, Protection, Style, VirtualAddrs};
use casemate_ike::config::{Childless, OnClose, Unique};
use std::collections::BTreeMap;
use std::time::Duration;

/// Datagrams of a run whose fate is drawn: as many as issue 16 asks for.
const MOST_FATES: usize = 8;
/// Longer than a run: nothing expires.
const FOREVER: Duration = Duration::from_secs(1_000_000);
/// Repetitions of a request: more than datagrams that can be lost.
const TRIES: u32 = 12;

/// An operation of an administrator, a timer or a volume limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    RekeyIke,
    RekeyChild,
    CreateChild,
    DeleteChild,
    /// The IKE SA is closed.
    Terminate,
    /// The endpoint loses its memory.
    Restart,
    /// Nothing reaches the endpoint, nor leaves it, for so many seconds.
    CutOff(u64),
    /// The NAT assigns other ports.
    Rebind,
}

/// What happens to a datagram that is not simply delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    Lost,
    /// It arrives later by this time.
    Late(Duration),
    /// It arrives, and once more after this time.
    Twice(Duration),
}

/// Fates of IKE datagrams by their number since the operations began.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    drawn: BTreeMap<usize, Fate>,
    /// IKE datagrams sent so far; `None` before the operations begin.
    sent: Option<usize>,
}

impl Fates {
    /// From now on datagrams are counted.
    pub(crate) fn begin(&mut self, drawn: BTreeMap<usize, Fate>) {
        *self = Self { drawn, sent: Some(0) };
    }

    /// The fate of the next IKE datagram.
    pub(crate) fn next(&mut self) -> Option<Fate> {
        let sent = self.sent.as_mut()?;
        let fate = self.drawn.get(sent).copied();
        *sent += 1;
        fate
    }
}

/// Everything that a seed decides.
#[derive(Debug)]
pub(crate) struct Draw {
    /// The endpoints and the network.
    pub(crate) plan: Plan,
    /// Time before the first operation.
    pub(crate) after: Duration,
    /// When, by which endpoint, what.
    pub(crate) operations: Vec<(Duration, usize, Operation)>,
    /// What happens to which datagram.
    pub(crate) fates: BTreeMap<usize, Fate>,
    /// What must hold.
    pub(crate) rules: Rules,
}

impl Draw {
    pub(crate) fn new(mix: Mix, dice: &mut Dice) -> Self {
        let mut plan = plan(mix, dice);
        if mix.is_soak() {
            soak(&mut plan, dice);
        }
        let scenario = scenario::draw(mix, &mut plan, dice);
        let spread = dice.pick(&[20, 300, 3_000, 20_000]);
        let Scenario { operations, after, rules } = scenario.unwrap_or_else(|| rekeyings(mix, &plan, dice));
        let mut operations: Vec<_> = operations
            .into_iter()
            .map(|(node, what)| (after + Duration::from_millis(dice.below(spread) as u64), node, what))
            .collect();
        operations.sort_by_key(|(at, ..)| *at);
        let count = if mix.is_soak() { 0 } else { dice.below(MOST_FATES + 1) };
        let among = (operations.len() + exchanges_beside(mix)) * 5;
        let fates = (0..count).map(|_| (dice.below(among), fate(dice))).collect();
        Self { plan, after, operations, fates, rules }
    }
}

/// Exchanges that no operation begins.
const fn exchanges_beside(mix: Mix) -> usize {
    match mix {
        Mix::Reauth | Mix::Unique | Mix::Crash | Mix::CloseStart | Mix::DeadStart => 4,
        _ => 0,
    }
}

fn fate(dice: &mut Dice) -> Fate {
    let longest = dice.pick(&[200, 2_000, 10_000, 90_000]);
    let time = Duration::from_millis(dice.below(longest) as u64);
    match dice.below(4) {
        0 | 1 => Fate::Lost,
        2 => Fate::Late(time),
        _ => Fate::Twice(time),
    }
}

/// A mix that only rekeys, creates and deletes.
fn rekeyings(mix: Mix, plan: &Plan, dice: &mut Dice) -> Scenario {
    let operations = operations(mix, dice);
    let rules = Rules::of_rekeyings(plan, &operations);
    Scenario { operations, after: Duration::ZERO, rules }
}

fn operations(mix: Mix, dice: &mut Dice) -> Vec<(usize, Operation)> {
    use Operation::{CreateChild, DeleteChild, RekeyChild, RekeyIke};
    let (a, b) = if dice.coin() { (0, 1) } else { (1, 0) };
    let each = |what: &[Operation]| -> Vec<_> {
        [a, b].into_iter().flat_map(|node| what.iter().map(move |what| (node, *what))).collect()
    };
    match mix {
        Mix::RekeyChild => vec![(a, RekeyChild), (a, RekeyChild), (b, RekeyChild)],
        Mix::RekeyIke => each(&[RekeyIke, RekeyIke]),
        Mix::RekeyBoth | Mix::Parallel => each(&[RekeyIke, RekeyIke, RekeyChild, RekeyChild]),
        Mix::CreateDelete => each(&[RekeyChild, CreateChild, DeleteChild]),
        Mix::Everything => {
            let once = [RekeyIke, RekeyChild, CreateChild, DeleteChild];
            each(&[once, once].concat())
        }
        _ => vec![],
    }
}

fn plan(mix: Mix, dice: &mut Dice) -> Plan {
    // Both of two sites begin at once, and so have two IKE SAs.
    let is_parallel = matches!(mix, Mix::Parallel | Mix::SoakParallel | Mix::SoakReauth);
    let shape = if is_parallel { Shape::Sites } else { Shape::Clients(1) };
    let fast = Duration::from_millis(1 + dice.below(50) as u64);
    let slow = fast + Duration::from_millis(dice.pick(&[0, 20, 200]));
    let weather = Weather { fast, slow, ..Weather::FAIR };
    let trouble = Trouble { commands: 0, only_rekeys: true, ..Trouble::GENTLE };
    Plan { shape, one_begins: false, weather, style: style(dice), trouble, rough: Duration::ZERO }
}

/// What issue 16 found black holes with.
fn soak(plan: &mut Plan, dice: &mut Dice) {
    (plan.style.child_life, plan.style.ike_life) = (Duration::from_secs(10), Duration::from_secs(35));
    plan.style.close = dice.pick(&[Some(OnClose::Clear), None]);
    let slow = plan.weather.fast + Duration::from_millis(dice.pick(&[20, 200, 1_000]));
    plan.weather = Weather { loss: 50, twice: 50, slow, ..plan.weather };
    plan.rough = Duration::from_secs(600);
}

fn style(dice: &mut Dice) -> Style {
    Style {
        child_life: FOREVER,
        ike_life: FOREVER,
        reauth: None,
        reauth_by: (false, true),
        rekey_packets: None,
        pfs: dice.coin(),
        wrong_guess: dice.below(8) == 0,
        protection: Protection::Combined,
        extended: dice.coin(),
        outer_v6: false,
        inner_v6: false,
        children: 1,
        layout: Layout::Networks,
        narrowed: false,
        shunts: false,
        fragment_bytes: dice.pick(&[1_280, 256]),
        certificates: false,
        childless: (Childless::Never, Childless::Never),
        unique: Unique::Never,
        virtual_addrs: VirtualAddrs::No,
        nat: false,
        traps: false,
        cookies_from: 64,
        manual: false,
        stranger: false,
        close: Some(OnClose::Clear),
        liveness: dice.coin(),
        tries: TRIES,
        most_ikes: MOST_IKES,
        most_half_open: HALF_OPEN,
    }
}
