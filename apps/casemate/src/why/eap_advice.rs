//! What to try after EAP has failed, by its reason and by the method.

use super::findings::advice_for_fault;
use crate::log::{Proof, UNPROVEN_USER};
use casemate_eap::{EapFault, Method};
use casemate_ike::StateFault;
use casemate_ike::config::{Connection, LocalMethod, RemoteMethod};

const TUNNEL: &[&str] = &[
    "TLS is established, so the certificates are accepted: compare the user name (`eap_id` of the client) \
     and its password with those of the server, here the `secret` in a section `eap` of `secrets` with this \
     `id`",
    "if a RADIUS server decides: its log says why, and `casemate log` whether it has answered",
];
const CERTIFICATES: &[&str] = &[
    "EAP with TLS: compare the certificates with the CAs that each host trusts, their dates with \
     `openssl x509 -text`, and the server's names with aaa_id",
    "TLS does not tell a peer the whole reason: the log of the host that refused has it",
];
const ALERT_OF_CLIENT: &[&str] = &[
    "the client has refused the certificate of this host: give the client the certificate of its CA, connect \
     to a name in the certificate, and check its dates with `openssl x509 -text`",
    "the log of the client has the reason, and says whether it refuses the versions and algorithms of TLS",
];
const ALERT_OF_SERVER: &[&str] = &[
    "the server has refused the certificate of this host, or requires one: compare it with the CAs that the \
     server trusts, and its names with the user name (`eap_id`)",
    "the log of the server has the reason, and says whether it refuses the versions and algorithms of TLS",
];

const NO_SERVER: &[&str] = &[
    "check that the RADIUS server runs, that it knows this host as a client, and that the secret is the same \
     on both: servers drop requests of unknown clients, and those with another secret",
    "`casemate log` names the server, and the address from which this host asks it; let UDP port 1812 pass",
];

/// What to try after EAP has failed for this reason.
pub(super) fn eap_advice(fault: EapFault, connection: &Connection) -> &'static [&'static str] {
    use EapFault::{
        NoPassword, OtherIdentity, PasswordEncoding, RefusedInTunnel, TlsAlert, WrongAuthenticator,
        WrongPassword,
    };
    match fault {
        RefusedInTunnel => TUNNEL,
        // Passwords are proved in the tunnel if the method has one.
        WrongPassword | NoPassword | PasswordEncoding | WrongAuthenticator if uses_tls(connection) => TUNNEL,
        OtherIdentity => &[
            "the user name that the method proves must be the EAP identity: correct `eap_id` on the client, \
             or set eap_id = %any in `remote` of the server",
        ],
        EapFault::UnprovenIdentity => UNPROVEN_USER,
        TlsAlert if proves_user(connection) => ALERT_OF_SERVER,
        TlsAlert => ALERT_OF_CLIENT,
        EapFault::NoServer => NO_SERVER,
        EapFault::ServerRefused | EapFault::NoGroup | EapFault::BadServerPacket => {
            &["a RADIUS server decides: its log says why"]
        }
        _ if uses_tls(connection) => CERTIFICATES,
        _ => advice_for_fault(StateFault::EapFailed),
    }
}

/// What to compare after the peer has refused what this host proves its identity with.
pub(super) fn refused_proof_advice(connection: &Connection) -> &'static str {
    match Proof::of(&connection.local.method) {
        Proof::Secret => "compare the secrets, or check certificate, CA and clock of both hosts",
        Proof::Certificate => {
            "check the certificate of this host with `openssl x509 -text`: names, dates and CA; the log of \
             the peer says whether it is revoked, and the clock of the peer must be right"
        }
        Proof::Password => {
            "compare the user name (`eap_id`, or else `id`) and its password with those of the peer"
        }
        Proof::Usim => "compare `secret` (K) and `opc` of the subscriber with those of the home network",
        Proof::PasswordOrCertificate => {
            "compare the user name and its password with those of the peer, or check the certificate of this \
             host with `openssl x509 -text`: names, dates and CA"
        }
    }
}

/// Whether this host is the EAP peer, which is the client of TLS.
fn proves_user(connection: &Connection) -> bool {
    matches!(connection.local.method, LocalMethod::Eap(_))
        && !matches!(connection.remote.method, RemoteMethod::Eap(_))
}

/// Whether a side of the connection proves a certificate by EAP: EAP-TLS, EAP-TTLS or PEAP.
fn uses_tls(connection: &Connection) -> bool {
    let own: &[Method] = match &connection.local.method {
        LocalMethod::Eap(eap) => &eap.methods,
        _ => &[],
    };
    let peer: &[Method] = match &connection.remote.method {
        RemoteMethod::Eap(eap) => &eap.methods,
        _ => &[],
    };
    own.iter().chain(peer).any(|method| method.uses_tls())
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::config::{EapIdentity, Identity, LocalEap, RemoteEap};

    fn connection() -> Connection {
        let id = |name: &str| Identity::Fqdn(name.into());
        Connection::with_shared_key("gw", id("left"), id("right"))
    }

    fn client(method: Method) -> Connection {
        let mut connection = connection();
        connection.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![method] });
        connection
    }

    fn server(method: Method) -> Connection {
        let mut connection = connection();
        connection.remote.method = RemoteMethod::Eap(RemoteEap {
            identity: EapIdentity::Asked,
            methods: vec![method],
            groups: Vec::new(),
        });
        connection
    }

    #[test]
    fn failures_in_the_tunnel_concern_the_user_and_not_the_certificates() {
        for method in [Method::Ttls, Method::Peap] {
            assert_eq!(eap_advice(EapFault::RefusedInTunnel, &client(method)), TUNNEL);
            assert_eq!(eap_advice(EapFault::WrongPassword, &server(method)), TUNNEL);
            assert_eq!(eap_advice(EapFault::Refused, &client(method)), CERTIFICATES);
            assert_eq!(eap_advice(EapFault::PeerCertificate, &server(method)), CERTIFICATES);
        }
        let without_tls = advice_for_fault(StateFault::EapFailed);
        assert_eq!(eap_advice(EapFault::WrongPassword, &server(Method::MsChapV2)), without_tls);
    }

    #[test]
    fn a_refused_client_with_a_certificate_reads_nothing_about_a_secret() {
        let advice = refused_proof_advice(&client(Method::Tls));
        assert!(advice.contains("certificate") && !advice.contains("secret"), "{advice}");
        assert!(refused_proof_advice(&client(Method::MsChapV2)).contains("user name"));
    }

    #[test]
    fn an_alert_concerns_the_certificate_of_this_host() {
        assert_eq!(eap_advice(EapFault::TlsAlert, &client(Method::Tls)), ALERT_OF_SERVER);
        assert_eq!(eap_advice(EapFault::TlsAlert, &server(Method::Tls)), ALERT_OF_CLIENT);
    }

    #[test]
    fn every_failure_has_advice() {
        for fault in EapFault::ALL {
            for connection in [client(Method::Peap), server(Method::Peap), client(Method::Md5)] {
                assert!(!eap_advice(fault, &connection).is_empty(), "{fault}");
            }
        }
    }
}
