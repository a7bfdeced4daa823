//! Queueing models of a line or an engine that serves one packet at a time.
//!
//! Times are in seconds and rates in packets per second. Results are means over packets from arrival to the
//! end of service, unless stated otherwise. The result is `None` if more packets arrive than can be served.

/// No packet waits unless the line is overloaded.
pub fn ideal(rate: f64, service: f64) -> Option<f64> {
    (rate * service <= 1.0).then_some(service)
}

/// Random arrivals, packets of equal length (M/D/1).
pub fn md1(rate: f64, service: f64) -> Option<f64> {
    let load = stable(rate * service)?;
    Some(service + load * service / (2.0 * (1.0 - load)))
}

/// Random arrivals, packets of random length (M/M/1): one hop of a product-form network.
pub fn mm1(rate: f64, service: f64) -> Option<f64> {
    Some(service / (1.0 - stable(rate * service)?))
}

fn stable(load: f64) -> Option<f64> {
    (load < 1.0).then_some(load)
}

/// Sources that send one packet per period at a random but constant phase (sum of D over D/1).
///
/// A packet meets the work that the other sources have left; its own previous packet is done. The
/// distribution of this work is a finite sum (Roberts, Mocci and Virtamo, "Broadband Network Teletraffic",
/// 1996, section 15.2), and its integral is the mean. `None` if there are no sources or the line cannot serve
/// them.
pub fn periodic(sources: u64, period: f64, service: f64) -> Option<f64> {
    // Replaces more sources by this number of sources that each send more. This overestimates the delay
    // slightly.
    const MANY: u64 = 1000;
    let load = sources as f64 * service / period;
    if sources == 0 || load > 1.0 + 1e-9 {
        return None;
    }
    let counted = sources.min(MANY);
    let longer = load * period / counted as f64;
    let others = PeriodicLoad::new(counted as usize - 1, period / longer);
    // Simpson's rule between whole packets, where the sum has its corners.
    let mean: f64 = (0..counted - 1)
        .map(|n| n as f64)
        .map(|x| {
            (others.probability_above(x)
                + 4.0 * others.probability_above(x + 0.5)
                + others.probability_above(x + 1.0))
                / 6.0
        })
        .take_while(|part| *part > 1e-9)
        .sum();
    Some(service + longer * mean)
}

/// Work in packets that other periodic sources leave.
struct PeriodicLoad {
    count: usize,
    /// Number of packets that the line can serve in a period.
    capacity: f64,
    /// Logarithms of the factorials up to `count`.
    factorials: Vec<f64>,
}

impl PeriodicLoad {
    fn new(count: usize, room: f64) -> Self {
        let logs = (1..=count).scan(0.0, |sum, n| {
            *sum += (n as f64).ln();
            Some(*sum)
        });
        Self { count, capacity: room, factorials: std::iter::once(0.0).chain(logs).collect() }
    }

    /// Probability of more than `x` packets of work.
    fn probability_above(&self, x: f64) -> f64 {
        let idle = self.capacity - self.count as f64 + x;
        let least = x as usize + 1;
        (least..=self.count)
            .map(|n| {
                self.probability_of(n, (n as f64 - x) / self.capacity) * idle / (self.capacity - n as f64 + x)
            })
            .sum()
    }

    /// Probability that `n` of all packets arrive in this part of the period.
    fn probability_of(&self, n: usize, part: f64) -> f64 {
        let log = |n: usize| self.factorials.get(n).copied().unwrap_or(0.0);
        let rest = self.count - n;
        let log_choices = log(self.count) - log(n) - log(rest);
        let outside = if rest == 0 { 0.0 } else { rest as f64 * (1.0 - part).ln() };
        (log_choices + n as f64 * part.ln() + outside).exp()
    }
}

/// Packets with equal service times that arrive at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficClass {
    /// Packets per second.
    pub rate: f64,
    /// Service time in seconds.
    pub service: f64,
}

impl TrafficClass {
    fn load(&self) -> f64 {
        self.rate * self.service
    }

    /// Mean remaining service time that an arrival finds.
    fn residual(&self) -> f64 {
        self.rate * self.service * self.service / 2.0
    }
}

/// Mean waiting time before the service, first come first served.
pub fn fifo(classes: &[TrafficClass]) -> Option<f64> {
    let load = stable(classes.iter().map(TrafficClass::load).sum())?;
    Some(classes.iter().map(TrafficClass::residual).sum::<f64>() / (1.0 - load))
}

/// Mean waiting time of each class before the service, with non-preemptive priority of earlier classes
/// (Cobham, "Priority Assignment in Waiting Line Problems", 1954).
pub fn priority(classes: &[TrafficClass]) -> Vec<Option<f64>> {
    let residual: f64 = classes.iter().map(TrafficClass::residual).sum();
    let mut before = 0.0;
    let wait = |class: &TrafficClass| {
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
    use casemate_test_support::TestRng;

    fn assert_close(got: Option<f64>, expected: f64) {
        let got = got.unwrap();
        assert!((got / expected - 1.0).abs() < 0.005, "{got} instead of {expected}");
    }

    /// Service times on a line of 128 kbit/s: 90 bytes in clear, and 132 in an ESP tunnel with DES.
    const CLEAR: f64 = 90.0 * 8.0 / 128_000.0;
    const DES: f64 = 132.0 * 8.0 / 128_000.0;

    #[test]
    fn delays_of_one_hop_of_128_kbit() {
        assert_close(ideal(177.0, CLEAR), 0.005_625);
        assert_eq!((ideal(178.0, CLEAR), md1(178.0, CLEAR), mm1(178.0, CLEAR)), (None, None, None));
        assert_close(md1(160.0, CLEAR), 0.030_9);
        assert_close(md1(115.0, DES), 0.084_6);
        assert_close(mm1(160.0, CLEAR), 0.056_25);
        assert_close(mm1(115.0, DES), 0.161);
    }

    /// A packet meets the other one in a tenth of all cases, and half of it on average.
    #[test]
    fn two_periodic_sources() {
        assert_close(periodic(2, 10.0, 1.0), 1.05);
        assert_eq!(periodic(1, 10.0, 1.0), Some(1.0));
        assert_eq!((periodic(0, 10.0, 1.0), periodic(11, 10.0, 1.0)), (None, None));
        // All ten sources fit, and the line is always busy.
        assert!(periodic(10, 10.0, 1.0).is_some_and(|mean| mean > 2.0 && mean < 10.0));
    }

    /// Compares simulated waiting times at random phases with the formula.
    #[test]
    fn periodic_sources_match_a_simulation() {
        let (sources, period, service) = (14, 16.0, 1.0);
        let mut rng = TestRng::new(1);
        let (mut sum, rounds) = (0.0, 20_000);
        for _ in 0..rounds {
            let mut phases: Vec<f64> = (0..sources).map(|_| rng.fraction() * period).collect();
            phases.sort_by(f64::total_cmp);
            let mut free: f64 = 0.0;
            // The second period equals every later one.
            for (turn, arrival) in
                [0.0, period].into_iter().flat_map(|t| phases.iter().map(move |p| (t, t + p)))
            {
                free = free.max(arrival) + service;
                sum += if turn > 0.0 { free - arrival } else { 0.0 };
            }
        }
        let simulated = sum / (rounds * sources) as f64;
        assert_close(periodic(sources as u64, period, service), simulated);
        assert!(md1(sources as f64 / period, service).unwrap() > 1.2 * simulated);
    }

    /// Many periodic sources behave like random arrivals.
    #[test]
    fn many_periodic_sources_are_random_arrivals() {
        assert_close(periodic(1000, 2000.0, 1.0), md1(0.5, 1.0).unwrap());
        let many = periodic(100_000, 200_000.0, 1.0).unwrap();
        assert!(many > md1(0.5, 1.0).unwrap() && many < 100.0, "{many}");
    }

    /// 200 voice packets of 0.6 ms and 200 bulk packets of 4 ms per second.
    #[test]
    fn voice_before_bulk() {
        let classes =
            [TrafficClass { rate: 200.0, service: 0.000_6 }, TrafficClass { rate: 200.0, service: 0.004 }];
        assert_close(fifo(&classes), 0.020_5);
        let [voice, bulk] = priority(&classes)[..] else { panic!() };
        assert_close(voice, 0.001_86);
        assert_close(bulk, 0.023_2);
        // Excess bulk traffic does not stop voice.
        let flood = [classes[0], TrafficClass { rate: 1000.0, service: 0.004 }];
        assert_eq!((fifo(&flood), priority(&flood)[1]), (None, None));
        assert!(priority(&flood)[0].is_some());
    }
}
