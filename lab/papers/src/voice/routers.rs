//! The paper's test bed (figure 1): three routers, two tunnels in series, and two slow lines with the queues
//! of its section 2.3.

use super::line_queue::Discipline;
use super::serial_line::SerialLine;
use super::traffic::{self, Ends, Random};
use crate::Context;
use casemate_calls::paper::LINE;
use casemate_measure::report::{
    Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape, Table,
};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::{Background, Error, Netns, Result, run, sys};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// ESP of both tunnels.
const SUITE: &str = "aes128gcm16";
/// Addresses of the telephones, behind the first and the last router.
const PHONES: [&str; 2] = ["10.1.0.1", "10.3.0.1"];
/// Addresses of the routers on each line.
const LINES: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["198.51.100.1", "198.51.100.2"]];
/// Names of the interfaces of each line.
const NAMES: [&str; 2] = ["serial0", "serial1"];
/// Length of an IP packet of the call: 40 bytes of speech. Length with ESP, and interval.
const VOICE: usize = 80;
const VOICE_ON_LINE: usize = 136;
const INTERVAL: Duration = Duration::from_millis(20);
/// Length of bulk packets in bytes, and their interval: about twice what a line carries.
const BULK: usize = 1_000;
const BULK_INTERVAL: Duration = Duration::from_millis(32);
const BULK_PORT: u16 = 9_003;
/// Length of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Time in which bulk packets fill the queues.
const WARM_UP: Duration = Duration::from_millis(150);
/// Real-time priority of the gateways: below the lines, above everything else.
const PRIORITY: i32 = 10;
/// Number of attempts and time limit of the first ping.
const PING_ATTEMPTS: usize = 6;
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum wait for one fragment in ms, as configured in the paper.
const MAX_WAIT: f64 = 10.0;
/// A lost packet counts as one that takes so many ms.
const LOST: f64 = 1_000.0;

/// All configurations of the lines.
const ALL: [(Discipline, &str); 3] =
    [(Discipline::Fifo, "one queue"), (Discipline::Llq, "LLQ"), (Discipline::LlqLfi, "LLQ and LFI")];

/// Delays of a call with one configuration.
struct Calls {
    name: &'static str,
    /// Delays of all packets of each round in ms, sorted, with those of lost packets.
    rounds: Vec<Vec<f64>>,
}

impl Calls {
    /// The delay that `part` of the packets do not exceed, in each round.
    fn percentiles(&self, part: f64) -> Vec<f64> {
        let of_round = |delays: &Vec<f64>| {
            let place = (delays.len() as f64 * part).ceil() as usize;
            delays.get(place.saturating_sub(1)).copied().unwrap_or(LOST)
        };
        self.rounds.iter().map(of_round).collect()
    }

    fn spread(&self, part: f64) -> Option<Spread> {
        Spread::of(self.percentiles(part))
    }
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let periods = if context.quick { 12 } else { 60 };
    context.progress.set_total(LEAST_ROUNDS * ALL.len());
    let routers = [Netns::new()?, Netns::new()?, Netns::new()?];
    let [first, second, third] = &routers;
    let lines = [[first, second], [second, third]];
    let mut serial = Vec::new();
    for (ends, name) in lines.into_iter().zip(NAMES) {
        serial.push(SerialLine::connect(ends, name, LINE as f64)?);
    }
    set_up(&routers)?;
    let _gateways = start_gateways(context, &routers)?;
    wait_until_connected(first)?;
    let ends = Ends { netns: [first, third], addrs: PHONES };
    let mut calls = ALL.map(|(_, name)| Calls { name, rounds: Vec::new() });
    for round in 0..LEAST_ROUNDS as u64 {
        for ((discipline, name), calls) in ALL.iter().zip(&mut calls) {
            context.progress.advance(name);
            serial.iter().for_each(|line| line.restart(*discipline));
            let schedule = traffic::schedule(1, INTERVAL, periods, &mut Random::new(round));
            calls.rounds.push(call_beside_bulk(ends, &schedule)?);
        }
    }
    Ok(vec![part(&calls)])
}

/// Brings the lines and addresses up, and lets the second router forward.
fn set_up([first, second, third]: &[Netns; 3]) -> Result<()> {
    let [[a, b], [c, d]] = LINES;
    let [near, far] = NAMES;
    let [own, other] = PHONES;
    first.ip(&format!(
        "link set {near} up\naddr add {a} peer {b} dev {near}\naddr add {own}/32 dev lo\n\
         route add {other}/32 via {b} src {own}\n"
    ))?;
    second.ip(&format!(
        "link set {near} up\nlink set {far} up\naddr add {b} peer {a} dev {near}\n\
         addr add {c} peer {d} dev {far}\nroute add {own}/32 via {a}\nroute add {other}/32 via {d}\n"
    ))?;
    third.ip(&format!(
        "link set {far} up\naddr add {d} peer {c} dev {far}\naddr add {other}/32 dev lo\n\
         route add {own}/32 via {c} src {other}\n"
    ))?;
    // Both tunnels are behind one interface, so the kernel would redirect the telephones.
    let settings =
        [("ip_forward", "1"), ("conf/all/send_redirects", "0"), ("conf/default/send_redirects", "0")];
    let write = |(name, value): (&str, &str)| {
        fs::write(Path::new("/proc/sys/net/ipv4").join(name), value).map_err(Error::context(name))
    };
    second.run_in(|| settings.into_iter().try_for_each(write))?
}

/// A tunnel of one router: its own and the peer's address, and the telephones on either side.
struct Tunnel {
    name: &'static str,
    addrs: [&'static str; 2],
    phones: [&'static str; 2],
}

/// Returns `swanctl.conf` of a router. The first packet triggers a tunnel.
fn swanctl_conf(tunnels: &[Tunnel]) -> String {
    let connection = |tunnel: &Tunnel| {
        let Tunnel { name, addrs: [local, remote], phones: [near, far] } = tunnel;
        format!(
            "{name} {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
             proposals = aes128-sha256-x25519\n \
             local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
             children {{\n {name} {{\n local_ts = {near}/32\n remote_ts = {far}/32\n \
             esp_proposals = {SUITE}\n start_action = trap\n }}\n }}\n}}\n"
        )
    };
    let connections: String = tunnels.iter().map(connection).collect();
    format!(
        "connections {{\n{connections}}}\nsecrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n\
         scheduler {{\n enabled = no\n}}\n"
    )
}

fn start_gateways(context: &Context, routers: &[Netns; 3]) -> Result<Vec<Background>> {
    let gateway = Gateway::in_directory(context.program.parent().unwrap_or(Path::new(".")))?;
    let directory = context.scratch.join("routers");
    fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
    // The gateways inherit this thread's priority.
    sys::set_fifo_priority(PRIORITY).map_err(Error::context("priority"))?;
    let [[a, b], [c, d]] = LINES;
    let [near, far] = PHONES;
    let tunnels = [
        vec![Tunnel { name: "next", addrs: [a, b], phones: [near, far] }],
        vec![
            Tunnel { name: "previous", addrs: [b, a], phones: [far, near] },
            Tunnel { name: "next", addrs: [c, d], phones: [near, far] },
        ],
        vec![Tunnel { name: "previous", addrs: [d, c], phones: [far, near] }],
    ];
    let start = |(place, (router, tunnels)): (usize, (&Netns, &Vec<Tunnel>))| {
        let file = directory.join(format!("{place}.conf"));
        fs::write(&file, swanctl_conf(tunnels)).map_err(Error::context(file.display()))?;
        gateway.start_in(router, ["--config".into(), file], &directory.join(place.to_string()))
    };
    routers.iter().zip(&tunnels).enumerate().map(start).collect()
}

fn wait_until_connected(first: &Netns) -> Result<()> {
    let [own, other] = PHONES;
    let mut said = String::new();
    for _ in 0..PING_ATTEMPTS {
        let output = run(first, PING_TIMEOUT, "ping", &["-c", "1", "-W", "1", "-I", own, other])?;
        if output.status == 0 {
            return Ok(());
        }
        said = output.stdout;
    }
    Err(Error::new(format!("no response to ping through two tunnels: {}", said.trim_end())))
}

/// Delays of the call in ms, sorted, while bulk packets fill both lines.
fn call_beside_bulk(ends: Ends<'_>, schedule: &[Duration]) -> Result<Vec<f64>> {
    let Ends { netns: [near, far], addrs: [own, other] } = ends;
    let bound = |netns: &Netns, addr: &str, port: u16| {
        netns.run_in(|| UdpSocket::bind((addr, port)))?.map_err(Error::context("socket of the bulk packets"))
    };
    // The receiver reads nothing; without it, the kernel would respond with errors.
    let (sender, _receiver) = (bound(near, own, 0)?, bound(far, other, BULK_PORT)?);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Packets without space in the queue are lost.
                let _ = sender.send_to(&[0; BULK - HEADERS], (other, BULK_PORT));
                std::thread::sleep(BULK_INTERVAL);
            }
        });
        std::thread::sleep(WARM_UP);
        let arrivals = traffic::send(ends, schedule, VOICE, INTERVAL);
        is_over.store(true, Ordering::Relaxed);
        let traffic::Arrivals { sent, mut delays } = arrivals?;
        delays.extend(std::iter::repeat_n(LOST, sent.saturating_sub(delays.len())));
        delays.sort_by(f64::total_cmp);
        Ok(delays)
    })
}

/// Time in ms to transmit a voice packet over both lines.
fn transmission() -> f64 {
    2.0 * VOICE_ON_LINE as f64 * 8.0 * 1e3 / LINE as f64
}

fn part(calls: &[Calls]) -> Part {
    let shares = [(0.5, "median"), (0.95, "95th percentile")];
    let bars = shares.map(|(share, name)| {
        let points = (0..).zip(calls).filter_map(|(place, calls)| {
            let Spread { median, min, max, .. } = calls.spread(share)?;
            Some(Point::with_range(f64::from(place), median, min, max))
        });
        Series::ours(name, Shape::Bars, points)
    });
    let row = |calls: &Calls| {
        let cells = [0.5, 0.95, 1.0]
            .map(|share| calls.spread(share).map_or_else(|| "-".into(), |spread| spread.text(1)));
        std::iter::once(calls.name.to_owned()).chain(cells).collect()
    };
    let columns = ["queue of the lines", "median, ms", "95th percentile, ms", "most, ms"];
    Part {
        title: "Three routers and two tunnels in series".into(),
        text: format!(
            "{TEXT} A voice packet has {VOICE_ON_LINE} bytes on a line; its transmission over both takes {:.0} \
             ms. {LEAST_ROUNDS} rounds with all queues in turns; medians with minimum and maximum.",
            transmission()
        ),
        figures: vec![Figure {
            title: "Test bed of figure 1: delay of a call beside bulk packets".into(),
            caption:
                "From one telephone to the other. The paper configured LLQ and LFI and does not show what \
                 each of them does."
                    .into(),
            x: Axis::names("queue of the lines", calls.iter().map(|calls| calls.name)),
            y: Axis::log("delay, ms"),
            series: bars.into(),
        }],
        tables: vec![Table {
            title: "Delay of a call from telephone to telephone".into(),
            columns: columns.map(String::from).to_vec(),
            rows: calls.iter().map(row).collect(),
        }],
        findings: findings(calls),
        samples: calls
            .iter()
            .map(|calls| Samples {
                name: format!("95th percentile of the delays of a round, {}", calls.name),
                unit: "ms".into(),
                repeated: false,
                values: calls.percentiles(0.95),
            })
            .collect(),
        ..Part::default()
    }
}

const TEXT: &str = "As in figure 1 of the paper: a telephone, three routers, another telephone; one tunnel from \
     the first to the second router and one from there to the third, which decrypt and encrypt again. The \
     routers are network namespaces with Casemate gateways. A thread emulates each line: 128 kbit/s, a queue of \
     60 packets, and then, as in section 2.3, LLQ with 64 kbit/s reserved for packets marked EF, and LFI with \
     fragments of 160 bytes, which take 10 ms. The other direction is not limited. Bulk packets of 1,000 bytes \
     arrive at twice the rate of a line.";

const LLQ: Claim<'static> = Claim {
    what: "LLQ shortens the delay of a call beside bulk packets",
    paper: "configured for this; DSCP is copied to the outer header",
    holds: Bound::Above(2.0),
    agrees: "The line recognises voice by the DSCP of the outer header and transmits it first.",
    differs: "Voice waits for something else than bulk packets in the queue.",
};
const LFI: Claim<'static> = Claim {
    what: "with LFI, a call waits at most 10 ms for each line",
    paper: "configured as the maximum latency",
    holds: Bound::Below(1.1),
    agrees: "A voice packet waits for one fragment at most. Up to a tenth more counts as equal.",
    differs: "Voice also waits elsewhere: for other voice packets, or for an engine.",
};

fn findings(calls: &[Calls]) -> Vec<Finding> {
    let of = |name: Discipline| {
        let place = ALL.iter().position(|(discipline, _)| *discipline == name);
        place.and_then(|place| calls.get(place)).map(|calls| calls.percentiles(0.95)).unwrap_or_default()
    };
    let (fifo, llq, lfi) = (of(Discipline::Fifo), of(Discipline::Llq), of(Discipline::LlqLfi));
    let shorter = Spread::of_ratios(fifo, llq).map(|ratio| {
        LLQ.judge(format!("one queue {} times the 95th percentile with LLQ", ratio.text(1)), &[ratio])
    });
    let waits = lfi.iter().map(|delay| (delay - transmission()) / (2.0 * MAX_WAIT));
    let bounded = Spread::of(waits).map(|share| {
        let ms = Spread::of(lfi.iter().map(|delay| delay - transmission()));
        let ms = ms.map_or_else(String::new, |ms| ms.text(1));
        LFI.judge(format!("95 of 100 packets wait at most {ms} ms for both lines together"), &[share])
    });
    shorter.into_iter().chain(bounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voice::line_queue::FRAGMENT;
    use casemate_calls::packet::Esp;
    use casemate_calls::scheme::parse_suite;
    use casemate_measure::report::Agreement;
    use casemate_sa::Mode;
    use casemate_wire::ip::v4;

    fn calls(delays: [f64; 3]) -> Vec<Calls> {
        let rounds = |delay: f64| vec![vec![delay; 20]; LEAST_ROUNDS];
        ALL.iter().zip(delays).map(|((_, name), delay)| Calls { name, rounds: rounds(delay) }).collect()
    }

    #[test]
    fn queues_are_compared() {
        let agreements =
            |delays| findings(&calls(delays)).iter().map(|finding| finding.agreement).collect::<Vec<_>>();
        assert_eq!(agreements([900.0, 120.0, 30.0]), [Agreement::Agrees; 2]);
        assert_eq!(agreements([120.0, 120.0, 60.0]), [Agreement::Differs; 2]);
    }

    #[test]
    fn lengths_are_those_of_the_formats() {
        let sizes = parse_suite(SUITE).unwrap().into();
        let esp = Esp { sizes, mode: Mode::Tunnel, encap: false };
        assert_eq!(esp.protected_len(VOICE, v4::HEADER_LEN), VOICE_ON_LINE);
        assert_eq!(FRAGMENT as f64 * 8.0 * 1e3 / LINE as f64, MAX_WAIT);
    }
}
