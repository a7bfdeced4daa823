//! AUTH payloads that cover the IKE_SA_INIT messages of both sides
//! (draft-ietf-ipsecme-ikev2-downgrade-prevention): an initiator of its own, which computes them from the
//! formulas, against an engine, and two engines with an attacker between them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[path = "hostile/forge.rs"]
mod forge;
mod pair;

use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg, Provider, Providers};
use casemate_ike::config::{Connection, IkeEncryption, IkeProposal};
use casemate_ike::{DownReason, IkeSaId};
use casemate_wire::ike::{AuthMethod, ExchangeType, NotifyType, PayloadType};
use forge::{MessageForger, Raw, altered, count, give_right, notifies, plain, read_plain};
use pair::{Pair, RecordingRng, connection};
use std::time::Duration;

const FULL: NotifyType = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
/// A status type that no host knows.
const UNKNOWN: NotifyType = NotifyType(40_960);
const SECRET: &[u8] = b"a key that both have";

fn pair_of(left: bool, right: bool) -> Pair {
    let one = |own: &str, peer: &str, full_transcript_auth: bool| Connection {
        full_transcript_auth,
        ..connection(own, peer)
    };
    Pair::new(one("left", "right", left), one("right", "left", right))
}

fn announces(message: &[u8]) -> bool {
    notifies(&read_plain(message).1).iter().any(|(kind, _)| *kind == FULL)
}

/// Replaces the announcement by a notification that no host knows.
fn strip(message: &mut [u8]) {
    let (known, unknown) = (FULL.0.to_be_bytes(), UNKNOWN.0.to_be_bytes());
    let at = message.windows(4).position(|part| part == [0, 0, known[0], known[1]]).unwrap();
    message[at + 2..at + 4].copy_from_slice(&unknown);
}

#[test]
fn it_is_used_if_both_sides_announce_it() {
    for (left, right) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = pair_of(left, right);
        pair.left.initiate(pair.now);
        assert_eq!(announces(&pair.left.sent[0].message), left);
        pair.deliver_to_right();
        // A responder announces it whether or not the request does.
        assert_eq!(announces(&pair.right.sent[0].message), right);
        pair.run();
        pair.check_children(1);
        for side in [&mut pair.left, &mut pair.right] {
            let status = side.ike.status().next().unwrap();
            assert_eq!(status.full_transcript_auth, left && right, "{left} {right}");
        }
    }
}

#[test]
fn a_removed_announcement_ends_the_attempt() {
    for from_request in [true, false] {
        let mut pair = pair_of(true, true);
        pair.left.initiate(pair.now);
        if from_request {
            strip(&mut pair.left.sent[0].message);
        }
        pair.deliver_to_right();
        if !from_request {
            strip(&mut pair.right.sent[0].message);
        }
        pair.run();
        assert_eq!(count(&pair.right, "auth-mismatch"), 1, "{from_request}");
        assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
        assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
    }
}

/// An initiator that is not an engine, after IKE_SA_INIT with the right side.
struct Initiator {
    pair: Pair,
    forger: MessageForger,
    request: Vec<u8>,
    response: Vec<u8>,
    nonces: [Vec<u8>; 2],
    /// SK_pi and SK_pr.
    sk_p: [Vec<u8>; 2],
}

fn with_providers<T>(act: impl FnOnce(&Providers<'_>) -> T) -> T {
    let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
    act(&Providers(&[provider]))
}

fn prf(key: &[u8], data: &[&[u8]]) -> Vec<u8> {
    let key = |providers: &Providers<'_>| providers.prf(PrfAlg::HmacSha256, key).unwrap();
    with_providers(|providers| key(providers).prf(data).unwrap().expose().to_vec())
}

/// prf+ (RFC 7296 section 2.13).
fn prf_plus(key: &[u8], seed: &[u8], len: usize) -> Vec<u8> {
    let (mut out, mut last) = (vec![], vec![]);
    for number in 1..=u8::MAX {
        if out.len() >= len {
            break;
        }
        last = prf(key, &[&last, seed, &[number]]);
        out.extend(&last);
    }
    out
}

fn body(payloads: &[Raw], kind: PayloadType) -> Vec<u8> {
    payloads.iter().find(|payload| payload.kind == kind).unwrap().body.clone()
}

impl Initiator {
    /// Exchanges IKE_SA_INIT. `change` is what an attacker changes in the request on its way.
    fn new(mut pair: Pair, change: impl Fn(&mut Vec<u8>)) -> Self {
        pair.right.ike.report_keys(true);
        let mut rng = RecordingRng::new(77);
        let kex = with_providers(|providers| providers.kex(KexMethod::X25519, &mut rng)).unwrap();
        let template = forge::first_request(&mut pair);
        let (header, payloads) = read_plain(&template);
        let payloads =
            altered(&payloads, PayloadType::KE, |ke| ke.splice(4.., kex.public().to_vec()).for_each(drop));
        let request = plain(&header, &payloads);
        let mut arrives = request.clone();
        change(&mut arrives);
        let [response] = give_right(&mut pair, &arrives).try_into().unwrap();
        let (_, answer) = read_plain(&response);
        let nonces = [body(&payloads, PayloadType::NONCE), body(&answer, PayloadType::NONCE)];
        let shared = kex.agree(&body(&answer, PayloadType::KE)[4..]).unwrap();
        let seed = nonces.concat();
        let forger = MessageForger::against(&pair.right);
        let spis = [forger.keys.spis.initiator, forger.keys.spis.responder].map(|spi| spi.0.to_be_bytes());
        let skeyseed = prf(&seed, &[shared.expose()]);
        // SK_d, SK_ei and SK_er with their salts, SK_pi, SK_pr (section 2.14; RFC 5282 section 7.1).
        let keys = prf_plus(&skeyseed, &[&seed[..], spis.as_flattened()].concat(), 32 + 2 * 36 + 2 * 32);
        assert_eq!(forger.keys.encr.initiator.expose(), &keys[32..68]);
        let sk_p = [keys[104..136].to_vec(), keys[136..168].to_vec()];
        Self { pair, forger, request, response, nonces, sk_p }
    }

    /// AUTH value of an end that has sent the first of these messages and received the other.
    fn auth(&self, of: usize, sent: &[u8], received: Option<&[u8]>) -> Vec<u8> {
        let name: &[u8] = if of == 0 { b"\x02\0\0\0left" } else { b"\x02\0\0\0right" };
        let before = received.map_or(vec![], |received| [&[0; 8], received].concat());
        let maced_id = prf(&self.sk_p[of], &[name]);
        let key = prf(SECRET, &[b"Key Pad for IKEv2"]);
        prf(&key, &[&before, sent, &self.nonces[1 - of], &maced_id])
    }

    /// Sends IKE_AUTH without a Child SA, and returns the AUTH value of the response, or its error.
    fn authenticate(&mut self, value: &[u8]) -> Result<Vec<u8>, NotifyType> {
        let auth = [&[AuthMethod::SHARED_KEY.0, 0, 0, 0], value].concat();
        let inside = [Raw::new(PayloadType::ID_I, b"\x02\0\0\0left"), Raw::new(PayloadType::AUTH, &auth)];
        let header = self.forger.header(ExchangeType::IKE_AUTH, 1, false);
        let message = self.forger.seal(&header, &inside);
        let [answer] = give_right(&mut self.pair, &message).try_into().unwrap();
        let (_, payloads) = self.forger.open(&answer);
        match payloads.iter().find(|payload| payload.kind == PayloadType::AUTH) {
            Some(auth) => Ok(auth.body[4..].to_vec()),
            None => Err(notifies(&payloads)[0].0),
        }
    }
}

/// A pair whose algorithms fix the lengths of the keys.
fn fixed(left: bool, right: bool) -> Pair {
    let mut pair = pair_of(left, right);
    for side in [&mut pair.left, &mut pair.right] {
        let mut connection = (*side.ike.connections()[0]).clone();
        connection.proposals = vec![IkeProposal {
            encryption: IkeEncryption::Combined(vec![AeadAlg::aes_gcm(AesBits::B256, 16).unwrap()]),
            prfs: vec![PrfAlg::HmacSha256],
            kex: vec![KexMethod::X25519],
            ..connection.proposals[0].clone()
        }];
        side.ike.configure(vec![connection.into()], &[]);
    }
    pair
}

#[test]
fn the_values_are_those_of_the_draft() {
    for announced in [true, false] {
        let mut initiator = Initiator::new(fixed(announced, true), |_| ());
        let (request, response) = (initiator.request.clone(), initiator.response.clone());
        let value = initiator.auth(0, &request, announced.then_some(&*response));
        let answer = initiator.authenticate(&value).unwrap();
        assert_eq!(answer, initiator.auth(1, &response, announced.then_some(&*request)));
    }
}

#[test]
fn a_value_of_one_message_is_refused_if_both_were_agreed_and_the_reverse() {
    for announced in [true, false] {
        let mut initiator = Initiator::new(fixed(announced, true), |_| ());
        let (request, response) = (initiator.request.clone(), initiator.response.clone());
        let value = initiator.auth(0, &request, (!announced).then_some(&*response));
        assert_eq!(initiator.authenticate(&value), Err(NotifyType::AUTHENTICATION_FAILED));
    }
}

/// An attacker with the key of the initiator computes AUTH for the request that has arrived, not for the one
/// that was sent. The AUTH value of the responder shows the difference, if it covers the request.
#[test]
fn a_changed_request_is_noticed_although_the_key_of_the_initiator_is_known() {
    for announced in [true, false] {
        let change = |request: &mut Vec<u8>| {
            let spoiled = NotifyType::SIGNATURE_HASH_ALGORITHMS.0.to_be_bytes();
            let at = request.windows(2).position(|part| part == spoiled).unwrap();
            request[at..at + 2].copy_from_slice(&UNKNOWN.0.to_be_bytes());
        };
        let mut attack = Initiator::new(fixed(announced, true), change);
        let (request, response) = (attack.request.clone(), attack.response.clone());
        let mut arrived = request.clone();
        change(&mut arrived);
        let value = attack.auth(0, &arrived, announced.then_some(&*response));
        let answer = attack.authenticate(&value).unwrap();
        let expected = attack.auth(1, &response, announced.then_some(&*request));
        assert_eq!(answer == expected, !announced, "only with the extension the initiator notices it");
    }
}

#[test]
fn rekeying_keeps_what_was_agreed() {
    let mut pair = pair_of(true, true);
    pair.left.initiate(pair.now);
    pair.run();
    let id = |pair: &Pair| -> IkeSaId { pair.left.ike.status().next().unwrap().id };
    let ike = id(&pair);
    let now = pair.now;
    assert!(pair.left.with_context(now, |engine, host, context| engine.rekey(ike, host, context)));
    pair.run();
    pair.advance(Duration::from_secs(1));
    for side in [&pair.left, &pair.right] {
        let all: Vec<_> = side.ike.status().collect();
        assert_eq!(all.len(), 1);
        assert!(all[0].full_transcript_auth);
    }
    assert_ne!(id(&pair), ike);
}
