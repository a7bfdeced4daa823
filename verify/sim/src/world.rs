//! The world: nodes, the network between them, and the time, which goes from one happening to the next.

use crate::Options;
use crate::attacker::{self, Attacker};
use crate::config::{self, Variant};
use crate::counter::Counter;
use crate::dice::Dice;
use crate::manual;
use crate::mix::{Draw, Fates, Operation, Rules};
use crate::net::{Carries, Datagram};
use crate::node::{self, Node};
use crate::places;
use crate::plan::{Plan, Trouble, Weather};
use crate::sabotage::Sabotage;
use crate::tally::{Seen, Tally};
use crate::trace::{self, Trace};
use crate::watch::{self, Checked, Violation, Watch, violated};
use casemate_datapath::Inbound;
use casemate_wire::natt::Natt;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between packets of protected hosts.
const TRAFFIC: Duration = Duration::from_millis(250);
/// Time between looks at what else may happen.
const TROUBLE: Duration = Duration::from_secs(1);
/// Time after which somebody looks whether all is connected.
const OPERATOR: Duration = Duration::from_secs(5);
/// After so long, a perfect network has connected everybody.
pub(crate) const CONNECTED: Duration = Duration::from_secs(20);
/// After so much calm, both sides of all SAs agree.
const CALM: Duration = Duration::from_secs(200);
/// Within this time of calm there is a moment of rest.
const REST: Duration = Duration::from_secs(100);
/// After so long without configuration, nothing is left.
const END: Duration = Duration::from_secs(150);
/// More steps than any plan needs.
const MAX_STEPS: u64 = 300_000;

/// Something that is to happen.
pub(crate) enum Happening {
    Arrives(Datagram),
    Traffic,
    Trouble,
    Operator,
    /// A packet for each Child SA, so that traps are sprung.
    First,
    /// All NATs forget.
    Forget,
    /// Packets of protected hosts in both directions, in a mix.
    Packets {
        until: Duration,
        must_arrive: bool,
    },
    /// A node does this, in a mix.
    Operation(usize, Operation),
}

/// Everything.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) nodes: Vec<Node>,
    pub(crate) watch: Watch,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) attacker: Attacker,
    pub(crate) sabotage: Option<Sabotage>,
    now: Duration,
    pub(crate) weather: Weather,
    weather_dice: Dice,
    /// Whether there is trouble.
    pub(crate) rough: bool,
    queue: BTreeMap<(Duration, u64), Happening>,
    queued: u64,
    in_flight: usize,
    pub(crate) counter: Counter,
    /// How often numbers of SAs with manual keys jumped.
    pub(crate) number_jumps: u32,
    /// What must hold, in the world of a mix.
    pub(crate) rules: Option<Rules>,
    /// What a mix does, before it begins.
    pub(crate) draw: Option<Draw>,
    /// What happens to single datagrams of a mix.
    pub(crate) fates: Fates,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut dice = Dice::new(seed);
        let mut plan = Plan::draw(&mut dice);
        if let Some(sabotage) = options.sabotage {
            sabotage.prepare(&mut plan);
        }
        Self::with_plan(plan, dice, options)
    }

    pub(crate) fn with_plan(plan: Plan, mut dice: Dice, options: Options) -> Self {
        let nodes =
            (0..plan.nodes()).map(|index| Node::new(&plan, index, dice.fork(), options.sabotage)).collect();
        Self {
            nodes,
            watch: Watch::default(),
            attacker: Attacker::new(dice.fork(), plan.style),
            weather_dice: dice.fork(),
            dice: dice.fork(),
            trace: Trace { on: options.trace },
            sabotage: options.sabotage,
            now: Duration::ZERO,
            weather: plan.weather,
            rough: true,
            queue: BTreeMap::new(),
            queued: 0,
            in_flight: 0,
            counter: Counter::default(),
            number_jumps: 0,
            rules: None,
            draw: None,
            fates: Fates::default(),
            plan,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// Trouble, calm, rest, the end.
    pub(crate) fn run(&mut self) -> Result<Tally, Violation> {
        self.trace.say(self.now, || format!("{:#?}", self.plan));
        for at in 0..self.nodes.len() {
            self.nodes[at].configure(&self.plan, self.now);
            self.drain(at)?;
            self.install_manual(at, manual::FRESH);
        }
        self.put(TRAFFIC, Happening::Traffic);
        self.put(TROUBLE, Happening::Trouble);
        self.put(OPERATOR, Happening::Operator);
        // Twice: a Child SA that was asked for while the IKE SA was replaced is refused for the time being.
        self.put(CONNECTED / 2, Happening::First);
        self.put(CONNECTED * 3 / 4, Happening::First);
        self.run_for(self.plan.rough)?;
        self.calm_down()?;
        self.run_for(CALM)?;
        self.find_rest()?;
        self.check_traffic()?;
        self.end()?;
        Ok(self.sum_up())
    }

    /// No more trouble, and no configuration without a part of what its peers have.
    fn calm_down(&mut self) -> Checked {
        self.trace.say(self.now, || "calm".into());
        self.rough = false;
        self.weather = Weather { longest: self.weather.longest, ..Weather::FAIR };
        for at in 0..self.nodes.len() {
            self.nodes[at].cut_off_until = self.now;
            if self.nodes[at].variant.without_last {
                self.nodes[at].variant = Variant::FIRST;
                self.nodes[at].configure(&self.plan, self.now);
                self.drain(at)?;
            }
        }
        Ok(())
    }

    fn sum_up(&mut self) -> Tally {
        let (offered, delivered) = self.watch.ledger.counts();
        let tally = &mut self.counter.tally;
        tally.add(Seen::Offered, offered);
        tally.add(Seen::Delivered, delivered);
        tally.add(Seen::Lossless, self.plan.is_lossless().into());
        tally.add(Seen::NarrowPath, self.weather.longest.is_some().into());
        tally.add(Seen::Siege, (self.plan.trouble == Trouble::SIEGE).into());
        *tally
    }

    /// Gives a node its SAs with manual keys, if it has any.
    pub(crate) fn install_manual(&mut self, at: usize, written_down: (u64, u64)) {
        if manual::has(&self.plan, at) {
            let outbound = manual::install(&self.plan, &mut self.nodes[at], written_down, self.now);
            self.watch.hear_manual(&self.nodes[at], &outbound);
        }
    }

    pub(crate) fn put(&mut self, delay: Duration, what: Happening) {
        self.queued += 1;
        self.in_flight += usize::from(matches!(what, Happening::Arrives(_)));
        self.queue.insert((self.now + delay, self.queued), what);
    }

    pub(crate) fn run_for(&mut self, time: Duration) -> Checked {
        let until = self.now + time;
        while self.step(until)? {}
        self.now = until;
        Ok(())
    }

    /// Lets the next thing happen; `false` if there is nothing until then.
    fn step(&mut self, until: Duration) -> Result<bool, Violation> {
        self.counter.tally.count(Seen::Step);
        if self.counter.tally.of(Seen::Step) > MAX_STEPS {
            return violated("it never ends".into());
        }
        let due =
            (0..self.nodes.len()).filter_map(|at| Some((self.nodes[at].due()?.max(self.now), at))).min();
        let queued = self.queue.first_key_value().map(|(key, _)| key.0);
        let next = due.map(|due| due.0).into_iter().chain(queued).min();
        let Some(next) = next.filter(|next| *next <= until) else { return Ok(false) };
        self.now = next;
        match due.filter(|due| due.0 <= next) {
            Some((_, at)) => {
                self.nodes[at].serve(self.now);
                self.drain(at)?;
            }
            None => {
                let (_, what) = self.queue.pop_first().expect("it is not empty");
                self.happen(what)?;
            }
        }
        Ok(true)
    }

    fn happen(&mut self, what: Happening) -> Checked {
        match what {
            Happening::Arrives(datagram) => {
                self.in_flight -= 1;
                self.arrive(datagram)
            }
            Happening::Traffic => {
                self.put(TRAFFIC, Happening::Traffic);
                self.send_something()
            }
            Happening::First => self.send_everything(false),
            Happening::Packets { until, must_arrive } => self.send_packets(until, must_arrive),
            Happening::Operation(at, operation) => self.operate(at, operation),
            Happening::Forget => {
                self.forget_mappings();
                Ok(())
            }
            Happening::Trouble => {
                self.put(TROUBLE, Happening::Trouble);
                let most = config::settings(&self.plan.style).ike_sas;
                self.nodes.iter().try_for_each(|node| watch::check_sizes(node, most))?;
                if self.rough { self.make_trouble() } else { Ok(()) }
            }
            Happening::Operator => {
                self.put(OPERATOR, Happening::Operator);
                if self.plan.style.traps || self.rough { Ok(()) } else { self.connect() }
            }
        }
    }

    /// Hears what a node tells, and sends what it sends.
    pub(crate) fn drain(&mut self, at: usize) -> Checked {
        while let Some(notice) = self.nodes[at].next_notice() {
            self.trace.say(self.now, || format!("node {at}: {}", trace::of_notice(&notice)));
            let stranger = self.plan.is_stranger(at);
            self.counter.notice(&self.plan.style, &self.nodes[at], stranger, &notice);
            let rules = self.rules.as_ref();
            rules.map_or(Ok(()), |rules| rules.check_notice(&self.watch, &self.nodes[at], &notice))?;
            self.watch.check_new(&self.plan, &self.nodes[at], &notice)?;
            self.watch.hear(&self.nodes[at], &notice)?;
        }
        while let Some(transmit) = self.nodes[at].next_transmit() {
            if !transmit.message.is_empty() {
                self.watch.sealed_message(&self.nodes[at], &transmit.message)?;
                if let Some(other) = self.sabotage.and_then(|broken| broken.resend(&transmit.message)) {
                    self.watch.sealed_message(&self.nodes[at], &other)?;
                }
            }
            let datagram = node::of_transmit(&transmit);
            self.counter.datagram(&datagram);
            self.watch.check_len(&self.plan.style, &self.nodes[at], &datagram)?;
            self.send(at, datagram);
        }
        Ok(())
    }

    /// A node puts a datagram on the network.
    pub(crate) fn send(&mut self, at: usize, datagram: Datagram) {
        let translated = match &mut self.nodes[at].nat {
            Some(nat) => nat.outbound(datagram),
            None => Some(datagram),
        };
        let Some(mut datagram) = translated else { return };
        self.attacker.see(&datagram);
        let Weather { loss, twice, changed, fast, slow, late, longest } = self.weather;
        let is_udp = matches!(datagram.carries, Carries::Udp(_));
        if longest.is_some_and(|longest| is_udp && datagram.ip_len() > longest) {
            return self.trace.say(self.now, || format!("too long {}", trace::of_datagram(&datagram)));
        }
        let dice = &mut self.weather_dice;
        let slow = if datagram.is_informational() { slow + late } else { slow };
        let delay = dice.time(fast, slow);
        let is_cut_off = self.nodes[at].cut_off_until > self.now;
        if self.rules.is_some() && loss == 0 && !is_cut_off && datagram.is_ike() {
            return self.befall(delay, datagram);
        }
        if dice.per_mille(loss) || is_cut_off {
            self.counter.tally.count(Seen::Lost);
            return self.trace.say(self.now, || format!("lost     {}", trace::of_datagram(&datagram)));
        }
        let again = dice.per_mille(twice).then(|| dice.time(fast, slow));
        if dice.per_mille(changed) {
            attacker::change(&self.plan.style, &mut datagram, dice);
        }
        if let Some(delay) = again {
            self.put(delay, Happening::Arrives(datagram.clone()));
        }
        self.put(delay, Happening::Arrives(datagram));
    }

    /// The attacker puts datagrams on the network.
    pub(crate) fn inject(&mut self, datagrams: Vec<Datagram>) {
        datagrams.into_iter().for_each(|datagram| self.put(self.weather.fast, Happening::Arrives(datagram)));
    }

    fn arrive(&mut self, datagram: Datagram) -> Checked {
        let (style, to) = (&self.plan.style, datagram.to.ip());
        let reached = |node: &Node| places::outer(style, node.index) == to;
        let Some(at) = self.nodes.iter().position(reached) else { return Ok(()) };
        if self.nodes[at].cut_off_until > self.now {
            self.counter.tally.count(Seen::Lost);
            return Ok(());
        }
        self.trace.say(self.now, || format!("arrives  {}", trace::of_datagram(&datagram)));
        let translated = match &self.nodes[at].nat {
            Some(nat) => nat.inbound(datagram),
            None => Some(datagram),
        };
        let Some(datagram) = translated else {
            self.trace.say(self.now, || "the NAT drops it".into());
            return Ok(());
        };
        let ends = (datagram.to, datagram.from);
        match &datagram.carries {
            Carries::Udp(payload) if datagram.to.port() == 500 => {
                self.nodes[at].receive_ike(self.now, payload, ends);
                self.drain(at)
            }
            Carries::Udp(payload) if datagram.to.port() == 4500 => match Natt::classify(payload) {
                Natt::NonEsp(message) => {
                    self.nodes[at].receive_ike(self.now, message, ends);
                    self.drain(at)
                }
                Natt::Esp(_) => self.open(at, &datagram),
                Natt::Keepalive | Natt::TooShort => Ok(()),
            },
            Carries::Udp(_) => Ok(()),
            Carries::Ip(_) => self.open(at, &datagram),
        }
    }

    fn open(&mut self, at: usize, datagram: &Datagram) -> Checked {
        let (verdict, packet) = self.nodes[at].inbound(self.now, &node::to_packet(datagram));
        match verdict {
            Inbound::Deliver(admitted) => {
                let number = self.watch.ledger.deliver(at, &packet, admitted.sa.is_some())?;
                self.trace.say(self.now, || format!("node {at}: delivers packet {number}"));
            }
            other => self.trace.say(self.now, || format!("node {at}: {other:?}")),
        }
        self.drain(at)
    }

    /// Waits for a moment without exchanges, and looks whether both sides agree.
    pub(crate) fn find_rest(&mut self) -> Checked {
        let until = self.now + REST;
        loop {
            if self.in_flight == 0 && self.nodes.iter().all(|node| self.is_at_rest(node)) {
                self.watch.check_peers(&self.plan, &self.nodes)?;
                return watch::check_mirrors(&self.plan, &self.nodes, &self.watch);
            }
            if !self.step(until)? {
                return violated(format!("no rest: {}", watch::describe(&self.nodes)));
            }
        }
    }

    /// Traffic flows both ways between all that belong together.
    pub(crate) fn check_traffic(&mut self) -> Checked {
        self.trace.say(self.now, || "at rest".into());
        self.send_everything(true)?;
        let sent = self.now;
        self.run_for(Duration::from_secs(3))?;
        self.watch.ledger.check_arrived(sent)
    }

    /// Nothing is configured any more, so nothing is left.
    pub(crate) fn end(&mut self) -> Checked {
        self.trace.say(self.now, || "the end".into());
        self.queue.retain(|_, what| matches!(what, Happening::Arrives(_)));
        for at in 0..self.nodes.len() {
            self.nodes[at].unconfigure(self.now);
            self.drain(at)?;
        }
        self.run_for(END)?;
        self.nodes.iter().try_for_each(|node| watch::check_empty(&self.plan, node))
    }
}
