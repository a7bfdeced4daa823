//! Configurations in the style of strongSwan's test suite load unchanged and have the right meaning.

use super::super::{Config, ConfigError, Revocation, SystemEnvironment};
use super::{ok, only};
use casemate_crypto::{CipherAlg, HashAlg, KexMethod, MacAlg, MacKind, PrfAlg, SignatureAlg};
use casemate_ike::config::{
    self, AddrPattern, ChildAlgorithms, ChildConfig, ChildMode, CloseAction, Connection, Encapsulation,
    EsnPolicy, IdPattern, Identity, IdentityKind, IkeEncryption, LocalMethod, RemoteMethod, StartAction,
    Unique,
};
use casemate_linux::Performance;
use casemate_sa::{DfPolicy, DscpPolicy};
use casemate_strongswan::proposal::default_ike;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/swanctl")
}

fn load(name: &str) -> Config {
    let loaded = Config::load(&directory().join(name), &SystemEnvironment);
    loaded.unwrap_or_else(|error: ConfigError| panic!("{error}"))
}

fn connection(config: &Config) -> &Connection {
    let [connection] = &config.connections[..] else { panic!("{:?}", config.connections) };
    connection
}

fn child(connection: &Connection) -> &ChildConfig {
    let [child] = &connection.children[..] else { panic!("{:?}", connection.children) };
    child
}

fn fqdn(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

fn single(addr: &str) -> AddrPattern {
    AddrPattern::Range(casemate_sa::AddrRange::single(addr.parse().unwrap()))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn every_example_loads() {
    let mut count = 0;
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            let config = load(path.file_name().unwrap().to_str().unwrap());
            assert!(!config.connections.is_empty(), "{}", path.display());
            assert!(
                config.warnings.iter().all(|warning| {
                    ["updown", "secret", "leave in clear"].iter().any(|what| warning.text.contains(what))
                }),
                "{:?}",
                config.warnings
            );
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn net2net_psk() {
    let config = load("net2net-psk.conf");
    let gw = connection(&config);
    assert_eq!(gw.name, "gw-gw");
    assert_eq!(
        (&gw.local_addrs[..], &gw.remote_addrs[..]),
        (&[single("192.168.0.1")][..], &[single("192.168.0.2")][..])
    );
    assert_eq!(
        (gw.local.id.as_ref(), &gw.local.method),
        (Some(&fqdn("moon.strongswan.org")), &LocalMethod::SharedKey)
    );
    assert_eq!(gw.remote.id, IdPattern::Exact(fqdn("sun.strongswan.org")));
    assert_eq!(gw.remote.method, RemoteMethod::SharedKey);
    let [proposal] = &gw.proposals[..] else { panic!() };
    let aes = CipherAlg::AesCbc(casemate_crypto::AesBits::B128);
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    assert_eq!(proposal.encryption, IkeEncryption::Separate(vec![aes], vec![sha256]));
    assert_eq!(
        (&proposal.prfs[..], &proposal.kex[..]),
        (&[PrfAlg::HmacSha256][..], &[KexMethod::X25519][..])
    );
    // `reauth_time` disables rekeying unless both are given; the hard limit is a tenth later.
    assert_eq!(
        (gw.reauth, gw.lifespan.rekey, gw.lifespan.hard),
        (Some(seconds(10_800)), None, Some(seconds(11_880)))
    );
    assert_eq!(gw.lifespan.jitter, seconds(1_080));
    let net = child(gw);
    assert_eq!(net.local_ts[0].addrs.unwrap().to_string(), "10.1.0.0/16");
    assert_eq!(net.remote_ts[0].addrs.unwrap().to_string(), "10.2.0.0/16");
    assert_eq!((net.lifespan.rekey, net.lifespan.hard), (Some(seconds(5_400)), Some(seconds(5_940))));
    assert_eq!((net.rekey_bytes, net.life_bytes), (Some(500_000_000), Some(550_000_000)));
    assert_eq!((net.rekey_packets, net.life_packets), (Some(1_000_000), Some(1_100_000)));
    assert_eq!(
        (net.mode, net.start_action, net.replay_window),
        (ChildMode::Tunnel, StartAction::default(), 32)
    );
    let [first, second] = &config.shared_keys[..] else { panic!() };
    assert_eq!(first.secret.expose(), [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb]);
    assert_eq!(second.secret.expose(), (1..=16).collect::<Vec<u8>>());
    let ids = ["moon.strongswan.org", "sun.strongswan.org"].map(|id| IdPattern::Exact(fqdn(id)));
    assert_eq!((&first.ids[..], &second.ids[..]), (&ids[..1], &ids[..]));
    // One warning for the script, one for the short first secret.
    assert_eq!(config.warnings.len(), 2);
}

#[test]
fn certificates_and_their_conditions() {
    let config = load("net2net-cert.conf");
    let gw = connection(&config);
    let moon = directory().join("x509/moonCert.pem").to_str().unwrap().to_owned();
    assert_eq!(gw.local.method, LocalMethod::Certificate(vec![moon]));
    assert!(matches!(&gw.remote.id, IdPattern::Exact(Identity::Dn(der)) if der.starts_with(&[0x30])));
    // `default` in a list adds the defaults.
    assert_eq!(gw.proposals.len(), 1 + default_ike().len());
    assert_eq!(child(gw).start_action, StartAction { at_once: false, on_traffic: true });

    let config = load("rw-cert.conf");
    let rw = connection(&config);
    assert_eq!(rw.remote.id, IdPattern::Suffix(IdentityKind::Email, "@strongswan.org".into()));
    assert_eq!(rw.remote.method, RemoteMethod::Certificate("rw".into()));
    assert_eq!(
        (rw.dpd_delay, rw.send_certreq, rw.send_cert),
        (Some(seconds(60)), false, config::SendCert::Always)
    );
    assert_eq!(rw.remote_addrs, [AddrPattern::Any]);
    // The defaults: four hours, a hard limit a tenth later, and a random reduction of up to a tenth.
    assert_eq!((rw.lifespan.rekey, rw.lifespan.hard), (Some(seconds(14_400)), Some(seconds(15_840))));
    assert_eq!(
        (child(rw).proposals[0].esn, child(rw).dpd_action),
        (EsnPolicy::Preferred, CloseAction::Restart)
    );
    let conditions = &config.peer_conditions[0];
    assert_eq!((conditions.connection.as_str(), conditions.revocation), ("rw", Revocation::Strict));
    assert_eq!(conditions.cacerts, [directory().join("x509ca/strongswanCert.pem")]);
    assert_eq!(config.authorities[0].cacert, directory().join("x509ca/strongswanCert.pem"));
    assert_eq!(config.own_signatures[0].certs, [directory().join("x509/moonCert.pem")]);
    assert_eq!(config.authorities[0].crls, [Path::new("/etc/swanctl/x509crl/strongswan.crl")]);
}

#[test]
fn uris_of_an_authority() {
    let with = |uris: &str| format!("authorities {{\n ca {{\n cacert = ca.pem\n {uris}\n }}\n}}\n");
    let config = super::ok(&with(
        "crl_uris = http://a.test/a.crl, file:///etc/b.crl, 'ldap://c.test/cn=CA, \
         o=X?certificateRevocationList'\n \
         ocsp_uris = http://a.test:8880, http://[2001:db8::1]/x",
    ));
    let ca = &config.authorities[0];
    let texts =
        |uris: &[crate::revocation::HttpUri]| uris.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&ca.crl_uris), ["http://a.test/a.crl"]);
    assert_eq!(ca.crls, [Path::new("/etc/b.crl")]);
    assert_eq!(texts(&ca.ocsp_uris), ["http://a.test:8880", "http://[2001:db8::1]/x"]);
    assert_eq!(config.warnings.len(), 1, "ldap");
    for (uris, expected) in [
        ("crl_uris = 'ldap://c.test/cn=CA, o=X'", "crl_uris: only CRLs from http and file URIs are used"),
        ("crl_uris = ca.crl", "`ca.crl`: only CRLs from http and file URIs"),
        ("ocsp_uris = https://a.test", "`https://a.test`: a URI such as http://"),
        ("crl_uris = http://user@a.test/", "`http://user@a.test/`: a URI such as http://"),
        ("ocsp_uris = http://a, http://b, http://c, http://d, http://e", "ocsp_uris: at most 4 http URIs"),
    ] {
        let problem = super::only(&with(uris));
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn rw_psk_fqdn() {
    let config = load("rw-psk-fqdn.conf");
    let [carol, dave] = &config.connections[..] else { panic!() };
    assert_eq!(carol.remote.id, IdPattern::Exact(Identity::Email("carol@strongswan.org".into())));
    assert_eq!(dave.remote.id, IdPattern::Exact(Identity::KeyId(b"dave\n".to_vec())));
    // The other parameters are inherited.
    assert_eq!((&carol.local, &carol.children), (&dave.local, &dave.children));
    assert_eq!([carol.encapsulation, dave.encapsulation], [Encapsulation::Always; 2]);
    assert_eq!(config.shared_keys[0].secret.expose(), b"a passphrase with \"quotes\" # and no comment");
}

#[test]
fn host2host_transport() {
    let config = load("host2host-transport.conf");
    let host = connection(&config);
    assert_eq!(host.remote_addrs, [single("192.168.0.2"), single("fec0::2")]);
    let child = child(host);
    assert_eq!(
        (child.mode, child.start_action),
        (ChildMode::Transport, StartAction { at_once: true, on_traffic: true })
    );
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    assert_eq!(child.proposals[0].algorithms, ChildAlgorithms::Ah(vec![sha256]));
    let ports: Vec<_> = child.local_ts.iter().map(|ts| (ts.proto.unwrap(), ts.ports.first())).collect();
    assert_eq!(ports, [(6, 22), (17, 1024), (1, 0)]);
    assert_eq!((child.close_action, child.reqid, child.priority), (CloseAction::Trap, Some(17), Some(2)));
    assert_eq!((child.replay_window, child.tfc_pad_to, child.outer.ecn), (128, 128, false));
    assert_eq!((child.outer.dscp, child.outer.df), (DscpPolicy::Set(0), DfPolicy::Clear));
    let (own, peer) = (&config.own_signatures[0].signatures, &config.peer_conditions[0].signatures);
    assert_eq!((own.keys.and_then(|keys| keys.ecdsa), own.ike.len()), (Some(384), 3));
    assert_eq!((&peer.ike[..], &peer.chain[..]), (&[SignatureAlg::Ecdsa(HashAlg::Sha384)][..], &[][..]));
}

#[test]
fn outer_dscp_is_copied_cleared_or_set() {
    let connection = |inside: &str| format!("connections {{ a {{ children {{ c {{\n{inside}\n}} }} }} }}");
    let of = |inside: &str| {
        let config = ok(&connection(inside));
        config.connections[0].children[0].outer.dscp
    };
    assert_eq!(of(""), DscpPolicy::Copy);
    assert_eq!(of("copy_dscp = no"), DscpPolicy::Set(0));
    assert_eq!(of("dscp = ef"), DscpPolicy::Set(46));
    assert_eq!(of("copy_dscp = no\n dscp = 10"), DscpPolicy::Set(10));
    for (inside, start) in [
        ("copy_dscp = out\n dscp = ef", "connections.a.children.c.dscp: copy_dscp already copies the DSCP"),
        ("dscp = 64", "connections.a.children.c.dscp: `64`: unknown DSCP"),
    ] {
        let problem = only(&connection(inside));
        assert!(problem.contains(start), "{problem}");
    }
}

#[test]
fn dscp_values_of_a_child_are_a_set() {
    let connection = |inside: &str| {
        format!("connections {{ a {{\n remote_addrs = 192.0.2.2\n children {{ c {{\n{inside}\n}} }} }} }}")
    };
    let of = |inside: &str| {
        let config = ok(&connection(inside));
        config.connections[0].children[0].dscp.iter().map(|dscp| dscp.value()).collect::<Vec<_>>()
    };
    assert_eq!(of(""), [0; 0]);
    assert_eq!(of("dscp_values ="), [0; 0]);
    assert_eq!(of("dscp_values = ef, cs5,af41 , 0, 46"), [0, 34, 40, 46]);
    for (inside, start) in [
        (
            "dscp_values = ef, gold",
            "swanctl.conf:4: connections.a.children.c.dscp_values: `gold`: unknown DSCP, expected ef, voice-admit, le, default, \
             cs0 to cs7, af11 to af43, or a number up to 63",
        ),
        ("dscp_values = 64", "swanctl.conf:4: connections.a.children.c.dscp_values: `64`: unknown DSCP, "),
        (
            "mode = pass\n start_action = trap\n dscp_values = ef",
            "swanctl.conf:6: connections.a.children.c.dscp_values: pass and drop have no SA to select: no DSCP was expected",
        ),
    ] {
        let problem = only(&connection(inside));
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[test]
fn scheduler_widens_the_replay_window() {
    let with = |window: &str, scheduler: &str| {
        ok(&format!(
            "connections {{ a {{ children {{ c {{\n{window}\n}} }}\n remote {{\n auth = psk\n }} }} }}\n{scheduler}"
        ))
    };
    let on = "scheduler {\n}";
    for (window, scheduler, wanted) in [
        ("", "", 32),
        ("", on, 32_768),
        ("", "scheduler {\n enabled = no\n}", 32),
        ("replay_window = 0", on, 0),
        ("replay_window = 40000", on, 40_000),
    ] {
        let config = with(window, scheduler);
        assert_eq!(config.connections[0].children[0].replay_window, wanted);
        assert!(config.warnings.is_empty());
    }
    let narrow = with("replay_window = 64", on);
    assert_eq!(narrow.connections[0].children[0].replay_window, 64);
    assert!(narrow.warnings[0].to_string().contains("32768 or more was expected"), "{}", narrow.warnings[0]);
}

#[test]
fn pools_and_virtual_addresses() {
    let config = load("ip-pool.conf");
    let rw = connection(&config);
    assert_eq!((rw.pools.join(" "), rw.unique), ("rw_pool rw_pool6".into(), Unique::Replace));
    assert_eq!(rw.remote.id, IdPattern::DnPattern("C=CH, O=strongSwan Project, OU=Research, CN=*".into()));
    let shown: Vec<String> = config.pools.iter().map(|pool| pool.addrs.to_string()).collect();
    assert_eq!(shown, ["10.3.0.1-10.3.0.14", "fec3::10-fec3::ff"]);
    assert_eq!(
        (config.pools[0].dns.len(), config.pools[0].subnets[0].to_string()),
        (2, "10.1.0.0/16".into())
    );

    let config = load("virtual-ip.conf");
    let home = connection(&config);
    assert_eq!(home.vips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0", "::"]);
    assert_eq!(
        (home.keying_tries, home.lifespan.jitter, home.lifespan.hard),
        (0, seconds(1_200), Some(seconds(87_000)))
    );
    let shunts: Vec<_> =
        home.shunts.iter().map(|shunt| (shunt.name.as_str(), shunt.passes, shunt.priority)).collect();
    assert_eq!(shunts, [("local-net", true, None), ("nothing-else", false, Some(4_000))]);
    assert_eq!(child(home).close_action, CloseAction::Restart);
    assert_eq!(config.passphrases[0].file, directory().join("rsa/carolKey.pem"));
}

#[test]
fn templates() {
    let config = load("templates.conf");
    let [a, b] = &config.connections[..] else { panic!() };
    assert_eq!((&a.local, &a.proposals, &a.remote), (&b.local, &b.proposals, &b.remote));
    let starts = |connection: &Connection| {
        connection.children.iter().map(|child| child.start_action.on_traffic).collect::<Vec<_>>()
    };
    // In `b`, the start action of the first child is cleared, and the other child inherits that of the
    // template.
    assert_eq!((starts(a), starts(b)), (vec![true], vec![false, true]));
    assert_eq!(b.children[0].remote_ts, a.children[0].remote_ts);
    assert_eq!(config.shared_keys[0].ids, []);
}

#[test]
fn missing_keys_have_defaults() {
    let config = ok("connections { gw { children { net { } } } }");
    let gw = connection(&config);
    assert_eq!((&gw.proposals, &child(gw).proposals), (&default_ike(), &config::child_proposals()));
    assert_eq!((gw.local_port, gw.remote_port, gw.keying_tries, gw.dpd_delay), (500, 500, 1, None));
    assert_eq!(gw.local.method, LocalMethod::Certificate(Vec::new()));
    assert_eq!((&gw.remote.id, &gw.remote.method), (&IdPattern::Any, &RemoteMethod::Any("gw".into())));
    assert_eq!(child(gw).local_ts, [casemate_ike::TrafficSelectorTemplate::DYNAMIC]);
    assert_eq!(
        child(gw).lifespan,
        config::Lifespan { rekey: Some(seconds(3_600)), jitter: seconds(360), hard: Some(seconds(3_960)) }
    );
    // With rekeying and reauthentication, the hard limit depends on rekeying, and the random time on the
    // shorter time.
    let config = ok("connections { gw {\n rekey_time = 1h\n reauth_time = 10h\n } }");
    let lifespan = connection(&config).lifespan;
    assert_eq!((lifespan.jitter, lifespan.hard), (seconds(1_800), Some(seconds(7_200))));
    // AH comes before ESP if both are given.
    let config = ok(
        "connections { gw { children { net {\n esp_proposals = aes128gcm16\n ah_proposals = sha256\n } } } }",
    );
    let [ah, esp] = &child(connection(&config)).proposals[..] else { panic!() };
    assert!(matches!(
        (&ah.algorithms, &esp.algorithms),
        (ChildAlgorithms::Ah(_), ChildAlgorithms::EspCombined(_))
    ));
    // A condition that only a certificate can meet requires a certificate.
    let config = ok("connections { gw { remote {\n cacerts = ca.pem\n } } }");
    assert_eq!(connection(&config).remote.method, RemoteMethod::Certificate("gw".into()));
    // Host names are looked up later, for each attempt.
    let config = ok("connections { gw {\n remote_addrs = moon.strongswan.org, 10.0.0.1\n } }");
    let host = AddrPattern::Host("moon.strongswan.org".into());
    assert_eq!(connection(&config).remote_addrs, [host, single("10.0.0.1")]);
}

#[test]
fn the_section_performance_switches_off_link_sending_and_padding() {
    for text in ["", "performance { }", "performance {\n link_sending = yes\n}"] {
        let config = ok(text);
        assert_eq!(config.performance, Performance { batch_padding: 50, link_sending: true }, "{text}");
        assert_eq!(config.performance, Performance::default());
        assert!(config.warnings.is_empty());
    }
    let off = ok("performance {\n link_sending = no\n}").performance;
    assert_eq!(off, Performance { link_sending: false, ..Performance::default() });
    for (value, batch_padding) in [("no", 0), ("0", 0), ("20", 20), ("100", 100)] {
        let read = ok(&format!("performance {{\n batch_padding = {value}\n}}")).performance;
        assert_eq!(read, Performance { batch_padding, ..Performance::default() });
    }
}

#[test]
fn errors_in_the_section_performance_name_key_and_value() {
    for (inside, error) in [
        ("link_sending = perhaps", "performance.link_sending: `perhaps`: yes or no was expected"),
        (
            "batch_padding = 101",
            "performance.batch_padding: `101`: `no` or a number from 0 to 100 was expected",
        ),
        ("batch_padding = yes", "performance.batch_padding: `yes`: `no` or a number"),
        ("enabled = no", "performance.enabled: not a key"),
        ("sender { }", "performance.sender: not a section"),
    ] {
        let problem = only(&format!("performance {{\n{inside}\n}}"));
        assert!(problem.contains(error), "{}", problem);
    }
}
