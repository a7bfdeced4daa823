//! How long packets wait for a line or an engine that serves one at a time.
//!
//! Times are in seconds and rates in packets a second. Answers are means over packets, from arrival to the end of service if nothing else is
//! said. Where more arrives than can be served there is no answer.

/// Nobody waits until everybody does.
pub fn ideal(rate: f64, service: f64) -> Option<f64> {
    (rate * service <= 1.0).then_some(service)
}

/// Random arrivals, equal packets (M/D/1).
pub fn md1(rate: f64, service: f64) -> Option<f64> {
    let load = stable(rate * service)?;
    Some(service + load * service / (2.0 * (1.0 - load)))
}

/// Random arrivals, packets of random length (M/M/1): what a network of queues in product form has at each hop.
pub fn mm1(rate: f64, service: f64) -> Option<f64> {
    Some(service / (1.0 - stable(rate * service)?))
}

fn stable(load: f64) -> Option<f64> {
    (load < 1.0).then_some(load)
}

/// Sources that send one packet each in every period, at a random but fixed place in it (the sum of D over D/1).
///
/// A packet meets the work that the other sources left; its own last packet is long gone. The distribution of that work is a finite sum
/// (Roberts, Mocci and Virtamo, "Broadband Network Teletraffic", 1996, section 15.2), whose integral is the mean. None if there are
/// no sources or the line cannot serve them.
pub fn periodic(sources: u64, period: f64, service: f64) -> Option<f64> {
    // More are taken for so many, each of them with more to send. They wait a little longer than the many would.
    const MANY: u64 = 1000;
    let load = sources as f64 * service / period;
    if sources == 0 || load > 1.0 + 1e-9 {
        return None;
    }
    let counted = sources.min(MANY);
    let longer = load * period / counted as f64;
    let others = Others::new(counted as usize - 1, period / longer);
    // Simpson's rule between whole packets, where the sum has its corners.
    let mean: f64 = (0..counted - 1)
        .map(|n| n as f64)
        .map(|x| (others.beyond(x) + 4.0 * others.beyond(x + 0.5) + others.beyond(x + 1.0)) / 6.0)
        .take_while(|part| *part > 1e-9)
        .sum();
    Some(service + longer * mean)
}

/// The work that other periodic sources leave, in packets.
struct Others {
    count: usize,
    /// Packets that the line could serve in a period.
    room: f64,
    /// Logarithms of the factorials up to `count`.
    factorials: Vec<f64>,
}

impl Others {
    fn new(count: usize, room: f64) -> Self {
        let logs = (1..=count).scan(0.0, |sum, n| {
            *sum += (n as f64).ln();
            Some(*sum)
        });
        Self { count, room, factorials: std::iter::once(0.0).chain(logs).collect() }
    }

    /// The probability that more than `x` packets of work are there.
    fn beyond(&self, x: f64) -> f64 {
        let idle = self.room - self.count as f64 + x;
        let least = x as usize + 1;
        (least..=self.count)
            .map(|n| self.choose(n, (n as f64 - x) / self.room) * idle / (self.room - n as f64 + x))
            .sum()
    }

    /// The probability that `n` of all arrive in this part of the period.
    fn choose(&self, n: usize, part: f64) -> f64 {
        let log = |n: usize| self.factorials.get(n).copied().unwrap_or(0.0);
        let rest = self.count - n;
        let ways = log(self.count) - log(n) - log(rest);
        let outside = if rest == 0 { 0.0 } else { rest as f64 * (1.0 - part).ln() };
        (ways + n as f64 * part.ln() + outside).exp()
    }
}

/// Packets that are served alike. They arrive at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Arrivals.
    pub rate: f64,
    /// How long each is served.
    pub service: f64,
}

impl Class {
    fn load(&self) -> f64 {
        self.rate * self.service
    }

    /// What an arrival finds of the packet in service, on average.
    fn residual(&self) -> f64 {
        self.rate * self.service * self.service / 2.0
    }
}

/// Mean waiting time of everybody before the service, first come, first served.
pub fn fifo(classes: &[Class]) -> Option<f64> {
    let load = stable(classes.iter().map(Class::load).sum())?;
    Some(classes.iter().map(Class::residual).sum::<f64>() / (1.0 - load))
}

/// Mean waiting time of each class before the service, the first class before the second and so on; a packet in service is finished first
/// (Cobham, "Priority Assignment in Waiting Line Problems", 1954).
pub fn priority(classes: &[Class]) -> Vec<Option<f64>> {
    let residual: f64 = classes.iter().map(Class::residual).sum();
    let mut before = 0.0;
    let wait = |class: &Class| {
        let with = before + class.load();
        let wait = stable(with).map(|with| residual / ((1.0 - before) * (1.0 - with)));
        before = with;
        wait
    };
    classes.iter().map(wait).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: Option<f64>, expected: f64) {
        let got = got.unwrap();
        assert!((got / expected - 1.0).abs() < 0.005, "{got} instead of {expected}");
    }

    /// A line of 128 kbit/s: 90 bytes in clear, and 132 in an ESP tunnel with DES.
    const CLEAR: f64 = 90.0 * 8.0 / 128_000.0;
    const DES: f64 = 132.0 * 8.0 / 128_000.0;

    #[test]
    fn one_hop_of_128_kbit() {
        near(ideal(177.0, CLEAR), 0.005_625);
        assert_eq!((ideal(178.0, CLEAR), md1(178.0, CLEAR), mm1(178.0, CLEAR)), (None, None, None));
        near(md1(160.0, CLEAR), 0.030_9);
        near(md1(115.0, DES), 0.084_6);
        near(mm1(160.0, CLEAR), 0.056_25);
        near(mm1(115.0, DES), 0.161);
    }

    /// A packet meets another one in a tenth of all cases, half of it on average.
    #[test]
    fn two_periodic_sources() {
        near(periodic(2, 10.0, 1.0), 1.05);
        assert_eq!(periodic(1, 10.0, 1.0), Some(1.0));
        assert_eq!((periodic(0, 10.0, 1.0), periodic(11, 10.0, 1.0)), (None, None));
        // All ten fit, and the line never rests.
        assert!(periodic(10, 10.0, 1.0).is_some_and(|mean| mean > 2.0 && mean < 10.0));
    }

    /// Waiting times at random phases, one after the other, against the sum.
    #[test]
    fn periodic_sources_wait_as_in_a_simulation() {
        let (sources, period, service) = (14, 16.0, 1.0);
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut sum, rounds) = (0.0, 20_000);
        for _ in 0..rounds {
            let mut phases: Vec<f64> = (0..sources).map(|_| random() * period).collect();
            phases.sort_by(f64::total_cmp);
            let mut free: f64 = 0.0;
            // The second period is as every later one.
            for (turn, arrival) in
                [0.0, period].into_iter().flat_map(|t| phases.iter().map(move |p| (t, t + p)))
            {
                free = free.max(arrival) + service;
                sum += if turn > 0.0 { free - arrival } else { 0.0 };
            }
        }
        let simulated = sum / (rounds * sources) as f64;
        near(periodic(sources as u64, period, service), simulated);
        assert!(md1(sources as f64 / period, service).unwrap() > 1.2 * simulated);
    }

    /// Many sources arrive as if at random.
    #[test]
    fn many_periodic_sources_are_random_arrivals() {
        near(periodic(1000, 2000.0, 1.0), md1(0.5, 1.0).unwrap());
        let many = periodic(100_000, 200_000.0, 1.0).unwrap();
        assert!(many > md1(0.5, 1.0).unwrap() && many < 100.0, "{many}");
    }

    /// 200 voice packets of 0.6 ms and 200 bulk packets of 4 ms a second.
    #[test]
    fn voice_before_bulk() {
        let classes = [Class { rate: 200.0, service: 0.000_6 }, Class { rate: 200.0, service: 0.004 }];
        near(fifo(&classes), 0.020_5);
        let [voice, bulk] = priority(&classes)[..] else { panic!() };
        near(voice, 0.001_86);
        near(bulk, 0.023_2);
        // Too much bulk does not stop voice.
        let flood = [classes[0], Class { rate: 1000.0, service: 0.004 }];
        assert_eq!((fifo(&flood), priority(&flood)[1]), (None, None));
        assert!(priority(&flood)[0].is_some());
    }
}
