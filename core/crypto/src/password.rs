//! Algorithms that only password methods of EAP need.

/// Algorithms of EAP-MSCHAPv2 (RFC 2759) and EAP-MD5 (RFC 3748 section 5.4).
///
/// All are broken, and none may protect packets: the providers' traits have no way to these functions. A
/// password method is safe only inside an IKE SA whose responder has proved its identity before.
pub trait PasswordAlgorithms: Sync {
    /// MD4 (RFC 1320) of a message.
    fn md4(&self, message: &[u8]) -> [u8; 16];

    /// MD5 (RFC 1321) of the concatenation of `parts`.
    fn md5(&self, parts: &[&[u8]]) -> [u8; 16];

    /// Encrypts one block with DES. `key` has 56 bits without parity bits, as RFC 2759 section 8.6 uses it.
    fn des(&self, key: &[u8; 7], block: [u8; 8]) -> [u8; 8];
}
