//! Messages that only a side with the keys can write.

use super::attribute::Writer;
use super::keys::tests::with_credentials;
use super::keys::{Keys, Secrets, bind_to_network};
use super::milenage::{Amf, Milenage};
use super::*;
use crate::method::{MethodRequest, PeerMethod as _, ServerMethod as _, ServerStep};
use crate::{EapCredentials, SequenceNumbers};
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_legacy::LEGACY;
use core::cell::RefCell;

const IDENTITY: &[u8] = b"0555444333222111";

/// A subscriber, as the USIM and as the home network.
struct Sim {
    subscriber: Subscriber,
    numbers: RefCell<(NetworkSequence, UsimSequence)>,
}

impl Sim {
    fn new() -> Self {
        let subscriber = Subscriber::new(&[1; 16], &[2; 16], Subscriber::DEFAULT_AMF);
        Self { subscriber, numbers: RefCell::new((NetworkSequence::default(), UsimSequence::NEW)) }
    }
}

impl EapCredentials for Sim {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        None
    }

    fn subscriber(&self, _identity: &[u8]) -> Option<&Subscriber> {
        Some(&self.subscriber)
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        Some(self)
    }
}

impl SequenceNumbers for Sim {
    fn change_network(&self, _identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        change(&mut self.numbers.borrow_mut().0);
    }

    fn change_usim(&self, _identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        change(&mut self.numbers.borrow_mut().1);
    }
}

/// The subtype of the response of a USIM to a challenge of EAP-AKA' with this AMF.
fn response_to(amf: Amf) -> u8 {
    with_credentials(&Sim::new(), |context| {
        let rand = [3; 16];
        let sim = Sim::new();
        let milenage = Milenage::new(&sim.subscriber, &rand, context.providers).unwrap();
        let derived = milenage.derive().unwrap();
        let autn = milenage.autn(33, amf, &derived).unwrap();
        let (ck, ik) = bind_to_network(&derived, autn.first_chunk().unwrap(), NETWORK, context).unwrap();
        let keys = Keys::aka_prime(&Secrets { ck: &ck, ik: &ik, identity: IDENTITY }, context).unwrap();
        let writer =
            Writer::new(Subtype::CHALLENGE).rand(&rand).autn(&autn).kdf(KDF_DEFAULT).network(NETWORK);
        let data = writer.mac(EapCode::REQUEST, 7, &keys, context).unwrap();
        let mut peer = AkaPeer::new(Flavour::AkaPrime, IDENTITY, true);
        peer.respond(&MethodRequest { identifier: 7, data: &data }, context).unwrap()[0]
    })
}

/// RFC 9048 section 3.3: the peer must check the bit.
#[test]
fn aka_prime_requires_the_separation_bit() {
    assert_eq!(response_to(Amf([0x80, 0])), Subtype::CHALLENGE.0);
    assert_eq!(response_to(Amf([0x7F, 0xFF])), Subtype::AUTHENTICATION_REJECT.0);
}

/// Whether the authenticator accepts the response of a peer that has the keys, and changes RES like this.
fn accepts(change: fn(&[u8]) -> Vec<u8>) -> bool {
    let sim = Sim::new();
    with_credentials(&sim, |context| {
        let mut server = AkaServer::new(Flavour::Aka, IDENTITY, false);
        let challenge = server.begin(7, context).unwrap();
        let rand = attribute::Message::parse(&challenge).unwrap().rand.copied().unwrap();
        let derived = Milenage::new(&sim.subscriber, &rand, context.providers).unwrap().derive().unwrap();
        let secrets = Secrets { ck: &derived.ck, ik: &derived.ik, identity: IDENTITY };
        let keys = Keys::aka(&secrets, context).unwrap();
        let writer = Writer::new(Subtype::CHALLENGE).res(&change(&*derived.res));
        let response = writer.mac(EapCode::RESPONSE, 7, &keys, context).unwrap();
        let step = server.receive(&MethodRequest { identifier: 7, data: &response }, context);
        match step.unwrap() {
            ServerStep::Finished(_) => true,
            ServerStep::Request(_) => {
                assert_eq!(server.fault(), Some(EapFault::WrongPassword));
                false
            }
        }
    })
}

#[test]
fn res_is_compared() {
    assert!(accepts(<[u8]>::to_vec));
    assert!(!accepts(|res| res[..4].into()));
    assert!(!accepts(|res| [res, &[0]].concat()));
    assert!(!accepts(|res| res.iter().map(|byte| byte ^ 1).collect()));
}
