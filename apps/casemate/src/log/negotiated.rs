//! What an IKE SA has negotiated, and what it does without although the configuration has it.

use super::wording;
use casemate_ike::config::Connection;
use casemate_ike::{IkeStatus, IkeSuite};
use casemate_strongswan::notation;
use casemate_wire::ike::KeMethod;

/// The algorithms of an IKE SA.
pub(crate) fn algorithms(suite: &IkeSuite) -> String {
    format!("IKE algorithms: {}", notation::ike_suite(suite))
}

/// What to know if an IKE SA has no additional key exchange, although its connection offers one.
pub(crate) fn without_additional_kex(sa: &IkeStatus) -> Option<String> {
    let suite = sa.suite.as_ref().filter(|suite| suite.additional.is_empty())?;
    let offered = additional_kexes(&sa.connection);
    let (offered, used) = (wording::list(&offered), notation::key_exchanges(suite));
    if offered.is_empty() {
        return None;
    }
    Some(if sa.is_resumed {
        format!(
            "without an additional key exchange, as the session that it resumes: that has {used} alone, and \
             this host offers {offered}"
        )
    } else if sa.initiator {
        format!(
            "without an additional key exchange: this host offered {offered}, the peer chose {used} alone"
        )
    } else {
        // The order of the responder's proposals decides.
        let is_last = sa.connection.proposals.first().is_some_and(|first| first.additional.is_empty());
        let order = if is_last { ", or these come behind in `proposals` of this host" } else { "" };
        format!(
            "without an additional key exchange, with {used} alone: this host accepts {offered}, the peer \
             offered none of these{order}"
        )
    })
}

/// The additional key exchanges in the proposals of a connection, such as `ke1_mlkem768`, each once.
fn additional_kexes(connection: &Connection) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for alg in wording::ike_proposals(connection).iter().flat_map(|proposal| &proposal.algorithms) {
        let word = notation::algorithm(*alg);
        let is_named = notation::is_additional(alg.kind) && alg.id != KeMethod::NONE.0;
        if is_named && !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

/// What to check if an IKE SA has no post-quantum pre-shared key, although its connection names one. `used`
/// is the PPK_ID of the key that it has.
pub(crate) fn without_ppk(connection: &Connection, used: Option<&[u8]>) -> Option<String> {
    (connection.ppk.id.is_some() && used.is_none()).then(|| {
        format!(
            "without a post-quantum pre-shared key: one host has no key for ppk_id = {}, and neither \
             requires one",
            wording::ppk_id(connection)
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use casemate::{Context, Datapath, Endpoint, Routes};
    use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg, Provider, Providers};
    use casemate_ike::config::{AddrPattern, AgreedKexes, Identity, KexRound};
    use casemate_ike::{IkeSettings, IkeState, SharedKeys, SkSuite};
    use casemate_linux::process::SystemRng;
    use casemate_sa::AddrRange;
    use casemate_strongswan::proposal;
    use std::net::IpAddr;
    use std::sync::Arc;

    /// A connection with these proposals.
    pub(crate) fn connection(proposals: &str) -> Connection {
        let id = |name: &str| Identity::Fqdn(name.into());
        let read = |text: &str| proposal::parse_ike(text.trim()).unwrap();
        Connection {
            proposals: proposals.split(',').flat_map(read).collect(),
            ..Connection::with_shared_key("gw", id("left"), id("right"))
        }
    }

    /// Status of an established IKE SA of a connection, with X25519 and the method of an additional key
    /// exchange.
    pub(crate) fn established(connection: Connection, additional: Option<KexMethod>) -> IkeStatus {
        struct NoRoutes;
        impl Routes for NoRoutes {
            fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
                None
            }
        }
        let addr = |last| vec![AddrPattern::Range(AddrRange::single([192, 0, 2, last].into()))];
        let connection = Connection { local_addrs: addr(1), remote_addrs: addr(2), ..connection };
        let datapath = Datapath::new(casemate_datapath::Config::server(0));
        let mut endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
        let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
        let mut context = Context {
            now: casemate_sa::Instant::ZERO,
            unix_time: 0,
            rng: &mut SystemRng::new().unwrap(),
            providers: &Providers(&[provider]),
            credentials: &SharedKeys::new(),
            routes: &NoRoutes,
        };
        endpoint.initiate(&Arc::new(connection), None, &mut context).unwrap();
        let started = endpoint.ike().status().next().unwrap();
        let round = KexRound::new(1).unwrap();
        let suite = IkeSuite {
            sk: SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap()),
            prf: PrfAlg::HmacSha256,
            kex: KexMethod::X25519,
            additional: additional.map_or(AgreedKexes::NONE, |kex| AgreedKexes::NONE.with(round, kex)),
        };
        IkeStatus { state: IkeState::Established, suite: Some(suite), ..started }
    }

    const BOTH: &str = "aes128gcm16-prfsha256-x25519-ke1_mlkem768, aes128gcm16-prfsha256-x25519";

    #[test]
    fn a_missing_additional_key_exchange_is_named_on_both_hosts() {
        let sa = established(connection(BOTH), None);
        assert_eq!(algorithms(&sa.suite.unwrap()), "IKE algorithms: aes128gcm16-prfsha256-x25519");
        let text = without_additional_kex(&sa).unwrap();
        assert!(text.ends_with("this host offered ke1_mlkem768, the peer chose x25519 alone"), "{text}");
        let responder = IkeStatus { initiator: false, ..sa.clone() };
        let text = without_additional_kex(&responder).unwrap();
        assert!(text.ends_with("this host accepts ke1_mlkem768, the peer offered none of these"), "{text}");
        let (hybrid, classical) = BOTH.split_once(", ").unwrap();
        let classical_first = established(connection(&format!("{classical}, {hybrid}")), None);
        let text = without_additional_kex(&IkeStatus { initiator: false, ..classical_first }).unwrap();
        assert!(text.ends_with("or these come behind in `proposals` of this host"), "{text}");
        let resumed = IkeStatus { is_resumed: true, ..sa };
        assert!(without_additional_kex(&resumed).unwrap().contains("as the session that it resumes"));
        // The defaults.
        let text = without_additional_kex(&established(connection("default"), None)).unwrap();
        assert!(text.contains("offered ke1_mlkem768, ke1_mlkem1024, the peer"), "{text}");
    }

    #[test]
    fn nothing_is_missing_that_is_used_or_not_offered() {
        let sa = established(connection(BOTH), Some(KexMethod::MlKem768));
        let shown = algorithms(&sa.suite.unwrap());
        assert_eq!(shown, "IKE algorithms: aes128gcm16-prfsha256-x25519-ke1_mlkem768");
        assert_eq!(without_additional_kex(&sa), None);
        let classical = established(connection("aes128gcm16-prfsha256-x25519"), None);
        assert_eq!(without_additional_kex(&classical), None);
    }
}
