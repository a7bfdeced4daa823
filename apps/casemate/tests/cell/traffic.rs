//! Numbered datagrams through tunnels: which arrived, how often, and for how long none arrived.

use crate::testnet::{Host, SetOnDrop, retry_interrupted};
use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Beginning of each datagram. The oracle looks for it in clear.
pub(crate) const MARK: &[u8; 16] = b"numbered in cell";
const PORT: u16 = 7_000;
/// Length of a datagram: the mark, the number of the flow, the number of the datagram, and padding.
const LEN: usize = 128;
/// How long the receiver waits for the last datagrams.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// Interval at which a receiver looks whether it should end.
const POLL: Duration = Duration::from_millis(20);

/// A sender of numbered datagrams, in turn from each source and to each destination, and their receiver.
#[derive(Clone)]
pub(crate) struct Flow<'n> {
    pub(crate) name: &'static str,
    pub(crate) from: &'n Host,
    /// One source, or one for each tunnel.
    pub(crate) sources: Vec<Ipv4Addr>,
    pub(crate) to: &'n Host,
    /// One destination, or one for each tunnel.
    pub(crate) destinations: Vec<Ipv4Addr>,
    /// Time between two datagrams of the flow, over all tunnels.
    pub(crate) interval: Duration,
}

impl Flow<'_> {
    fn tunnels(&self) -> usize {
        self.sources.len().max(self.destinations.len())
    }

    /// Sends until `is_over`, with a fixed schedule: a delayed thread sends what it has missed.
    fn send(&self, number_of_flow: u32, start: Instant, is_over: &AtomicBool) -> Vec<Duration> {
        let bind = |source: &Ipv4Addr| self.from.run(|| UdpSocket::bind((*source, 0))).unwrap();
        let sockets: Vec<UdpSocket> = self.sources.iter().map(bind).collect();
        let mut datagram = [0; LEN];
        datagram[..16].copy_from_slice(MARK);
        datagram[16..20].copy_from_slice(&number_of_flow.to_be_bytes());
        let mut sent = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let number = sent.len();
            datagram[20..24].copy_from_slice(&(number as u32).to_be_bytes());
            let socket = &sockets[number % sockets.len()];
            let destination = self.destinations[number % self.destinations.len()];
            sent.push(start.elapsed());
            // A datagram that has no route is lost.
            let _ = socket.send_to(&datagram, (destination, PORT + number_of_flow as u16));
            let next = self.interval.saturating_mul(sent.len() as u32);
            thread::sleep(next.saturating_sub(start.elapsed()));
        }
        sent
    }

    /// Receives until `is_over` and no datagram has arrived for [`LAST_WAIT`].
    fn receive(
        &self,
        number_of_flow: u32,
        socket: &UdpSocket,
        start: Instant,
        is_over: &AtomicBool,
    ) -> Vec<Arrival> {
        socket.set_read_timeout(Some(POLL)).unwrap();
        let (mut arrivals, mut buffer, mut last) = (Vec::new(), [0; LEN], Instant::now());
        loop {
            match retry_interrupted(|| socket.recv(&mut buffer)) {
                Ok(len) => {
                    let at = start.elapsed();
                    assert!(len == LEN && &buffer[..16] == MARK, "{}: a datagram has changed", self.name);
                    assert_eq!(buffer[16..20], number_of_flow.to_be_bytes(), "{}", self.name);
                    arrivals.push(Arrival {
                        number: u32::from_be_bytes(*buffer[20..].first_chunk().unwrap()),
                        at,
                    });
                    last = Instant::now();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if is_over.load(Ordering::Relaxed) && last.elapsed() > LAST_WAIT {
                        return arrivals;
                    }
                }
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }
}

/// A datagram that arrived, at this time after the start.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u32,
    at: Duration,
}

/// What became of the datagrams of a flow.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) name: &'static str,
    tunnels: usize,
    /// Times of sending after the start. The index is the number of the datagram.
    sent: Vec<Duration>,
    arrivals: Vec<Arrival>,
}

impl Delivery {
    /// Number of datagrams that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Number of datagrams that did not arrive.
    pub(crate) fn lost(&self) -> usize {
        let mut arrived = vec![false; self.sent.len()];
        for arrival in &self.arrivals {
            arrived[arrival.number as usize] = true;
        }
        arrived.into_iter().filter(|arrived| !arrived).count()
    }

    /// Numbers of the datagrams that arrived more than once.
    pub(crate) fn repeated(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.arrivals.iter().map(|arrival| arrival.number).collect();
        numbers.sort_unstable();
        let mut repeated: Vec<u32> =
            numbers.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        repeated.dedup();
        repeated
    }

    /// The longest time without an arrival in any tunnel, from its first datagram to its last one.
    pub(crate) fn longest_gap(&self) -> Duration {
        self.gaps().into_iter().max().unwrap_or_default()
    }

    /// The longest time between two arrivals in any tunnels.
    pub(crate) fn longest_pause(&self) -> Duration {
        let pauses = self.arrivals.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at));
        pauses.max().unwrap_or_default()
    }

    /// The longest gap of each tunnel.
    fn gaps(&self) -> Vec<Duration> {
        let tunnel_of = |number: usize| number % self.tunnels;
        // For each tunnel: the time of its last datagram, and the time up to which it is examined.
        let mut ends = vec![Duration::ZERO; self.tunnels];
        let mut last: Vec<Option<Duration>> = vec![None; self.tunnels];
        for (number, at) in self.sent.iter().enumerate() {
            ends[tunnel_of(number)] = *at;
            last[tunnel_of(number)].get_or_insert(*at);
        }
        let mut gaps = vec![Duration::ZERO; self.tunnels];
        let mut examine = |tunnel: usize, at: Duration| {
            let at = at.min(ends[tunnel]);
            let before = last[tunnel].replace(at).unwrap_or(at);
            gaps[tunnel] = gaps[tunnel].max(at.saturating_sub(before));
        };
        self.arrivals.iter().for_each(|arrival| examine(tunnel_of(arrival.number as usize), arrival.at));
        (0..self.tunnels).for_each(|tunnel| examine(tunnel, Duration::MAX));
        gaps
    }

    /// Fails the test if a datagram arrived twice.
    pub(crate) fn check_once(&self, logs: impl Fn() -> String) {
        let repeated = self.repeated();
        assert!(repeated.is_empty(), "{self}: arrived more than once: {repeated:?}\n{}", logs());
    }

    /// Fails the test if a tunnel had a gap above `limit`.
    pub(crate) fn check_gap(&self, limit: Duration, logs: impl Fn() -> String) {
        assert!(self.longest_gap() <= limit, "{self}: the gap may be {limit:?} at most\n{}", logs());
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, lost, gap) = (self.sent.len(), self.lost(), self.longest_gap());
        let (gap, pause) = (gap.as_millis(), self.longest_pause().as_millis());
        write!(f, "{}: {sent} sent, {lost} lost, longest gap of a tunnel {gap} ms, ", self.name)?;
        write!(f, "of all together {pause} ms")
    }
}

/// Sends all flows while `work` runs. Prints and returns what became of their datagrams.
pub(crate) fn during<T>(flows: &[Flow<'_>], work: impl FnOnce() -> T) -> (T, Vec<Delivery>) {
    let open = |(number, flow): (usize, &Flow<'_>)| {
        let port = PORT + number as u16;
        flow.to.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).unwrap()
    };
    let receivers: Vec<UdpSocket> = flows.iter().enumerate().map(open).collect();
    let [is_sent, is_received] = [const { AtomicBool::new(false) }; 2];
    let start = Instant::now();
    thread::scope(|scope| {
        let _ends = [SetOnDrop(&is_sent), SetOnDrop(&is_received)];
        let threads: Vec<_> = (0_u32..)
            .zip(flows.iter().zip(&receivers))
            .map(|(number, (flow, receiver))| {
                let (is_sent, is_received) = (&is_sent, &is_received);
                let sending = scope.spawn(move || flow.send(number, start, is_sent));
                let receiving = scope.spawn(move || flow.receive(number, receiver, start, is_received));
                (flow, sending, receiving)
            })
            .collect();
        let result = work();
        is_sent.store(true, Ordering::Relaxed);
        let sent: Vec<_> = threads
            .into_iter()
            .map(|(flow, sending, receiving)| (flow, sending.join().unwrap(), receiving))
            .collect();
        is_received.store(true, Ordering::Relaxed);
        let deliveries = sent.into_iter().map(|(flow, sent, receiving)| {
            let arrivals = receiving.join().unwrap();
            Delivery { name: flow.name, tunnels: flow.tunnels(), sent, arrivals }
        });
        let deliveries: Vec<Delivery> = deliveries.collect();
        deliveries.iter().for_each(|delivery| println!("  {delivery}"));
        (result, deliveries)
    })
}

#[test]
fn gaps_losses_and_repetitions_are_counted() {
    let at = Duration::from_millis;
    let arrival = |number, millis| Arrival { number, at: at(millis) };
    let sent: Vec<Duration> = (0..10).map(|n| at(n * 10)).collect();
    let delivery = |tunnels, arrivals| Delivery { name: "f", tunnels, sent: sent.clone(), arrivals };
    let whole = delivery(1, (0..10).map(|n| arrival(n, u64::from(n) * 10 + 1)).collect());
    assert_eq!((whole.lost(), whole.repeated(), whole.longest_gap()), (0, vec![], at(10)));
    // Datagrams 2 to 6 are lost, 7 arrives twice.
    let holed = [0, 1, 7, 7, 8, 9].map(|n| arrival(n, u64::from(n) * 10));
    let holed = delivery(1, holed.to_vec());
    assert_eq!((holed.lost(), holed.repeated(), holed.longest_gap()), (5, vec![7], at(60)));
    assert_eq!(holed.longest_pause(), at(60));
    // No datagram arrives at the beginning, at the end, and at all.
    assert_eq!(delivery(1, vec![arrival(5, 50), arrival(6, 60)]).longest_gap(), at(50));
    assert_eq!(delivery(1, vec![arrival(0, 0), arrival(1, 10)]).longest_gap(), at(80));
    assert_eq!(delivery(1, vec![]).longest_gap(), at(90));
    // One of two tunnels carries nothing.
    let halved = delivery(2, [0, 2, 4, 6, 8].map(|n| arrival(n, u64::from(n) * 10)).to_vec());
    assert_eq!(halved.gaps(), [at(20), at(80)]);
    assert_eq!(halved.longest_gap(), at(80));
}
