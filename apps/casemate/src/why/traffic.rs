//! Findings about the traffic of Child SAs.

use super::findings::Findings;
use crate::output;
use crate::status::ChildTraffic;

/// Adds findings about each Child SA.
pub(super) fn traffic(all: &[ChildTraffic], found: &mut Findings) {
    all.iter().filter(|one| !is_unused_beside_others(one, all)).for_each(|one| traffic_of(one, found));
}

/// Whether a Child SA has no traffic while another one of the same child has: that of another peer, or one
/// that has been replaced.
fn is_unused_beside_others(traffic: &ChildTraffic, all: &[ChildTraffic]) -> bool {
    traffic.is_unused() && all.iter().any(|other| other.name == traffic.name && !other.is_unused())
}

const fn protocol(udp: bool) -> &'static str {
    if udp { "UDP port 4500 (ESP in UDP)" } else { "ESP (IP protocol 50)" }
}

fn traffic_of(traffic: &ChildTraffic, found: &mut Findings) {
    let ChildTraffic { packets_in, packets_out, udp, icv_failures, replays, .. } = traffic;
    let name = traffic.label();
    let packets = |count: &u64, one: &str, more: &str| {
        output::counted(*count, &format!("packet {one}"), &format!("packets {more}"))
    };
    match (packets_out, packets_in) {
        (1.., 0) => {
            let what = protocol(*udp);
            found.causes.push(format!(
                "{name}: {} left and none has arrived: {what} is blocked on the way, or the peer does not \
                 answer",
                packets(packets_out, "has", "have")
            ));
            found.tries.push(format!(
                "let {what} pass in packet filters between the hosts, in both directions; check the peer's \
                 counters for this SA"
            ));
            if !udp {
                found.tries.push("encap = yes sends ESP in UDP, which passes more filters".into());
            }
        }
        (0, 1..) => found.add(
            format!("{name}: {} arrived and none has left", packets(packets_in, "has", "have")),
            &[
                "check that applications of this host answer, and that their packets match local_ts and \
                 remote_ts",
                "for a network behind this host, check its packet filter and the route back",
                "`casemate trace dir out` shows whether their packets reach this instance, and what becomes \
                 of them",
            ],
        ),
        (0, 0) => found.add(
            format!("{name}: no packet has passed yet"),
            &["send a packet from the local to the remote traffic selectors, such as a ping"],
        ),
        (1.., 1..) => {
            if let Some(silence) = traffic.silence {
                let what = protocol(*udp);
                found.add(
                    format!(
                        "{name}: packets left until {} s after the last one had arrived: {what} is blocked \
                         on the way now, the peer does not answer, or these packets need no answer",
                        silence.as_secs()
                    ),
                    &["let it pass in packet filters between the hosts, in both directions; on the peer, \
                         check `casemate why`, forwarding, and the route back"],
                );
            }
        }
    }
    if *icv_failures > 0 {
        found.add(
            format!(
                "{name}: {} a wrong ICV: changed on the way or forged",
                packets(icv_failures, "had", "had")
            ),
            &[],
        );
    }
    if *replays > 0 {
        found.add(
            format!("{name}: {} repeated or too late for the replay window", packets(replays, "was", "were")),
            &["replay_window = 128 or more, if the path changes the order of packets"],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(packets_out: u64, packets_in: u64, udp: bool) -> ChildTraffic {
        ChildTraffic { name: "gw/net".into(), packets_in, packets_out, udp, ..ChildTraffic::default() }
    }

    #[test]
    fn one_way_traffic_names_the_protocol_that_is_blocked() {
        for (udp, protocol) in [(false, "ESP (IP protocol 50)"), (true, "UDP port 4500")] {
            let mut found = Findings::default();
            traffic_of(&traffic(5, 0, udp), &mut found);
            assert!(found.causes[0].contains("5 packets have left and none has arrived"), "{found:?}");
            assert!(found.causes[0].contains(protocol), "{found:?}");
            assert_eq!(found.tries.len(), if udp { 1 } else { 2 });
        }
        let mut found = Findings::default();
        traffic_of(&traffic(5, 5, false), &mut found);
        assert_eq!(found, Findings::default());
    }

    #[test]
    fn a_child_sa_without_packets_is_no_finding_beside_others_of_the_child() {
        let of = |peer: &str, packets| ChildTraffic {
            peer: Some(peer.into()),
            ..traffic(packets, packets, false)
        };
        let unused = |all: &[ChildTraffic]| {
            all.iter().filter(|one| one.is_unused() && !is_unused_beside_others(one, all)).count()
        };
        assert_eq!(unused(&[of("carol", 5), of("dave", 0)]), 0);
        assert_eq!(unused(&[of("carol", 0), of("dave", 0)]), 2);
        let mut found = Findings::default();
        traffic_of(&of("dave", 0), &mut found);
        assert_eq!(found.causes, ["gw/net of dave: no packet has passed yet"]);
    }
}
