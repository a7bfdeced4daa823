//! Vulnerabilities of other implementations that no other file here covers, by their identifiers.

use crate::create_child::child_request;
use crate::forge::{Attack, MessageForger, Raw, count, give_left, give_right, notifies};
use crate::pair::{IkePeer, LEFT, Pair, RIGHT, connection, key};
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Digest, HashAlg, KexError, KexMethod, KexResponse, KexSecret,
    KeyError, MacAlg, MacKey, PrfAlg, PrfKey, Provider, Providers, Rng,
};
use casemate_ike::{Context, Event, Path, StateFault};
use casemate_rustcrypto::RustCrypto;
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

/// Payload numbers of IKEv1 in an encrypted message are unknown ones, critical or not.
#[test]
fn cve_2015_3991_payloads_of_ikev1() {
    for kind in 1..=13 {
        let mut attack = Attack::established();
        assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &[Raw::new(PayloadType(kind), &[0; 20])]), []);
        let answer = attack.ask(ExchangeType::INFORMATIONAL, &[Raw::critical(kind)]);
        assert_eq!(notifies(&answer), [(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind])]);
        attack.check_alive();
    }
}

/// A second IKE_AUTH response, or one before the first message, changes nothing.
#[test]
fn cve_2015_8023_success_out_of_its_state() {
    let success = [Raw::new(PayloadType::EAP, &[3, 1, 0, 4])];
    let mut attack = Attack::established();
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &success), []);
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, true);
    let message = attack.forger.seal(&header, &success);
    assert!(attack.give(&message).is_empty());
    assert_eq!(attack.count("stray-response"), 1);
    attack.check_alive();
}

/// Every event and every fault can be printed: a log path that reads missing state would fail here.
#[test]
fn cve_2020_1763_cve_2022_23094_everything_can_be_told() {
    let mut attack = Attack::established();
    for exchange in [34, 35, 36, 37, 255] {
        for first in 0..=255u8 {
            let header = attack.forger.header(ExchangeType(exchange), attack.next, false);
            let text = [0, 0, 0, 8, 1, 2, 3, 4];
            let message = attack.forger.seal_with(&header, &[], None, PayloadType(first), &text);
            attack.give(&message);
            if attack.pair.right.ike.status().count() == 0 {
                attack = Attack::established();
            } else if exchange != 34 {
                attack.next += 1;
            }
            for event in &attack.pair.right.events {
                assert!(!format!("{event:?}").is_empty());
                if let Event::Fault { fault, .. } = event {
                    assert!(!fault.to_string().is_empty() && !fault.name().is_empty());
                }
            }
            attack.pair.right.events.clear();
            attack.pair.right.ike.report_keys(true);
        }
    }
}

/// An encrypted message to a side that has sent its first request and has no keys.
#[test]
fn vpp_98d6f29_encrypted_before_there_are_keys() {
    let established = Attack::established();
    let mut pair = Pair::with_defaults();
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap();
    let (mut header, _) = crate::forge::read_plain(&request.message);
    header.flags.initiator = false;
    let mut forger = MessageForger::new(established.forger.keys, false);
    for exchange in [35, 36, 37] {
        for response in [false, true] {
            header.exchange = ExchangeType(exchange);
            header.flags.response = response;
            header.spi_r.0 = 7;
            let message = forger.seal(&header, &[]);
            assert!(give_left(&mut pair, &message).is_empty());
        }
    }
    assert_eq!(count(&pair.left, "wrong-exchange"), 6);
    // The attempt continues.
    pair.left.sent.push_back(request);
    pair.run();
    pair.check_children(1);
}

/// Lengths of the encrypted payload, from none to one byte more than there are.
#[test]
fn vpp_7c8644c_lengths_of_the_encrypted_payload() {
    let mut attack = Attack::established();
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
    let message = attack.forger.seal(&header, &[]);
    let whole = u16::try_from(message.len() - 28).unwrap();
    for len in (0..whole).chain([whole + 1, u16::MAX]) {
        let mut changed = message.clone();
        changed[30..32].copy_from_slice(&len.to_be_bytes());
        assert!(attack.give(&changed).is_empty(), "{len}");
    }
    for len in 28..message.len() {
        let mut cut = message[..len].to_vec();
        let claimed = u32::try_from(len).unwrap().to_be_bytes();
        cut[24..28].copy_from_slice(&claimed);
        if let Some(size) = cut.get_mut(30..32) {
            size.copy_from_slice(&u16::try_from(len - 28).unwrap().to_be_bytes());
        }
        assert!(attack.give(&cut).is_empty(), "{len}");
    }
    attack.check_alive();
}

/// NAT detection data of a wrong length indicates a NAT and nothing else.
#[test]
fn vpp_c3f677c_nat_detection_of_any_length() {
    for len in [0, 1, 19, 21, 1_000] {
        let mut pair = Pair::with_defaults();
        let request = crate::forge::first_request(&mut pair);
        let (header, mut payloads) = crate::forge::read_plain(&request);
        for payload in &mut payloads {
            let kind = payload.body.get(2..4).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
            if payload.kind == PayloadType::NOTIFY && kind == Some(NotifyType::NAT_DETECTION_SOURCE_IP.0) {
                payload.body.truncate(4);
                payload.body.extend(vec![7; len]);
            }
        }
        let answers = give_right(&mut pair, &crate::forge::plain(&header, &payloads));
        let refused = count(&pair.right, "notify-data");
        assert_eq!(answers.len() as u64 + refused, 1, "{len}");
    }
}

/// With two Child SAs with the same SPI of the peer, each Delete payload removes one.
#[test]
fn cve_2023_30570_the_same_spi_twice() {
    let mut attack = Attack::established();
    for _ in 0..2 {
        assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0x77))[0].kind, PayloadType::SA);
    }
    for left in [2, 1] {
        attack.ask(ExchangeType::INFORMATIONAL, &[Raw::delete(&[0x77])]);
        assert_eq!(attack.pair.right.children().len(), left);
    }
    attack.check_alive();
    assert_eq!(attack.pair.right.ike.faults().state(StateFault::ChildNotFound), 0);
}

/// A provider without any PRF, although it lists them.
struct WithoutPrf;

impl Provider for WithoutPrf {
    fn name(&self) -> &'static str {
        "without PRF"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        RustCrypto.aead(alg, key)
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        RustCrypto.cipher(alg, key)
    }

    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        RustCrypto.mac(alg, key)
    }

    fn prf(&self, _: PrfAlg, _: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        Err(KeyError::Refused)
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        RustCrypto.kex(method, rng)
    }

    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        RustCrypto.kex_response(method, peer, rng)
    }

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        RustCrypto.hash(alg, parts)
    }
}

/// Delivers a datagram to a side with these algorithms.
fn give_with(provider: &dyn Provider, side: &mut IkePeer, from: &str, message: &[u8]) -> Vec<Vec<u8>> {
    let path = Path {
        local: (side.addr, 500).into(),
        remote: (from.parse::<std::net::IpAddr>().unwrap(), 500).into(),
    };
    let (list, now) = ([provider], casemate_sa::Instant::from_secs(1_000));
    let mut context = Context {
        now,
        unix_time: 0,
        rng: &mut side.rng,
        providers: &Providers(&list),
        credentials: &*side.keys,
        routes: &side.routes,
    };
    side.ike.receive(&mut message.to_vec(), path, &mut side.host, &mut context);
    std::iter::from_fn(|| side.ike.next_transmit()).map(|transmit| transmit.message).collect()
}

/// The chosen PRF cannot be set up: there are no keys and no IKE SA. With a working PRF the exchange
/// continues.
#[test]
fn cve_2018_10811_a_prf_that_is_not_there() {
    let mut pair = Pair::with_defaults();
    let request = crate::forge::first_request(&mut pair);
    let refusal = give_with(&WithoutPrf, &mut pair.right, LEFT, &request).remove(0);
    let (_, refusal) = crate::forge::read_plain(&refusal);
    assert_eq!(notifies(&refusal), [(NotifyType::TEMPORARY_FAILURE, vec![])]);
    assert_eq!((count(&pair.right, "provider"), pair.right.ike.status().count()), (1, 0));
    let answer = give_right(&mut pair, &request).remove(0);
    assert!(give_with(&WithoutPrf, &mut pair.left, RIGHT, &answer).is_empty());
    assert_eq!((count(&pair.left, "provider"), pair.left.down_reasons()), (1, vec![]));
}

/// A pair that negotiates this PRF.
fn with_prf(prf: PrfAlg) -> Pair {
    let of = |own: &str, peer: &str| {
        let mut connection = connection(own, peer);
        connection.proposals.iter_mut().for_each(|proposal| proposal.prfs = vec![prf]);
        connection
    };
    Pair::new(of("left", "right"), of("right", "left"))
}

/// PRFs based on AES accept keys and nonces of every length (RFC 4434 section 2, RFC 7296 section 2.14).
#[test]
fn cve_2016_3071_prfs_of_aes_with_keys_of_every_length() {
    for prf in [PrfAlg::AesXcbc, PrfAlg::AesCmac] {
        for secret in [1, 7, 8, 15, 16, 17, 32, 33, 100] {
            let mut pair = with_prf(prf);
            for side in [&mut pair.left, &mut pair.right] {
                side.keys = Box::new(key(&vec![7; secret]));
            }
            pair.left.initiate(pair.now);
            pair.run();
            pair.check_children(1);
        }
    }
}

/// Nonces of a peer have the minimum and the maximum length of RFC 7296 section 3.9.
#[test]
fn cve_2016_3071_prfs_of_aes_with_nonces_of_every_length() {
    for prf in [PrfAlg::AesXcbc, PrfAlg::AesCmac] {
        for len in [16, 17, 31, 32, 255, 256] {
            let mut pair = with_prf(prf);
            let request = crate::forge::first_request(&mut pair);
            let (header, payloads) = crate::forge::read_plain(&request);
            let payloads =
                crate::forge::altered(&payloads, PayloadType::NONCE, |nonce| *nonce = vec![7; len]);
            let answers = give_right(&mut pair, &crate::forge::plain(&header, &payloads));
            let kinds: Vec<_> =
                crate::forge::read_plain(&answers[0]).1.iter().map(|payload| payload.kind).collect();
            assert_eq!(kinds[..3], [PayloadType::SA, PayloadType::KE, PayloadType::NONCE], "{prf:?} {len}");
        }
    }
}

/// Certificates in every encoding. Only X.509 is parsed. PKCS #7 (1) is a container of CVE-2026-35329, and a
/// URL (12 and 13) would have to be fetched for an unauthenticated peer (CVE-2022-40617). Both are ignored.
#[test]
fn cve_2026_35329_cve_2022_40617_certificates_of_every_encoding() {
    for encoding in 0..=255 {
        let (mut attack, mut auth) = Attack::half_open(Pair::with_defaults());
        let url = [&[encoding][..], &[7; 20], b"http://192.0.2.99/certificate"].concat();
        auth.push(Raw::new(PayloadType::CERT, &url));
        auth.push(Raw::new(PayloadType::CERTREQ, &[&[encoding][..], &[7; 20]].concat()));
        let answer = attack.ask(ExchangeType::IKE_AUTH, &auth);
        assert_eq!(answer[1].kind, PayloadType::AUTH, "{encoding}");
        attack.check_alive();
        // Nothing was sent to any other host.
        assert!(attack.pair.right.sent.is_empty());
    }
}
