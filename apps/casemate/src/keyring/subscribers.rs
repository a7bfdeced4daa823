//! Keys of subscribers of EAP-AKA in the sections `eap` of `secrets`.

use crate::swanctl::{OperatorKey, SharedKey};
use casemate_crypto::Providers;
use casemate_eap::Subscriber;

/// Length of K, OP and OPc in bytes.
const BLOCK: usize = 16;

/// The subscriber of an entry. Without a key of the operator, `secret` is K, or K and OPc, as in strongSwan.
/// `None` if its length is another one, or without AES.
pub(super) fn subscriber(key: &SharedKey, providers: &Providers<'_>) -> Option<Subscriber> {
    let (k, rest) = key.secret.expose().split_first_chunk::<BLOCK>()?;
    let amf = key.usim.amf;
    let block = |key: &[u8]| <[u8; BLOCK]>::try_from(key).ok();
    match &key.usim.operator {
        Some(OperatorKey::Op(op)) => Subscriber::with_op(k, &block(op.expose())?, amf, providers),
        Some(OperatorKey::Opc(opc)) => Some(Subscriber::new(k, &block(opc.expose())?, amf)),
        None if rest.is_empty() => Some(Subscriber::new(k, &[0; BLOCK], amf)),
        None => Some(Subscriber::new(k, &block(rest)?, amf)),
    }
}

/// The IMSI in a permanent identity (RFC 4187 section 4.1.1.6, TS 23.003 section 19.3.2): up to 15 digits
/// behind a digit for the method and in front of the realm.
pub(super) fn imsi(identity: &[u8]) -> Option<&[u8]> {
    const MAX_LEN: usize = 15;
    const MIN_LEN: usize = 6;
    let user = identity.split(|byte| *byte == b'@').next()?;
    let imsi = match user.split_first()? {
        // Permanent identities of EAP-AKA and EAP-AKA'.
        (b'0' | b'6', imsi) => imsi,
        _ => return None,
    };
    let is_imsi = (MIN_LEN..=MAX_LEN).contains(&imsi.len()) && imsi.iter().all(u8::is_ascii_digit);
    is_imsi.then_some(imsi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::{KeyPurpose, Usim};
    use casemate_crypto::SecretBytes;

    #[test]
    fn imsis_of_permanent_identities() {
        let expected = Some(&b"232010000000000"[..]);
        assert_eq!(imsi(b"0232010000000000@nai.epc.mnc001.mcc232.3gppnetwork.org"), expected);
        assert_eq!(imsi(b"6232010000000000@wlan.mnc001.mcc232.3gppnetwork.org"), expected);
        assert_eq!(imsi(b"0232010000000000"), expected);
        for other in
            [&b"carol"[..], b"", b"0", b"0carol@example.org", b"2232010000000000@x", b"02320100000000001"]
        {
            assert_eq!(imsi(other), None, "{other:?}");
        }
    }

    #[test]
    fn secrets_are_k_or_k_and_opc() {
        let is_subscriber = |len: u8, operator| {
            let secret = SecretBytes::new(&(0..len).collect::<Vec<u8>>());
            let usim = Usim { operator, ..Usim::default() };
            let key = SharedKey { purpose: KeyPurpose::Eap, ids: Vec::new(), secret, usim };
            subscriber(&key, &Providers(&[&casemate_rustcrypto::RUSTCRYPTO])).is_some()
        };
        for (len, expected) in
            [(0, false), (15, false), (16, true), (17, false), (31, false), (32, true), (33, false)]
        {
            assert_eq!(is_subscriber(len, None), expected, "{len}");
        }
        let block = || SecretBytes::new(&[7; 16]);
        assert!(is_subscriber(16, Some(OperatorKey::Op(block()))));
        assert!(is_subscriber(16, Some(OperatorKey::Opc(block()))));
    }
}
