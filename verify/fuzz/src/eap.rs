//! EAP conversations of both roles with an attacker in the place of the other side.

use crate::Target;
use crate::input::{Input, Script};
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_eap::{
    Authenticator as _, AuthenticatorStep, EapContext, EapCredentials, EapPacket, LocalAuthenticator, Method,
    NetworkSequence, Peer, PeerStep, SequenceNumbers, Subscriber, UsimSequence, aka_identity,
};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::TestRng;
use casemate_wire::ike::{Eap, EapCode};
use std::cell::RefCell;

pub(crate) const TARGET: Target = Target {
    name: "eap",
    about: "EAP conversations of both roles: without the password, no packets lead to success; with it, to equal keys only",
    max_len: 1_000,
    run,
    seeds,
    dictionary: &["carol", "S=", "E=691 R=0 C="],
};

const IDENTITY: &[u8] = b"carol";
/// Password of the authenticator, and of the peer if the input says so. No input must contain it, so it is in
/// no seed and too long to be found.
const PASSWORD: &[u8] = b"jRr5Yt0vLqWm8ZsXc2Bn";
const WRONG_PASSWORD: &[u8] = b"lion";
/// Largest number of rounds of a conversation. None has more than four; a packet that ends one is followed by
/// some more.
const MAX_ROUNDS: usize = 12;

/// Methods with the key of a USIM.
const WITH_USIM: [Method; 2] = [Method::AkaPrime, Method::Aka];
/// Setups without any method with a password: another byte selects those with a USIM.
const NO_PASSWORD_METHODS: u8 = 0xFC;

/// The password of one side, whose first bytes are also the key of a USIM.
struct Secret {
    password: SecretBytes,
    subscriber: Subscriber,
    numbers: RefCell<(NetworkSequence, UsimSequence)>,
}

impl Secret {
    fn new(password: &[u8]) -> Self {
        let mut k = [0; 16];
        k.iter_mut().zip(password).for_each(|(to, from)| *to = *from);
        Self {
            password: SecretBytes::new(password),
            subscriber: Subscriber::new(&k, &[0; 16], Subscriber::DEFAULT_AMF),
            numbers: RefCell::new((NetworkSequence::default(), UsimSequence::NEW)),
        }
    }
}

impl SequenceNumbers for Secret {
    fn change_network(&self, _identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        change(&mut self.numbers.borrow_mut().0);
    }

    fn change_usim(&self, _identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        change(&mut self.numbers.borrow_mut().1);
    }
}

impl EapCredentials for Secret {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        (identity == IDENTITY).then_some(&self.password)
    }

    fn subscriber(&self, identity: &[u8]) -> Option<&Subscriber> {
        (identity == IDENTITY).then_some(&self.subscriber)
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        Some(self)
    }
}

/// A packet on its way.
struct Packet {
    code: EapCode,
    identifier: u8,
    data: Vec<u8>,
}

impl Packet {
    fn payload(&self) -> Eap<'_> {
        Eap { code: self.code, identifier: self.identifier, data: &self.data }
    }
}

impl From<&EapPacket> for Packet {
    fn from(packet: &EapPacket) -> Self {
        let Eap { code, identifier, data } = packet.as_payload();
        Self { code, identifier, data: data.into() }
    }
}

/// One side of a conversation, and its password.
struct Side<T> {
    role: T,
    secret: Secret,
    rng: TestRng,
    /// Method and key, if it has succeeded.
    result: Option<(Method, Option<SecretBytes>)>,
}

impl<T> Side<T> {
    fn new(role: T, password: &[u8], seed: u64) -> Self {
        Self { role, secret: Secret::new(password), rng: TestRng::new(seed), result: None }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut T, &mut EapContext<'_>) -> R) -> R {
        let Self { role, secret, rng, .. } = self;
        let providers = &Providers(&[&RUSTCRYPTO]);
        act(role, &mut EapContext { rng, providers, credentials: secret })
    }
}

impl Side<Peer> {
    fn receive(&mut self, packet: &Packet) -> Option<Packet> {
        match self.act(|peer, context| peer.receive(&packet.payload(), context)) {
            PeerStep::Respond(packet) => Some((&packet).into()),
            PeerStep::Succeeded(done) => {
                assert!(self.result.is_none(), "a second success");
                let method = done.method.expect("a local method has a name");
                assert_eq!(done.msk.is_some(), method.derives_keys());
                self.result = Some((method, done.msk));
                None
            }
            PeerStep::Pending => panic!("nothing is looked up"),
            PeerStep::Failed(_) => None,
        }
    }
}

impl Side<LocalAuthenticator> {
    fn finish(&mut self, step: AuthenticatorStep) -> Packet {
        match step {
            AuthenticatorStep::Request(packet) | AuthenticatorStep::Failed(packet, _) => (&packet).into(),
            AuthenticatorStep::Succeeded(packet, done) => {
                assert!(self.result.is_none(), "a second success");
                let method = done.method.expect("a local method has a name");
                assert_eq!(done.msk.is_some(), method.derives_keys());
                self.result = Some((method, done.msk));
                (&packet).into()
            }
            AuthenticatorStep::Pending => panic!("nothing is looked up"),
        }
    }

    fn start(&mut self) -> Packet {
        let step = self.act(|authenticator, context| authenticator.start(context));
        self.finish(step)
    }

    fn receive(&mut self, packet: &Packet) -> Packet {
        let step = self.act(|authenticator, context| authenticator.receive(&packet.payload(), context));
        self.finish(step)
    }
}

/// Input: the setup, then one choice for each packet.
fn run(bytes: &[u8]) {
    // A relay reads responses of peers that it passes on.
    let _ = aka_identity(bytes);
    let mut input = Input::new(bytes);
    let setup = input.u8();
    let is_right = setup & 1 != 0;
    let usim_bits = if setup & NO_PASSWORD_METHODS == NO_PASSWORD_METHODS { input.u8() } else { !0 };
    let select = |bits: u8, methods: &[Method]| -> Vec<Method> {
        (0..).zip(methods).filter(|(at, _)| bits & 1 << at == 0).map(|(_, method)| *method).collect()
    };
    let methods = |bits: u8, usim_bits: u8| {
        [select(bits, &Method::WITH_PASSWORD), select(usim_bits, &WITH_USIM)].concat()
    };
    let identity = (setup & 2 != 0).then(|| IDENTITY.to_vec());
    let (offered, accepted) = (methods(setup >> 2, usim_bits), methods(setup >> 5, usim_bits >> 2));
    let must_succeed = is_right && input.is_empty() && offered.iter().any(|method| accepted.contains(method));
    let authenticator = LocalAuthenticator::new(identity, offered);
    let peer = Peer::new(IDENTITY.to_vec(), accepted);
    let mut authenticator = Side::new(authenticator, PASSWORD, 1);
    let mut peer = Side::new(peer, if is_right { PASSWORD } else { WRONG_PASSWORD }, 2);
    converse(&mut input, &mut peer, &mut authenticator);
    check(is_right, &peer, &authenticator);
    if must_succeed {
        assert!(peer.result.is_some() && peer.result == authenticator.result, "nothing was changed");
    }
}

/// Passes the packets of both sides on, as the input changes and replaces them.
fn converse(input: &mut Input<'_>, peer: &mut Side<Peer>, authenticator: &mut Side<LocalAuthenticator>) {
    let mut request = authenticator.start();
    for _ in 0..MAX_ROUNDS {
        change(input, &mut request);
        let mut response = peer.receive(&request).unwrap_or(Packet {
            code: EapCode::RESPONSE,
            identifier: request.identifier,
            data: vec![0],
        });
        change(input, &mut response);
        request = authenticator.receive(&response);
    }
}

/// Changes a packet as the next bytes of the input say; after its end, not at all.
fn change(input: &mut Input<'_>, packet: &mut Packet) {
    let choice = input.u8();
    match choice % 8 {
        1 => packet.code = EapCode(input.u8()),
        2 => packet.identifier = input.u8(),
        3 => {
            let len = usize::from(input.u8());
            packet.data = input.take(len).to_vec();
        }
        4 if !packet.data.is_empty() => {
            let at = input.index(packet.data.len());
            packet.data[at] ^= input.u8();
        }
        5 => packet.data.truncate(usize::from(input.u8())),
        6 => {
            // Keeps the type and the fields behind it, with a length that fits.
            let kept = usize::from(input.u8()).min(packet.data.len());
            packet.data.truncate(kept);
            let len = usize::from(input.u8());
            packet.data.extend_from_slice(input.take(len));
            let length = (packet.data.len() as u16).saturating_sub(1).to_be_bytes();
            if let Some(field) = packet.data.get_mut(3..5) {
                field.copy_from_slice(&length);
            }
        }
        7 => (packet.code, packet.data) = (EapCode(3 + (choice >> 7)), Vec::new()),
        _ => {}
    }
}

fn check(is_right: bool, peer: &Side<Peer>, authenticator: &Side<LocalAuthenticator>) {
    assert!(is_right || authenticator.result.is_none(), "authenticated without the password");
    if let Some((method, key)) = &peer.result {
        // The others do not authenticate the authenticator.
        if *method == Method::MsChapV2 || method.uses_usim() {
            assert!(is_right, "convinced without the password");
        }
        if let Some((other, other_key)) = &authenticator.result {
            assert!(method != other || key == other_key, "the keys differ");
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let success_request = [&[26, 3, 7, 0, 46][..], b"S=", &[b'0'; 40]].concat();
    let packets: [&[u8]; 7] =
        [&success_request, &[26, 4, 7, 0, 4], &[26, 3], &[26, 4], &[3, 26, 6, 4], &[1], b"\x06lion"];
    let mut seeds: Vec<_> = (0..=255).step_by(3).map(|setup| Script::default().u8(setup).finish()).collect();
    // EAP-AKA: unchanged, and with one packet that is another one or has another byte.
    for (setup, usim) in (0xFC..=0xFF).flat_map(|setup| (0..16).map(move |usim| (setup, usim))) {
        let script = Script::default().u8(setup).u8(usim);
        seeds.push(script.clone().finish());
        for at in 0..8 {
            let script = script.clone().bytes(&vec![0; at]);
            seeds.extend([script.clone().u8(7).finish(), script.clone().u8(4).bytes(&[9, 1]).finish()]);
            let failure = b"\x17\x04\0\0\x04\x04abcdefghijklmn";
            seeds.push(script.u8(3).u8(failure.len() as u8).bytes(failure).finish());
        }
    }
    // Success comes early, or after a packet that was replaced and its answer.
    for (setup, at) in (0..4).flat_map(|setup| (0..10).map(move |at| (setup, at))) {
        let script = Script::default().u8(setup).bytes(&vec![0; at]);
        seeds.push(script.clone().u8(7).finish());
        for data in packets {
            let replaced = script.clone().u8(3).u8(data.len() as u8).bytes(data);
            seeds.extend([replaced.clone().finish(), replaced.bytes(&[0, 7]).finish()]);
        }
    }
    seeds
}
