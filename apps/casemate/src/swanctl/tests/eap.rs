//! EAP: methods, identities and passwords.

use super::{ok, only, wrong};
use crate::swanctl::{KeyPurpose, OperatorKey, Usim};
use casemate_crypto::SecretBytes;
use casemate_eap::Method;
use casemate_ike::config::{EapIdentity, Identity, LocalMethod, RemoteMethod};

/// A responder with these keys in `remote`, and an action in its child.
fn responder(remote: &str, start_action: &str) -> String {
    format!(
        "connections {{ gw {{\n remote_addrs = 192.0.2.1\n local {{\n auth = pubkey\n }}\n remote {{\n {remote}\n }}\n \
         children {{ net {{\n start_action = {start_action}\n }} }} }} }}"
    )
}

#[test]
fn the_peer_proves_its_eap_identity() {
    for (keys, identity) in [
        ("auth = eap-mschapv2", EapIdentity::Ike),
        ("auth = eap\n eap_id = %any", EapIdentity::Asked),
        ("auth = eap-dynamic\n eap_id = carol@example.org", EapIdentity::Fixed(b"carol@example.org".into())),
    ] {
        let config = ok(&responder(keys, "none"));
        let RemoteMethod::Eap(eap) = &config.connections[0].remote.method else { panic!("{keys}") };
        assert_eq!((&eap.identity, eap.methods[0]), (&identity, Method::MsChapV2), "{keys}");
    }
}

#[test]
fn this_host_proves_its_eap_identity() {
    let config = ok("connections { gw { local {\n auth = eap-gtc\n eap_id = carol\n } } }");
    let LocalMethod::Eap(eap) = &config.connections[0].local.method else { panic!() };
    assert_eq!((eap.identity.as_deref(), &*eap.methods), (Some(&b"carol"[..]), &[Method::Gtc][..]));
}

#[test]
fn a_client_that_names_a_certificate_accepts_eap_tls() {
    for (keys, first) in [
        ("auth = eap\n certs = carol.pem", Method::Tls),
        ("auth = eap", Method::DEFAULT[0]),
        ("auth = eap-ttls\n certs = carol.pem", Method::Ttls),
    ] {
        let config = ok(&format!("connections {{ gw {{ local {{\n {keys}\n }} }} }}"));
        let LocalMethod::Eap(eap) = &config.connections[0].local.method else { panic!() };
        assert_eq!(eap.methods[0], first, "{keys}");
    }
}

#[test]
fn a_responder_with_eap_cannot_start() {
    for action in ["start", "trap"] {
        assert!(only(&responder("auth = eap", action)).contains("must start the IKE SA"), "{action}");
    }
}

#[test]
fn eap_needs_no_certificate_and_eap_id_needs_eap() {
    assert!(
        only("connections { gw { remote {\n auth = psk\n eap_id = x\n } } }")
            .contains("remote.eap_id: it applies")
    );
    for local in ["eap_id = x", "auth = pubkey\n eap_id = x", "auth = psk\n eap_id = %any"] {
        let conf = format!("connections {{ gw {{ local {{\n {local}\n }} }} }}");
        assert!(only(&conf).contains("local.eap_id: it applies"), "{local}");
    }
    // The only error is that of the method.
    for side in ["local", "remote"] {
        let conf = format!("connections {{ gw {{ {side} {{\n auth = eap-fast\n eap_id = x\n }} }} }}");
        assert!(only(&conf).contains("eap-fast"), "{side}");
    }
    let wrong = wrong("connections { gw { remote {\n auth = eap\n ca_id = x\n } } }");
    assert!(wrong[0].contains("this EAP method proves no certificate"), "{wrong:?}");
}

#[test]
fn certificates_of_eap_with_tls() {
    let config = ok(
        "connections { gw { local {\n auth = eap-tls\n certs = carol.pem\n aaa_id = aaa.test\n } remote {\n \
                     auth = pubkey\n } } }",
    );
    let own = &config.own_signatures[0];
    assert_eq!(own.aaa_id, Some(Identity::Fqdn("aaa.test".into())));
    assert!(own.certs[0].ends_with("x509/carol.pem"));
    let config = ok(&responder("auth = eap-tls\n cacerts = users.pem", "none"));
    assert!(config.peer_conditions[0].cacerts[0].ends_with("x509ca/users.pem"));
    assert!(
        only(&responder("auth = eap-ttls\n cacerts = users.pem", "none")).contains("proves no certificate")
    );
}

#[test]
fn aaa_id_names_one_server_of_tls() {
    for (keys, reason) in [
        ("auth = eap-tls\n aaa_id = %any", "an identity was expected"),
        ("auth = eap-mschapv2\n aaa_id = aaa.test", "it applies to EAP with TLS only"),
        ("auth = pubkey\n aaa_id = aaa.test", "it applies to EAP with TLS only"),
    ] {
        let text =
            format!("connections {{ gw {{ local {{\n {keys}\n }} remote {{\n auth = pubkey\n }} }} }}");
        assert!(only(&text).contains(reason), "{keys}");
    }
}

#[test]
fn passwords_have_their_own_section() {
    let config =
        ok("secrets { eap-carol {\n id = carol\n secret = short\n } ike {\n secret = a longer secret!\n } }");
    let kinds: Vec<_> = config.shared_keys.iter().map(|key| key.purpose).collect();
    assert_eq!(kinds, [KeyPurpose::Eap, KeyPurpose::Ike]);
    assert!(config.warnings.is_empty(), "a password may be short: {:?}", config.warnings);
}

#[test]
fn identities_without_proof_cause_warnings() {
    let warnings = |text: &str| ok(text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let claimed = warnings(&responder("auth = eap\n eap_id = %any\n id = admin", "none"));
    assert!(claimed.len() == 1 && claimed[0].contains("any user may claim remote.id"), "{claimed:?}");
    for keys in
        ["auth = eap\n eap_id = %any", "auth = eap\n id = admin", "auth = eap\n eap_id = admin\n id = admin"]
    {
        assert_eq!(warnings(&responder(keys, "none")), [""; 0], "{keys}");
    }
    let client = |id: &str| {
        format!("connections {{ gw {{ local {{\n auth = eap\n }} remote {{\n auth = pubkey\n {id}\n }} }} }}")
    };
    let any = warnings(&client(""));
    assert!(any.len() == 1 && any[0].contains("may ask for the password"), "{any:?}");
    assert_eq!(warnings(&client("id = vpn.example.org")), [""; 0]);
}

#[test]
fn a_section_may_have_the_keys_of_a_usim() {
    let k = "secret = 0x465b5ce8b199b49faa5f0a2ee238a6bc";
    let config = |keys: &str| format!("secrets {{ eap-sim {{\n id = 232010000000000\n {keys}\n }} }}");
    let usim = |keys: &str| ok(&config(keys)).shared_keys[0].usim.clone();
    assert_eq!(usim(k), Usim::default());
    let opc = SecretBytes::new(&[0xCD; 16]);
    let digits = "cd".repeat(16);
    let both = format!("{k}\n opc = 0x{digits}\n amf = b9b9");
    assert_eq!(usim(&both), Usim { operator: Some(OperatorKey::Opc(opc.clone())), amf: [0xB9; 2] });
    let op = usim(&format!("{k}\n op = 0x{digits}"));
    assert_eq!(op.operator, Some(OperatorKey::Op(opc)));
    for (keys, reason) in [
        (format!("{k}\n op = 0x{digits}\n opc = 0x{digits}"), "either `op` or `opc` was expected"),
        (format!("secret = short\n opc = 0x{digits}"), "16 bytes were expected"),
        (format!("{k}\n opc = 0xcd"), "16 bytes were expected"),
        (format!("opc = 0x{digits}"), "with K of the USIM"),
        (format!("{k}\n amf = 8"), "four hexadecimal digits were expected"),
    ] {
        let problem = only(&config(&keys));
        assert!(problem.contains(reason), "{problem}");
        assert!(!problem.contains("465b") && !problem.contains("cdcd"), "no key in a message: {problem}");
    }
    assert_eq!(Usim::default().amf, [0x80, 0]);
}

#[test]
fn eap_sim_is_refused_with_the_reason() {
    assert!(
        only(&responder("auth = eap-sim", "none"))
            .contains("EAP-SIM is not implemented: its keys have 64 bits")
    );
}

#[test]
fn a_password_of_every_user_causes_a_warning() {
    let about = |text: &str| {
        let warnings = ok(text).warnings;
        warnings.iter().filter(|one| one.text.contains("every user name")).map(ToString::to_string).count()
    };
    let any = "secrets { eap {\n secret = s\n } }";
    let carol = "secrets { eap {\n secret = s\n } eap-carol {\n id = carol\n secret = t\n } }";
    let asked = responder("auth = eap\n eap_id = %any", "none");
    let fixed = responder("auth = eap\n eap_id = carol", "none");
    let named = "secrets { eap-carol {\n id = carol\n secret = t\n } }";
    for (text, count) in [
        (any.to_owned(), 0),
        (carol.to_owned(), 1),
        (format!("{asked} {any}"), 1),
        (format!("{fixed} {any}"), 0),
        (format!("{asked} {named}"), 0),
    ] {
        assert_eq!(about(&text), count, "{text}");
    }
}

#[test]
fn a_name_that_the_trap_hides_causes_a_warning() {
    let warned = |addrs: &str, ts: &str, more: &str| {
        let text = format!(
            "connections {{ gw {{\n remote_addrs = {addrs}\n vips = 0.0.0.0, ::\n children {{ net {{\n \
             remote_ts = {ts}\n start_action = trap\n }} {more} }} }} }}"
        );
        ok(&text).warnings.iter().any(|warning| warning.text.contains("block the look-up"))
    };
    let all = "0.0.0.0/0, ::/0";
    assert!(warned("vpn.example.org", all, ""));
    assert!(!warned("192.0.2.1", all, "") && !warned("vpn.example.org", "10.0.0.0/8", ""));
    let passing = "dns {\n mode = pass\n remote_ts = 192.168.1.1\n start_action = trap\n }";
    assert!(!warned("vpn.example.org", all, passing));
}

#[test]
fn attempts_end_only_where_the_file_limits_them() {
    let keeps = |key: &str| ok(&format!("connections {{ gw {{\n {key}\n }} }}")).connections[0].keeps_trying;
    assert!(keeps("") && keeps("keyingtries = 0"));
    assert!(!keeps("keyingtries = 1") && !keeps("keyingtries = 3"));
}
