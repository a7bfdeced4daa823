//! Performance measurement: bulk TCP and round trips, with and without the tunnel.

use super::host::Side;
use super::traffic::bulk;
use crate::providers;
use casemate_linux::netns::Ping;
use casemate_wire::invariant::OrBroken;
use std::io;
use std::time::Duration;

const BULK_TIME: Duration = Duration::from_millis(900);
const PINGS: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Results over one IP version.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Payload throughput of one TCP connection.
    bytes_per_second: f64,
    /// Median round-trip time.
    round_trip: Duration,
}

/// Results over IPv4 and IPv6.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    v4: Sample,
    v6: Sample,
}

impl Speed {
    /// Measures from the current network namespace. No capture runs meanwhile, because it would take
    /// processor time.
    pub(super) fn measure() -> io::Result<Self> {
        Ok(Self { v4: sample(true)?, v6: sample(false)? })
    }
}

fn sample(v4: bool) -> io::Result<Sample> {
    let dst = Side::Right.inner(v4);
    let bytes_per_second = bulk(dst, BULK_TIME)?;
    let mut echo = Ping::open(dst).map_err(io::Error::other)?;
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        times.push(echo.send(&[0x5a; 56], TIMEOUT)?.round_trip);
    }
    times.sort_unstable();
    let round_trip = times.get(PINGS / 2).copied().or_broken_default("each ping has a time");
    Ok(Sample { bytes_per_second, round_trip })
}

/// Which library encrypts, and which one would be faster.
fn provider_note() -> String {
    let names = providers::modern().iter().map(|provider| provider.name()).collect::<Vec<_>>().join(", ");
    let mut text = format!("Providers of algorithms, the preferred first: {names}.");
    if casemate_ipsec_mb::IPSEC_MB.available() == Err(casemate_ipsec_mb::Unavailable::NotInstalled) {
        text.push_str("\nIntel's library makes it faster: `apt install libipsec-mb1`.");
    }
    text
}

/// A table of the results, with a note on their limits.
pub(super) fn table(plain: &Speed, tunnel: &Speed, udp: &Speed) -> String {
    let mut text = String::from("                     TCP, one connection     round trip, median of 200\n");
    let rows = [
        ("IPv4, in clear", plain.v4),
        ("IPv4, ESP", tunnel.v4),
        ("IPv4, ESP in UDP", udp.v4),
        ("IPv6, in clear", plain.v6),
        ("IPv6, ESP", tunnel.v6),
        ("IPv6, ESP in UDP", udp.v6),
    ];
    for (name, sample) in rows {
        let gigabits = sample.bytes_per_second * 8.0 / 1e9;
        let micros = sample.round_trip.as_nanos() as f64 / 1e3;
        text.push_str(&format!("{name:<18} {gigabits:>11.2} Gbit/s {micros:>22.0} µs\n"));
    }
    text.push_str(
        "The virtual cable carries cleartext in segments of 64 KiB, so the rates in clear are not those\n\
         of a real link. Both hosts and both gateways share the processors of this machine.\n\
         ESP in UDP (`encap = auto`) is faster because the kernel passes many packets at once.\n",
    );
    text.push_str(&provider_note());
    if cfg!(debug_assertions) {
        text.push_str("\nThis is a debug build; a release build (`--release`) is several times as fast.");
    }
    text
}
