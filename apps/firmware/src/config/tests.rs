//! Tests of the configuration parser.

use super::*;
use casemate_crypto::{AeadAlg, KexMethod, PrfAlg};
use casemate_ike::config::{
    ChildAlgorithms, ChildProposal, EspCombined, Identity, IkeProposal, KexRound, child_proposals,
    ike_proposals,
};
use std::string::ToString;
use std::{format, vec};

const IKE: &str =
    "address=10.9.0.2/24 keys=ike peer=10.9.0.1 id=firmware peer-id=gateway psk=hush role=initiate";

fn error(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn an_address_is_sufficient() {
    let config = Config::parse("address=fd00::2/64").unwrap();
    assert_eq!((config.address, config.prefix), ("fd00::2".parse().unwrap(), 64));
    assert_eq!((config.gateway, config.protection), (None, Protection::None));
}

#[test]
fn ike_needs_a_peer_identities_and_a_key() {
    let text = format!("{IKE} mode=transport gateway=10.9.0.1 virtio_mmio.device=512@0xfeb00e00:12");
    let Protection::Ike(ike) = Config::parse(&text).unwrap().protection else { panic!("IKE") };
    assert_eq!((ike.mode, ike.initiates), (Mode::Transport, true));
    assert_eq!((ike.id, ike.peer_id), (Identity::Fqdn("firmware".into()), Identity::Fqdn("gateway".into())));
    assert_eq!(ike.secret.expose(), b"hush");
}

#[test]
fn proposals_are_optional() {
    let suites = |words: &str| match Config::parse(&format!("{IKE} {words}")).unwrap().protection {
        Protection::Ike(keys) => (keys.ike, keys.esp),
        other => panic!("{other:?}"),
    };
    assert_eq!(suites(""), (ike_proposals(), child_proposals()));
    let (ike, esp) = suites("ike=aes256gcm16-prfsha384-ecp384 esp=chacha20poly1305");
    let [IkeProposal { prfs, kex, .. }] = &ike[..] else { panic!("{ike:?}") };
    assert_eq!((&prfs[..], &kex[..]), (&[PrfAlg::HmacSha384][..], &[KexMethod::EcpP384][..]));
    let chacha = EspCombined::Aead(AeadAlg::ChaCha20Poly1305);
    let [ChildProposal { algorithms, kex, .. }] = &esp[..] else { panic!("{esp:?}") };
    assert_eq!(*algorithms, ChildAlgorithms::EspCombined(vec![chacha]));
    assert!(kex.is_empty());
    // Preferred proposals come first.
    let (_, esp) = suites("esp=chacha20poly1305,aes256-sha512,");
    assert_eq!(esp.len(), 2);
    assert_eq!(esp[0].algorithms, ChildAlgorithms::EspCombined(vec![chacha]));
}

#[test]
fn ml_kem_may_follow_another_key_exchange() {
    let words =
        "ike=aes128-sha256-x25519-ke1_mlkem768,aes128-sha256-x25519 esp=aes128gcm16-x25519-ke1_mlkem768";
    let text = format!("{IKE} {words}");
    let Protection::Ike(keys) = Config::parse(&text).unwrap().protection else { panic!("IKE") };
    let [hybrid, classical] = &keys.ike[..] else { panic!("{:?}", keys.ike) };
    let first = &hybrid.additional[&KexRound::new(1).unwrap()];
    assert_eq!((&first.methods[..], first.optional), (&[KexMethod::MlKem768][..], false));
    assert!(classical.additional.is_empty());
    assert_eq!(keys.esp[0].additional, hybrid.additional);
    assert_eq!(keys.ppk, None);
}

#[test]
fn a_ppk_needs_an_id_and_a_key() {
    let text = format!("{IKE} ppk-id=carol@ppk ppk=hushed ppk-required=yes");
    let Protection::Ike(keys) = Config::parse(&text).unwrap().protection else { panic!("IKE") };
    let ppk = Ppk { id: b"carol@ppk".to_vec(), key: SecretBytes::new(b"hushed"), required: true };
    assert_eq!(keys.ppk, Some(ppk));
    for (words, named) in [
        ("ppk-id=carol", "ppk"),
        ("ppk=hushed", "ppk-id"),
        ("ppk-required=yes", "ppk-id"),
        ("ppk-id=*@ppk ppk=hushed", "ppk-id"),
        ("ppk-id=carol ppk=", "ppk"),
        ("ppk-id=carol ppk=hushed ppk-required=1", "ppk-required"),
    ] {
        let error = error(&format!("{IKE} {words}"));
        assert!(error.contains(&format!("`{named}`")) && !error.contains("hushed"), "{words}: {error}");
    }
}

#[test]
fn header_compression_needs_a_tunnel() {
    let rohc = |words: &str| match Config::parse(&format!("{IKE} {words}")).map(|config| config.protection) {
        Ok(Protection::Ike(keys)) => Ok(keys.rohc),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!((rohc(""), rohc("rohc=no"), rohc("rohc=yes")), (Ok(false), Ok(false), Ok(true)));
    assert_eq!(rohc("rohc=no mode=transport"), Ok(false));
    let transport = rohc("rohc=yes mode=transport").unwrap_err();
    assert_eq!(transport, "configuration, `rohc`: mode=tunnel was expected with yes");
    assert_eq!(rohc("rohc=1").unwrap_err(), "configuration, `rohc`: yes or no was expected");
    let manual = error("address=10.9.0.2/24 rohc=yes");
    assert_eq!(manual, "configuration, `rohc`: the word is unknown, or does not apply to these keys");
}

#[test]
fn manual_keys_are_split_into_encryption_and_integrity_key() {
    let keys = format!("key-in=0x{} key-out={}", "ab".repeat(16) + &"cd".repeat(32), "01".repeat(48));
    let text =
        format!("address=10.9.0.2/24\nkeys=manual peer=10.9.0.1\nspi-in=0x1001 spi-out=0x1002 {keys}\n");
    let Protection::Manual(manual) = Config::parse(&text).unwrap().protection else { panic!("manual keys") };
    assert_eq!(manual.mode, Mode::Tunnel);
    let Protocols::Esp(Pair { inbound, outbound }) = manual.protocols else { panic!("ESP alone") };
    assert_eq!(inbound.encr.expose(), [0xAB; 16]);
    assert_eq!(inbound.integ.expose(), [0xCD; 32]);
    assert_eq!((inbound.spi.get(), outbound.spi.get()), (0x1001, 0x1002));
}

#[test]
fn ah_is_used_alone_or_around_esp() {
    let head = "address=10.9.0.2/24 keys=manual peer=10.9.0.1 mode=transport";
    let ah = format!("ah-spi-in=0x2001 ah-spi-out=0x2002 ah-key-in=0x{0} ah-key-out=0x{0}", "ef".repeat(32));
    let esp = format!("spi-in=0x1001 spi-out=0x1002 key-in=0x{0} key-out=0x{0}", "ab".repeat(48));
    let protocols = |text: &str| match Config::parse(text).unwrap().protection {
        Protection::Manual(manual) => manual.protocols,
        other => panic!("{other:?}"),
    };
    let Protocols::Ah(Pair { inbound, outbound }) = protocols(&format!("{head} {ah}")) else { panic!("AH") };
    assert_eq!((inbound.spi.get(), outbound.spi.get()), (0x2001, 0x2002));
    assert_eq!(inbound.integ.expose(), [0xEF; 32]);
    let Protocols::Both(esp_pair, ah_pair) = protocols(&format!("{head} {ah} {esp}")) else { panic!("both") };
    assert_eq!((esp_pair.inbound.spi.get(), ah_pair.outbound.spi.get()), (0x1001, 0x2002));
    // An incomplete AH pair.
    assert!(
        error(&format!("{head} {esp} ah-spi-in=0x2001 ah-key-in=0x{}", "ef".repeat(32)))
            .contains("`ah-spi-out`")
    );
    assert!(error(&format!("{head} {}", ah.replace("efef ", "ef "))).contains("`ah-key-in`"));
    assert!(error(head).contains("`spi-in`"));
}

#[test]
fn errors_name_the_word_without_its_value() {
    for (text, word) in [
        ("", "address"),
        ("address=10.9.0.2", "address"),
        ("address=10.9.0.2/33", "address"),
        ("address=10.9.0.2/24 gateway=fd00::1", "gateway"),
        ("address=10.9.0.2/24 keys=some", "keys"),
        ("address=10.9.0.2/24 psk=hush", "psk"),
        ("address=10.9.0.2/24 address=10.9.0.3/24", "address"),
        ("address=10.9.0.2/24 hush", "..."),
        (&IKE.replace("role=initiate", ""), "role"),
        (&IKE.replace("psk=hush", "psk="), "psk"),
        (&IKE.replace("peer=10.9.0.1", "peer=10.9.0.1.hush"), "peer"),
        (&format!("{IKE} mode=hush"), "mode"),
        (&format!("{IKE} esp=hush"), "esp"),
        (&format!("{IKE} esp=aes128"), "esp"),
        (&format!("{IKE} esp=,"), "esp"),
        (&format!("{IKE} ike=aes128gcm16-hush"), "ike"),
        (&format!("{IKE} ike=aes128gcm16"), "ike"),
        ("address=10.9.0.2/24 esp=aes128gcm16", "esp"),
        (&format!("{IKE} fault=hush"), "fault"),
        (&format!("{IKE} hold-heap=256"), "hold-heap"),
        ("address=10.9.0.2/24 keys=manual peer=10.9.0.1 spi-in=0x1001 spi-out=0x1002 key-in=0xab", "key-in"),
        ("address=10.9.0.2/24 keys=manual peer=10.9.0.1 spi-in=0xff", "spi-in"),
    ] {
        let message = error(text);
        assert!(message.contains(&format!("`{word}`")), "{text}: {message}");
        assert!(!message.contains("hush"), "{text}: {message}");
    }
}

#[test]
fn faults_have_names() {
    let config = Config::parse("address=10.9.0.2/24 fault=run-stack").unwrap();
    assert_eq!(config.fault, Some(Fault::RunStack));
    let config = Config::parse(IKE).unwrap();
    assert_eq!((config.fault, config.holds_heap), (None, None));
    assert_eq!(Config::parse(&format!("{IKE} hold-heap=3")).unwrap().holds_heap, Some(3));
}

#[test]
fn secrets_are_not_printed() {
    assert!(!format!("{:?}", Config::parse(IKE)).contains("hush"));
}
