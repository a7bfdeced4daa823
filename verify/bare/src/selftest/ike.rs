//! IKEv2 between two endpoints: handshakes with a key and with certificates, rekeying, and packets on what they agree on.

use crate::Board;
use crate::certificates::{Certificates, MOON, SUN};
use crate::peers::{Pair, Proof};
use casemate_crypto::{Providers, SecretBytes};
use casemate_ike::config::IdPattern;
use casemate_ike::{Credentials, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;

const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);

/// The number of exchanges that set something up.
pub(super) fn run(_: &Board) -> Option<usize> {
    let key = |bytes: &[u8]| SharedKeys::new().with(IdPattern::Any, SecretBytes::new(bytes));
    let (keys, others) = (key(b"a key that both have"), key(b"a key that one has!!"));
    let with_key = session(&keys, &keys, Proof::SharedKey)?;
    // Who does not know the key gets nothing.
    refused(&keys, &others, Proof::SharedKey)?;
    let (moon, sun) = (Certificates::load(MOON, &PROVIDERS)?, Certificates::load(SUN, &PROVIDERS)?);
    let with_certificates = session(&moon, &sun, Proof::Certificate)?;
    // Nor who shows another's certificate.
    refused(&moon, &moon, Proof::Certificate)?;
    with_key.checked_add(with_certificates)
}

fn session(left: &dyn Credentials, right: &dyn Credentials, proof: Proof) -> Option<usize> {
    let mut pair = Pair::new(left, right, &PROVIDERS);
    pair.configure(1, proof)?;
    pair.initiate(0, true)?;
    pair.both_deliver()?;
    let (ike, children) = pair.established()[0].first()?.clone();
    pair.rekey_child(*children.first()?)?;
    pair.both_deliver()?;
    pair.rekey(ike)?;
    pair.both_deliver()?;
    let [left, right] = pair.established();
    let one_child = |sas: &[(_, alloc::vec::Vec<_>)]| matches!(sas, [(_, children)] if children.len() == 1);
    let replaced = left.first()?.0 != ike && left.first()?.1 != children;
    (one_child(&left) && one_child(&right) && replaced).then_some(3)
}

fn refused(left: &dyn Credentials, right: &dyn Credentials, proof: Proof) -> Option<()> {
    let mut pair = Pair::new(left, right, &PROVIDERS);
    pair.configure(1, proof)?;
    pair.initiate(0, true)?;
    pair.established().iter().all(|sas| sas.is_empty()).then_some(())
}
