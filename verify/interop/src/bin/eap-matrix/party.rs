//! Secrets and certificates of our side.

use casemate_crypto::{KeyLimits, PasswordAlgorithms, PrivateKey, Providers, SecretBytes};
use casemate_eap::{
    EapContext, EapCredentials, EapFault, NetworkSequence, SequenceNumbers, Subscriber, TlsRole, TlsSession,
    UsimSequence,
};
use casemate_legacy::LEGACY;
use casemate_pki::pem;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_rustls::{CertificateVerifier, NotAccepted, OwnCertificate};
use casemate_test_support::TestRng;
use std::sync::{Arc, Mutex};

pub(crate) const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);
pub(crate) const USER: &str = "carol";
pub(crate) const PASSWORD: &str = "sesame";
pub(crate) const IMSI: &str = "232010000000000";
/// K and OPc of test set 1 of TS 35.208.
pub(crate) const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
pub(crate) const OPC: &str = "cd63cb71954a9f4e48a5994e37a02baf";

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
            subscriber: Subscriber::new(&block(K), &block(OPC), Subscriber::DEFAULT_AMF),
            numbers: Mutex::new((NetworkSequence::default(), UsimSequence::NEW)),
        }
    }

    /// Has the USIM accepted this SEQ last.
    pub(crate) fn with_usim_at(self, seq: u64) -> Self {
        let usim = UsimSequence::new([seq; 32]).expect("a SEQ");
        *self.numbers.lock().expect("no panic") = (NetworkSequence::default(), usim);
        self
    }

    pub(crate) fn context<T>(&self, seed: u64, run: impl FnOnce(&mut EapContext<'_>) -> T) -> T {
        run(&mut EapContext { rng: &mut TestRng::new(seed), providers: &PROVIDERS, credentials: self })
    }
}

/// Accepts one certificate.
struct Only(Vec<u8>);

impl CertificateVerifier for Only {
    fn verify(&self, chain: &[&[u8]], _unix_time: u64) -> Result<(), NotAccepted> {
        if chain.first() == Some(&&*self.0) { Ok(()) } else { Err(NotAccepted) }
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
    OwnCertificate { chain: vec![der(cert)], key: PROVIDERS.signing_key(&key).map(Arc::from).expect("a key") }
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
