//! Policy for post-quantum pre-shared keys (RFC 8784).

use super::Connection;
use alloc::vec::Vec;

/// Whether and with which post-quantum pre-shared keys (PPKs) a connection strengthens its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PpkPolicy {
    /// PPK_ID of the key. An initiator without one uses no PPK. A responder without one accepts every PPK
    /// that it has.
    pub id: Option<PpkId>,
    /// Whether an IKE SA without a PPK is refused.
    pub required: bool,
}

impl PpkPolicy {
    fn accepts(&self, id: &[u8]) -> bool {
        self.id.as_ref().is_none_or(|allowed| allowed.allows(id))
    }
}

impl Connection {
    /// PPK_ID that an initiator sends.
    pub(crate) fn own_ppk_id(&self) -> Option<&[u8]> {
        self.ppk.id.as_ref().filter(|_| self.may_use_ppk())?.exact()
    }

    /// Whether a responder accepts a PPK with this PPK_ID.
    pub(crate) fn accepts_ppk(&self, id: &[u8]) -> bool {
        self.may_use_ppk() && self.ppk.accepts(id)
    }

    /// RFC 8784 does not say which of several rounds of authentication names the PPK, so that none does.
    fn may_use_ppk(&self) -> bool {
        #[cfg(feature = "eap")]
        let has_further_rounds = self.has_further_rounds();
        #[cfg(not(feature = "eap"))]
        let has_further_rounds = false;
        !has_further_rounds
    }
}

/// A PPK_ID of the type PPK_ID_FIXED, without the octet of the type (section 5.1). One that begins with `*`
/// stands for all PPK_IDs that end with what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PpkId(Vec<u8>);

impl PpkId {
    /// Returns the PPK_ID with these octets.
    pub fn new(octets: &[u8]) -> Self {
        Self(octets.into())
    }

    /// The octets, with an asterisk.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// The octets, if they stand for one PPK_ID.
    pub fn exact(&self) -> Option<&[u8]> {
        if self.0.starts_with(b"*") { None } else { Some(&self.0) }
    }

    /// Whether this stands for a PPK_ID. Case does not matter, as in strongSwan.
    pub fn allows(&self, id: &[u8]) -> bool {
        match self.0.strip_prefix(b"*") {
            Some(end) => id
                .split_at_checked(id.len().saturating_sub(end.len()))
                .is_some_and(|(_, last)| last.eq_ignore_ascii_case(end)),
            None => id.eq_ignore_ascii_case(&self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asterisk_stands_for_any_beginning() {
        let policy = |id: &[u8]| PpkPolicy { id: Some(PpkId::new(id)), required: false };
        for (id, received, accepted) in [
            ("*@example.org", "carol@example.org", true),
            ("*@example.org", "carol@example.net", false),
            ("*", "", true),
            ("carol", "carol", true),
            ("carol", "xcarol", false),
            ("Carol", "cAROL", true),
            ("*@Example.org", "carol@example.ORG", true),
            ("*longer", "er", false),
            ("carol", "*", false),
        ] {
            assert_eq!(policy(id.as_bytes()).accepts(received.as_bytes()), accepted, "{id} {received}");
        }
        assert!(PpkPolicy::default().accepts(b"any"));
        assert_eq!(PpkId::new(b"carol").exact(), Some(&b"carol"[..]));
        assert_eq!(PpkId::new(b"*carol").exact(), None);
    }
}
