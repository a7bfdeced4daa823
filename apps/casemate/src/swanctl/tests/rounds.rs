//! Several rounds of authentication, and the certificate policies of each.

use super::{ok, only};
use casemate_ike::config::{Connection, IdPattern, Identity, LocalMethod, RemoteMethod, Round};

fn gw(sections: &str) -> String {
    format!("connections {{ gw {{\n remote_addrs = 192.0.2.1\n {sections}\n }} }}")
}

/// Identities of this host and of the peer, in the order of the rounds.
fn ids(connection: &Connection) -> (Vec<String>, Vec<String>) {
    let local = connection.in_local_rounds().map(|one| one.local.id.as_ref().unwrap().to_string());
    let remote = connection.in_remote_rounds().map(|one| one.remote.id.exact().unwrap().to_string());
    (local.collect(), remote.collect())
}

#[test]
fn sections_are_rounds_in_the_order_of_their_numbers() {
    let config = ok(&gw("local {\n auth = psk\n id = a\n }\n local-eap {\n auth = eap\n id = b\n }\n \
         remote-x {\n round = 2\n auth = psk\n id = d\n }\n remote-y {\n round = 1\n auth = pubkey\n id = \
         c\n \
         cacerts = ca.pem\n }\n remote {\n auth = psk\n id = e\n }"));
    let connection = &config.connections[0];
    let expected = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(ids(connection), (expected(&["a", "b"]), expected(&["e", "c", "d"])));
    let second = connection.in_round(Round { local: 1, remote: 1 }).unwrap();
    assert!(matches!(second.local.method, LocalMethod::Eap(_)));
    assert_eq!(second.remote.method, RemoteMethod::Certificate("gw".into()));
    assert_eq!(second.round(), Round { local: 1, remote: 1 });
    assert_eq!(connection.in_round(Round { local: 2, remote: 0 }), None);
    let conditions: Vec<_> =
        config.peer_conditions.iter().map(|one| (&*one.connection, one.round, one.cacerts.len())).collect();
    assert_eq!(conditions, [("gw", 0, 0), ("gw", 1, 1), ("gw", 2, 0)]);
    let rounds: Vec<_> = config.own_signatures.iter().map(|one| one.round).collect();
    assert_eq!(rounds, [0, 1]);
}

#[test]
fn a_connection_without_further_sections_has_one_round() {
    let config = ok(&gw("remote-1 {\n auth = psk\n id = a\n }"));
    let connection = &config.connections[0];
    assert!(!connection.has_further_rounds());
    assert_eq!(connection.remote.id, IdPattern::Exact(Identity::Fqdn("a".into())));
}

#[test]
fn wrong_rounds_are_refused() {
    for (sections, why) in [
        ("local {\n round = first\n }", "connections.gw.local.round: `first`"),
        (
            "local {\n auth = eap\n }\n local-2 {\n auth = psk\n }\n remote {\n id = a\n auth = \
             eap-mschapv2\n }",
            "only the initiator can use EAP",
        ),
    ] {
        let problem = only(&gw(sections));
        assert!(problem.contains(why), "{sections}: {problem}");
    }
    let many: String = (0..9).map(|number| format!("local-{number} {{\n auth = psk\n }}\n")).collect();
    assert!(only(&gw(&many)).contains("at most 8 sections `local` were expected"));
    // Only the peer can start an IKE SA whose second round is EAP.
    let sections = "remote {\n auth = psk\n }\n remote-2 {\n auth = eap\n }\n children { net {\n \
                    start_action = start\n } }";
    assert!(only(&gw(sections)).contains("must start the IKE SA"));
}

#[test]
fn certificate_policies_of_a_peer() {
    let config = ok(&gw("remote {\n cert_policy = 1.3.6.1.4.1.36906.1.1.1, 2.16.840.1\n }"));
    let policies: Vec<_> = config.peer_conditions[0].policies.iter().map(ToString::to_string).collect();
    assert_eq!(policies, ["1.3.6.1.4.1.36906.1.1.1", "2.16.840.1"]);
    assert_eq!(config.connections[0].remote.method, RemoteMethod::Certificate("gw".into()));
    for (keys, why) in [
        ("cert_policy = gold", "an object identifier was expected"),
        ("auth = psk\n cert_policy = 1.2.3", "psk proves no certificate"),
    ] {
        let problem = only(&gw(&format!("remote {{\n {keys}\n }}")));
        assert!(problem.contains(why), "{keys}: {problem}");
    }
}
