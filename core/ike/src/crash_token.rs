//! Tokens of quick crash detection (RFC 6290): a host that has forgotten an IKE SA proves it to its peer.
//!
//! Each side gives the other a token for the IKE SA in an encrypted message. A host that has restarted
//! computes the same token from the SPIs of a request that it cannot decrypt, and from a secret that has
//! survived the restart, and sends it in clear. No other host knows the token, so the peer need not wait for
//! a timeout. A host without a stored secret sends no tokens; it accepts those of its peers.

use crate::IkeSpis;
use crate::transport::Content;
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, SecretBytes};
use casemate_wire::ike::{Notify, NotifyType, ProtocolId};

/// Length of our tokens in bytes, the shortest that is allowed (RFC 6290 section 5): the message that
/// presents one is hardly longer than the shortest request.
const TOKEN_LEN: usize = 16;
/// Longest token that a peer may have (RFC 6290 section 5).
const MAX_TOKEN_LEN: usize = 128;
/// Tokens of one message that are verified: a peer may have that many secrets (RFC 6290 section 4.5).
const MAX_PRESENTED: usize = 4;

/// Makes the tokens of this host.
#[derive(Debug, Default)]
pub(crate) struct TokenMaker(Option<SecretBytes>);

impl TokenMaker {
    /// A maker with the secret of this host, if it has one.
    pub(crate) const fn new(secret: Option<SecretBytes>) -> Self {
        Self(secret)
    }

    /// The token of an IKE SA (RFC 6290 section 5.1); `None` without a secret.
    pub(crate) fn make(&self, spis: IkeSpis, providers: &Providers<'_>) -> Option<Token> {
        let prf = providers.prf(PrfAlg::HmacSha256, self.0.as_ref()?.expose()).ok()?;
        let output = prf.prf(&[&spis.initiator.0.to_be_bytes(), &spis.responder.0.to_be_bytes()]).ok()?;
        output.expose().first_chunk().copied().map(Token)
    }
}

/// A token of this host.
pub(crate) struct Token([u8; TOKEN_LEN]);

impl Token {
    /// Notification with the token (RFC 6290 section 4.1).
    pub(crate) const fn notify(&self) -> Notify<'_> {
        Notify { protocol: ProtocolId::IKE, kind: NotifyType::QUICK_CRASH_DETECTION, spi: &[], data: &self.0 }
    }
}

/// The token that the peer has given for an IKE SA.
#[derive(Debug)]
pub(crate) struct PeerToken(pub(crate) SecretBytes);

impl PeerToken {
    /// The token in an encrypted message. Ignores one of a wrong length.
    pub(crate) fn from_message(content: &Content<'_>) -> Option<Self> {
        presented(content).first().map(|token| Self(SecretBytes::new(token)))
    }

    /// Whether a message presents the token. The time does not depend on where tokens differ.
    pub(crate) fn is_presented_by(&self, content: &Content<'_>) -> bool {
        presented(content).into_iter().any(|token| self.0 == SecretBytes::new(token))
    }
}

/// Tokens in a message.
fn presented<'a>(content: &Content<'a>) -> Vec<&'a [u8]> {
    let tokens = content.notifies.iter().filter(|it| it.kind == NotifyType::QUICK_CRASH_DETECTION);
    let tokens = tokens.map(|token| token.data);
    tokens.filter(|token| (TOKEN_LEN..=MAX_TOKEN_LEN).contains(&token.len())).take(MAX_PRESENTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use casemate_wire::ike::IkeSpi;

    fn token(secret: u8, initiator: u64, responder: u64) -> [u8; TOKEN_LEN] {
        let providers = Providers(&[&casemate_rustcrypto::RustCrypto]);
        let spis = IkeSpis { initiator: IkeSpi(initiator), responder: IkeSpi(responder) };
        TokenMaker::new(Some(SecretBytes::new(&[secret; 32]))).make(spis, &providers).unwrap().0
    }

    fn message<'a>(tokens: &[&'a [u8]]) -> Content<'a> {
        let kind = NotifyType::QUICK_CRASH_DETECTION;
        Content {
            notifies: tokens.iter().map(|token| Notify::new(kind, token)).collect(),
            ..Content::default()
        }
    }

    #[test]
    fn a_token_depends_on_the_secret_and_on_both_spis_alone() {
        assert_eq!(token(1, 2, 3), token(1, 2, 3));
        for other in [token(9, 2, 3), token(1, 9, 3), token(1, 2, 9), token(1, 3, 2)] {
            assert_ne!(other, token(1, 2, 3));
        }
    }

    #[test]
    fn without_a_secret_there_is_no_token() {
        let providers = Providers(&[&casemate_rustcrypto::RustCrypto]);
        let spis = IkeSpis { initiator: IkeSpi(1), responder: IkeSpi(2) };
        assert!(TokenMaker::default().make(spis, &providers).is_none());
    }

    #[test]
    fn one_of_four_presented_tokens_may_match() {
        let (right, wrong) = (token(1, 2, 3), token(4, 5, 6));
        let known = PeerToken::from_message(&message(&[&right])).unwrap();
        assert!(known.is_presented_by(&message(&[&wrong, &wrong, &wrong, &right])));
        assert!(!known.is_presented_by(&message(&[&wrong, &wrong, &wrong, &wrong, &right])));
        assert!(!known.is_presented_by(&message(&[])) && !known.is_presented_by(&message(&[&right[..15]])));
        let longer = [&right[..], &[0]].concat();
        assert!(!known.is_presented_by(&message(&[&longer])));
    }

    #[test]
    fn a_token_of_a_wrong_length_is_ignored() {
        for (len, accepted) in [(0, false), (15, false), (16, true), (128, true), (129, false)] {
            let token = vec![7; len];
            assert_eq!(PeerToken::from_message(&message(&[&token])).is_some(), accepted, "{len}");
        }
    }
}
