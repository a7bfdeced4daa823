//! Findings and advice about the negotiation of IKE SAs: what those that stand have agreed on, what they do
//! without, and what to try if a long request has no response.

use super::findings::{Findings, advice_for_fault};
use crate::log::negotiated::{algorithms, without_additional_kex, without_ppk};
use casemate_ike::{IkeState, IkeStatus, StateFault};
use casemate_wire::ike::ExchangeType;
use std::net::SocketAddr;

/// What to do about a missing additional key exchange.
const KEX_ADVICE: &str = "for a post-quantum key exchange, the peer needs `proposals` with ke1_mlkem768, \
                          too; without a classical proposal, this host would refuse such a peer \
                          (docs/manual/swanctl.md, \"Post-quantum key exchange\")";

/// What to try if IKE_AUTH may be too long for the path.
const LONG_PROOF: &[&str] =
    &["fragmentation = yes, if certificates make the request longer than the path allows"];
/// What to try if IKE_INTERMEDIATE may be too long for the path.
const LONG_KEYS: &[&str] = &[
    "fragmentation = yes on both hosts, which is the default: ML-KEM makes the request longer than one \
     datagram of 1,280 bytes, so all fragments must pass",
    "`proposals` without `ke1_`, such as aes256gcm16-prfsha384-x25519, show whether only the long requests \
     are lost",
];

/// Adds a finding for each combination of algorithms, and for each feature that is configured and not used.
pub(super) fn negotiated(ikes: &[IkeStatus], found: &mut Findings) {
    let ikes: Vec<&IkeStatus> = ikes.iter().filter(|sa| sa.state == IkeState::Established).collect();
    let suites = ikes.iter().filter_map(|sa| {
        let ppk = if sa.ppk_id.is_some() { ", with a post-quantum pre-shared key" } else { "" };
        Some(format!("{}{ppk}", algorithms(sa.suite.as_ref()?)))
    });
    found.causes.extend(counted(suites, ikes.len()));
    let without_kex = counted(ikes.iter().filter_map(|sa| without_additional_kex(sa)), ikes.len());
    let without_ppk =
        counted(ikes.iter().filter_map(|sa| without_ppk(&sa.connection, sa.ppk_id.as_deref())), ikes.len());
    if !without_kex.is_empty() {
        found.tries.push(KEX_ADVICE.into());
    }
    if !without_ppk.is_empty() {
        found.tries.extend(advice_for_fault(StateFault::PpkUnused).iter().take(1).map(|&text| text.into()));
    }
    found.causes.extend(without_kex);
    found.causes.extend(without_ppk);
}

/// Each text once, with the number of IKE SAs if the connection has several.
fn counted(texts: impl Iterator<Item = String>, ikes: usize) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for text in texts {
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((text, 1)),
        }
    }
    let shown = |(text, count): (String, usize)| match ikes {
        1 => text,
        ikes => format!("{text} ({count} of {ikes} IKE SAs)"),
    };
    counts.into_iter().map(shown).collect()
}

/// What to try if IKE_INTERMEDIATE or IKE_AUTH has no response: the first requests after IKE_SA_INIT, perhaps
/// on another port, and long.
pub(super) fn long_request_advice(exchange: ExchangeType, remote: SocketAddr) -> Vec<String> {
    let port = format!("let UDP port {} pass between the hosts, in both directions", remote.port());
    let long = if exchange == ExchangeType::IKE_INTERMEDIATE { LONG_KEYS } else { LONG_PROOF };
    let log = "the peer's log says whether the request arrived";
    [&[port.as_str()], long, &[log]].concat().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::negotiated::tests::{connection, established};
    use casemate_crypto::KexMethod;
    use casemate_ike::config::PpkId;

    fn findings(ikes: &[IkeStatus]) -> Findings {
        let mut found = Findings::default();
        negotiated(ikes, &mut found);
        found
    }

    #[test]
    fn what_is_configured_and_not_used_is_a_finding() {
        let mut configured = connection("default");
        configured.ppk.id = Some(PpkId::new(b"carol"));
        let found = findings(&[established(configured, None)]);
        let [suite, kex, ppk] = &found.causes[..] else { panic!("{found:?}") };
        assert_eq!(suite, "IKE algorithms: aes128gcm16-prfsha256-x25519");
        assert!(kex.contains("this host offered ke1_mlkem768, ke1_mlkem1024, the peer chose"), "{kex}");
        assert!(ppk.contains("without a post-quantum pre-shared key") && ppk.contains("carol"), "{ppk}");
        assert!(found.tries[0].contains("ke1_mlkem768"), "{found:?}");
        assert!(found.tries[1].contains("section `ppk` in `secrets`"), "{found:?}");
    }

    #[test]
    fn a_long_request_without_a_response_has_advice_about_port_and_fragments() {
        let remote = "192.0.2.2:4500".parse().unwrap();
        for (exchange, long) in
            [(ExchangeType::IKE_INTERMEDIATE, "ML-KEM"), (ExchangeType::IKE_AUTH, "certificates")]
        {
            let tries = long_request_advice(exchange, remote);
            assert_eq!(tries[0], "let UDP port 4500 pass between the hosts, in both directions");
            assert!(tries[1].starts_with("fragmentation = yes") && tries[1].contains(long), "{tries:?}");
        }
    }

    #[test]
    fn what_is_used_is_named_once_for_all_ike_sas() {
        let hybrid = established(connection("default"), Some(KexMethod::MlKem768));
        let suite = "IKE algorithms: aes128gcm16-prfsha256-x25519-ke1_mlkem768";
        assert_eq!(findings(std::slice::from_ref(&hybrid)).causes, [suite]);
        let with_ppk = IkeStatus { ppk_id: Some(b"carol".to_vec()), ..hybrid.clone() };
        let connecting = IkeStatus { state: IkeState::Connecting, ..hybrid.clone() };
        let found = findings(&[hybrid.clone(), with_ppk, hybrid, connecting]);
        let ppk = ", with a post-quantum pre-shared key";
        let expected = [format!("{suite} (2 of 3 IKE SAs)"), format!("{suite}{ppk} (1 of 3 IKE SAs)")];
        assert_eq!(found.causes, expected);
        assert!(found.tries.is_empty());
        let classical = established(connection("aes128-sha256-x25519"), None);
        assert!(findings(&[classical]).tries.is_empty());
    }
}
