//! Secrets and certificates of our side.

use casemate_crypto::{KeyLimits, PasswordAlgorithms, PrivateKey, Providers, Rng, SecretBytes};
use casemate_eap::{
    EapContext, EapCredentials, EapFault, NetworkSequence, SequenceNumbers, Subscriber, TlsRole, TlsSession,
    UsimSequence,
};
use casemate_legacy::LEGACY;
use casemate_pki::pem;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_rustls::{CertificateVerifier, NotAccepted, OwnCertificate, ShownCertificates};
use casemate_test_support::TestRng;
use std::sync::{Arc, Mutex};

pub(crate) const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);
pub(crate) const USER: &str = "carol";
pub(crate) const PASSWORD: &str = "sesame";
pub(crate) const IMSI: &str = "232010000000000";
/// K and OPc of test set 1 of TS 35.208.
pub(crate) const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
pub(crate) const OPC: &str = "cd63cb71954a9f4e48a5994e37a02baf";
/// The other values of the test set. AUTN is SQN xor f5, AMF and f1.
pub(crate) const RAND: &str = "23553cbe9637a89d218ae64dae47bf35";
pub(crate) const AUTN: &str = "55f328b43577b9b94a9ffac354dfafb3";
pub(crate) const IK: &str = "f769bcd751044604127672711c6d3441";
pub(crate) const CK: &str = "b40ba9a3c58b2a05bbf0d987b21bf8cb";
pub(crate) const RES: &str = "a54211d5e3ba50bf";
pub(crate) const SQN: u64 = 0xff9b_b4d0_b607;
/// AMF with the separation bit.
const AMF: [u8; 2] = [0xB9; 2];

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../core/pki/tests/data/", $name))
    };
}

/// Certificate and key of the server, and of the client, in PEM.
pub(crate) const SERVER: [&[u8]; 2] = [data!("sun.pem"), data!("sun.key")];
pub(crate) const CLIENT: [&[u8]; 2] = [data!("sub.pem"), data!("sub.key")];

/// Our side.
pub(crate) struct Party {
    pub(crate) own: [&'static [u8]; 2],
    pub(crate) other: [&'static [u8]; 2],
    password: SecretBytes,
    subscriber: Subscriber,
    numbers: Mutex<(NetworkSequence, UsimSequence)>,
    rng: Mutex<Random>,
}

/// Bytes of hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn block(digits: &str) -> [u8; 16] {
    hex(digits).try_into().expect("16 bytes")
}

impl Party {
    pub(crate) fn new(own: [&'static [u8]; 2], other: [&'static [u8]; 2]) -> Self {
        Self {
            own,
            other,
            password: SecretBytes::new(PASSWORD.as_bytes()),
            subscriber: Subscriber::new(&block(K), &block(OPC), AMF),
            numbers: Mutex::new((NetworkSequence::new(before(SQN)), usim_at((SQN >> 5) - 1))),
            rng: Mutex::new(Random { script: [vec![7], hex(RAND)].concat(), rng: TestRng::new(1) }),
        }
    }

    /// Has the USIM accepted the number of the test set already.
    pub(crate) fn with_used_vector(self) -> Self {
        self.numbers.lock().expect("no panic").1 = usim_at(SQN >> 5);
        self
    }

    pub(crate) fn context<T>(&self, run: impl FnOnce(&mut EapContext<'_>) -> T) -> T {
        let rng = &mut *self.rng.lock().expect("no panic");
        run(&mut EapContext { rng, providers: &PROVIDERS, credentials: self })
    }
}

/// The SQN in front of this one: both parts are one less.
const fn before(sqn: u64) -> u64 {
    sqn - 33
}

/// A USIM that has accepted this SEQ with each IND.
fn usim_at(seq: u64) -> UsimSequence {
    UsimSequence::new([seq; 32]).expect("a SEQ")
}

/// Random numbers that begin with the identifier of the first request and RAND of the test set.
struct Random {
    script: Vec<u8>,
    rng: TestRng,
}

impl Rng for Random {
    fn public(&mut self, out: &mut [u8]) {
        self.rng.public(out);
        for byte in out {
            if !self.script.is_empty() {
                *byte = self.script.remove(0);
            }
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.rng.secret(out);
    }
}

/// Accepts one certificate.
struct Only(Vec<u8>);

impl CertificateVerifier for Only {
    fn verify(&self, shown: &ShownCertificates<'_>) -> Result<(), NotAccepted> {
        if shown.chain.first() == Some(&&*self.0) { Ok(()) } else { Err(NotAccepted) }
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

fn der(pem: &[u8]) -> Vec<u8> {
    pem::certificates(pem).expect("certificates").remove(0)
}

fn certificate([cert, key]: [&[u8]; 2]) -> OwnCertificate {
    let key = pem::private_key(key).expect("a private key");
    let key = PrivateKey::from_der(key.expose(), KeyLimits::default()).expect("a private key");
    let key = PROVIDERS.signing_key(&key).map(Arc::from).expect("a key");
    OwnCertificate { chain: vec![der(cert)], ocsp_response: None, key }
}

impl EapCredentials for Party {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        (identity == USER.as_bytes()).then_some(&self.password)
    }

    fn subscriber(&self, identity: &[u8]) -> Option<&Subscriber> {
        identity.get(1..).is_some_and(|imsi| imsi == IMSI.as_bytes()).then_some(&self.subscriber)
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        Some(self)
    }

    fn tls(&self, role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        let expected: Arc<dyn CertificateVerifier> = Arc::new(Only(der(self.other[0])));
        match role {
            TlsRole::Client { has_certificate } => {
                casemate_rustls::client(expected, has_certificate.then(|| certificate(self.own)))
            }
            TlsRole::Server { client } => {
                casemate_rustls::server(certificate(self.own), client.is_some().then_some(expected))
            }
        }
    }
}

impl SequenceNumbers for Party {
    fn change_network(&self, _identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        change(&mut self.numbers.lock().expect("no panic").0);
    }

    fn change_usim(&self, _identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        change(&mut self.numbers.lock().expect("no panic").1);
    }
}
