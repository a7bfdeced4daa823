//! Which way each SA goes. Linux finds out as packets use its states; Casemate has to know when it adds them.

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::xfrm::{self, Located, XfrmFile};
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Policy, Template};
use casemate_sa::SaParams;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

/// An SA of the file with its direction.
pub(super) type DirectedSa = (Direction, Located<SaParams>);

/// Decides for each SA of the file.
///
/// Where only one of its addresses is this host's, that says it. Otherwise (addresses that come later, or a test with both
/// ends on one host) the policies say it: an SA that an outbound policy asks for goes out. All others come in.
pub(super) fn decide(file: &XfrmFile, addresses: &[IpAddr]) -> Vec<DirectedSa> {
    let ours: HashSet<IpAddr> = addresses.iter().copied().collect();
    let policies = file.policies.iter().map(|policy| &policy.value);
    let outbound: Vec<&Policy> =
        policies.filter(|p| p.direction == xfrm::Direction::Out).map(|p| &p.policy).collect();
    let decide = |sa: &SaParams| match (ours.contains(&sa.src), ours.contains(&sa.dst)) {
        (true, false) => Direction::Outbound,
        (false, true) => Direction::Inbound,
        _ if outbound.iter().any(|policy| asks_for(policy, sa)) => Direction::Outbound,
        _ => Direction::Inbound,
    };
    file.states.iter().map(|state| (decide(&state.value), state.clone())).collect()
}

fn asks_for(policy: &Policy, sa: &SaParams) -> bool {
    let Action::Protect(bundle) = &policy.action else { return false };
    let selector = &policy.selector;
    // Without addresses a template means those of the packet.
    let accepts = |template: &Template| {
        template.accepts(sa.transform.protocol(), sa.mode, sa.src, sa.dst, sa.reqid)
            && (template.src.is_some() || selector.src.contains(sa.src))
            && (template.dst.is_some() || selector.dst.contains(sa.dst))
    };
    bundle.templates().iter().any(accepts)
}

/// Refuses SAs that would use an IV twice: after a restart, for want of a counter file, or beside an SA with the same key
/// (RFC 4106 section 2, RFC 3686 section 2.1).
pub(super) fn check_counters(sas: &[DirectedSa], path: &Path, args: &RunArgs) -> Result<(), Failure> {
    let mut text = String::new();
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    for (_, sa) in sas.iter().filter(|(direction, _)| *direction == Direction::Outbound) {
        let Some(key) = sa.value.transform.counter_key() else { continue };
        let (place, spi) = (format!("{}:{}", path.display(), sa.line), sa.value.spi);
        if args.counters.is_none() {
            let _ = writeln!(
                text,
                "{place}: spi {spi} has a counter-mode cipher, whose IVs would repeat after a restart: `--counters FILE` was \
                 expected, with a file on a disk that lasts, such as /var/lib/casemate/counters"
            );
        }
        // One number space for each key: two senders would count in it independently.
        let first = *seen.entry(key.expose()).or_insert(sa.line);
        if first != sa.line {
            let _ = writeln!(
                text,
                "{place}: spi {spi} sends with the counter-mode key of line {first}, so both would use the same IVs: a key \
                 of its own was expected"
            );
        }
    }
    if text.is_empty() { Ok(()) } else { Err(Failure::bad_input(text.trim_end())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const STATES: &str = "\
        xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n\
        xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x1002 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x1102030405060708090a0b0c0d0e0f1011121314 128\n";
    const OUT: &str = "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out \
                       tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel\n";

    fn directions(text: &str, addresses: &[&str]) -> Vec<Direction> {
        let file = XfrmFile::parse(text.as_bytes()).unwrap();
        let addresses: Vec<IpAddr> = addresses.iter().map(|addr| addr.parse().unwrap()).collect();
        decide(&file, &addresses).into_iter().map(|(direction, _)| direction).collect()
    }

    #[test]
    fn addresses_decide_and_policies_where_they_cannot() {
        let (out, inn) = (Direction::Outbound, Direction::Inbound);
        assert_eq!(directions(STATES, &["192.0.2.1"]), [out, inn]);
        assert_eq!(directions(STATES, &["192.0.2.2"]), [inn, out]);
        assert_eq!(directions(STATES, &[]), [inn, inn]);
        let with_policy = format!("{STATES}{OUT}");
        assert_eq!(directions(&with_policy, &[]), [out, inn]);
        assert_eq!(directions(&with_policy, &["192.0.2.1", "192.0.2.2"]), [out, inn]);
    }

    #[test]
    fn a_template_without_addresses_means_those_of_the_packets() {
        let text = "\
            xfrm state add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x1001 auth sha1 0123456789abcdefghij\n\
            xfrm state add src 192.0.2.2 dst 192.0.2.1 proto ah spi 0x1002 auth sha1 0123456789abcdefghij\n\
            xfrm policy add src 192.0.2.1 dst 192.0.2.2 dir out tmpl proto ah\n";
        assert_eq!(directions(text, &[]), [Direction::Outbound, Direction::Inbound]);
    }

    fn args(counters: Option<&str>) -> RunArgs {
        RunArgs {
            config: None,
            xfrm: Some(PathBuf::from("a.xfrm")),
            save_keys: None,
            counters: counters.map(PathBuf::from),
            dry_run: false,
            dummy_packets: None,
            tun: "t".into(),
            threads: None,
        }
    }

    /// What is said of a file with these states on the host with this address.
    fn check(states: &str, address: &str, counters: Option<&str>) -> Result<(), Failure> {
        let file = XfrmFile::parse(states.as_bytes()).unwrap();
        let sas = decide(&file, &[address.parse().unwrap()]);
        check_counters(&sas, Path::new("a.xfrm"), &args(counters))
    }

    #[test]
    fn counter_modes_need_a_counter_file() {
        let failure = check(STATES, "192.0.2.2", None).unwrap_err();
        let text = failure.to_string();
        assert!(text.starts_with("casemate: a.xfrm:2: spi 0x00001002 has a counter-mode cipher"), "{text}");
        assert_eq!(text.lines().count(), 1, "an inbound SA uses no IV of ours: {text}");
        assert!(matches!(failure, Failure::BadInput(_)));
        assert_eq!(check(STATES, "192.0.2.2", Some("c")), Ok(()));
    }

    #[test]
    fn two_senders_with_one_counter_key_are_refused() {
        let first = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
                     aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n";
        // Another SPI, address, ICV length: the key stream is the same.
        let second = first.replace("192.0.2.2", "192.0.2.3").replace("0x1001", "0x1003").replace("128", "96");
        let text = check(&format!("{first}{second}"), "192.0.2.1", Some("c")).unwrap_err().to_string();
        let expected = "casemate: a.xfrm:2: spi 0x00001003 sends with the counter-mode key of line 1";
        assert!(text.starts_with(expected), "{text}");
        // The peers that receive with it are two hosts.
        assert_eq!(check(&format!("{first}{second}"), "192.0.2.2", Some("c")), Ok(()));
        let own = second.replace("0x0102", "0x0103");
        assert_eq!(check(&format!("{first}{own}"), "192.0.2.1", Some("c")), Ok(()));
    }
}
