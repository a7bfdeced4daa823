//! Interface to the caller of a conversation.

use crate::{EapFault, Method, NetworkSequence, NtHash, Subscriber, TlsRole, TlsSession, UsimSequence};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, Providers, Rng, SecretBytes};
use core::net::IpAddr;

/// What the caller provides for each step of a conversation.
pub struct EapContext<'c> {
    /// Random generator.
    pub rng: &'c mut dyn Rng,
    /// Cryptographic algorithms.
    pub providers: &'c Providers<'c>,
    /// Passwords, and the algorithms that only methods with passwords need.
    pub credentials: &'c dyn EapCredentials,
}

impl EapContext<'_> {
    pub(crate) fn algorithms(&self) -> Result<&dyn PasswordAlgorithms, EapFault> {
        self.credentials.algorithms().ok_or(EapFault::Unsupported)
    }

    /// Password of an identity. An empty password is none, because it would accept everybody.
    pub(crate) fn password(&self, identity: &[u8]) -> Result<&SecretBytes, EapFault> {
        self.credentials
            .password(identity)
            .filter(|password| !password.is_empty())
            .ok_or(EapFault::NoPassword)
    }
}

/// Secrets of EAP identities. Calls keep no state but sequence numbers.
pub trait EapCredentials {
    /// Algorithms of MSCHAPv2 and MD5-Challenge; `None` on hosts that do not have them. These methods then
    /// fail with [`EapFault::Unsupported`].
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms>;

    /// Password of an EAP identity: our own as the peer, the other side's as the authenticator. MSCHAPv2
    /// needs UTF-8. An empty password counts as none.
    fn password(&self, identity: &[u8]) -> Option<&SecretBytes>;

    /// Hash of the password of an EAP identity, if only the hash is known, as in the `ntlm` secrets of
    /// strongSwan. MSCHAPv2 prefers it to [`password`](Self::password); the other methods cannot use it.
    fn nt_hash(&self, _identity: &[u8]) -> Option<&NtHash> {
        None
    }

    /// Keys of the subscriber with an EAP identity, for EAP-AKA: our own as the peer, the other side's as
    /// the authenticator.
    fn subscriber(&self, _identity: &[u8]) -> Option<&Subscriber> {
        None
    }

    /// The sequence numbers of subscribers. EAP-AKA fails with [`EapFault::Unsupported`] without them.
    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        None
    }

    /// Begins a TLS session for this conversation. Fails with
    /// [`EapFault::Unsupported`] on hosts without TLS.
    fn tls(&self, _role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        Err(EapFault::Unsupported)
    }
}

/// Sequence numbers of subscribers, which outlive conversations. An implementation also keeps them across
/// restarts: a USIM that has lost them accepts used vectors again, and a home network that has lost them
/// needs a resynchronisation.
pub trait SequenceNumbers {
    /// Changes the number of the home network for the subscriber with this EAP identity.
    fn change_network(&self, identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence));

    /// Changes the numbers of the USIM of the subscriber with this EAP identity.
    fn change_usim(&self, identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence));
}

/// No password and no algorithm: for hosts that do not use EAP.
#[derive(Debug, Clone, Copy)]
pub struct NoCredentials;

impl EapCredentials for NoCredentials {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        None
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        None
    }
}

/// Result of a successful conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Method that authenticated the peer; `None` if an AAA server has chosen one that it does not name.
    pub method: Option<Method>,
    /// EAP identity of the peer: what it has sent, or what the caller requires.
    pub identity: Vec<u8>,
    /// Whether the peer has proved this identity. It has not if an AAA server has run a method that may have
    /// authenticated another one.
    pub is_identity_proven: bool,
    /// Name of the user whom an AAA server has authenticated, if the server has told it.
    pub user: Option<Vec<u8>>,
    /// Master session key, at least 64 bytes (RFC 3748 section 7.10); `None` if the method derives no keys.
    pub msk: Option<SecretBytes>,
    /// Virtual addresses that an AAA server has assigned to the peer.
    pub addrs: Vec<IpAddr>,
    /// Names of the groups to which the peer belongs, as an AAA server says.
    pub groups: Vec<Vec<u8>>,
}

/// Minimum length of a master session key in bytes (RFC 3748 section 7.10).
const MIN_MSK: usize = 64;

/// EAP types of methods that derive no keys.
const MD5: u8 = 4;
const OTP: u8 = 5;
const GTC: u8 = 6;

/// Whether a method with this EAP type authenticates the EAP identity that the peer has sent, and no other
/// name: a server looks up the password or the keys of that identity. A tunnel (TTLS, PEAP, FAST, TEAP)
/// contains a name of its own, TLS proves that of the certificate, and unknown methods may have one.
const fn proves_identity(kind: u8) -> bool {
    matches!(kind, MD5 | OTP | GTC)
        || kind == Method::MsChapV2.id()
        || kind == Method::Aka.id()
        || kind == Method::AkaPrime.id()
}

impl Authenticated {
    /// Returns the result of a method. Fails closed if a method that derives keys has none.
    pub(crate) fn new(method: Method, identity: Vec<u8>, msk: Option<SecretBytes>) -> Result<Self, EapFault> {
        let has_key = msk.as_ref().is_some_and(|msk| msk.len() >= MIN_MSK);
        if has_key == method.derives_keys() && has_key == msk.is_some() {
            Ok(Self {
                method: Some(method),
                identity,
                is_identity_proven: true,
                user: None,
                msk,
                addrs: Vec::new(),
                groups: Vec::new(),
            })
        } else {
            Err(EapFault::MissingKey)
        }
    }

    /// Returns the result of a method that an AAA server has run. `kind` is the EAP type of its requests; 0
    /// if there was none. Only types that derive no key need none: MD5, OTP and GTC (RFC 3748 sections 5.4
    /// to 5.6). A key that is shorter than RFC 3748 demands is none. The identity counts as proven only after
    /// methods that authenticate it.
    pub fn by_server(
        kind: u8,
        identity: Vec<u8>,
        msk: Option<SecretBytes>,
        addrs: Vec<IpAddr>,
    ) -> Result<Self, EapFault> {
        let method = Method::ALL.into_iter().find(|method| method.id() == kind);
        let msk = match kind {
            MD5 | OTP | GTC => None,
            _ => Some(msk.filter(|msk| msk.len() >= MIN_MSK).ok_or(EapFault::MissingKey)?),
        };
        let is_identity_proven = proves_identity(kind);
        Ok(Self { method, identity, is_identity_proven, user: None, msk, addrs, groups: Vec::new() })
    }

    /// The name that the peer has proved: that of the AAA server, or else the EAP identity if it is proven.
    pub fn proven_name(&self) -> Option<&[u8]> {
        let identity = self.is_identity_proven.then_some(&*self.identity);
        self.user.as_deref().or(identity)
    }

    /// Whether the peer has proved this name.
    pub fn has_proved(&self, name: &[u8]) -> bool {
        self.user.as_deref() == Some(name) || (self.is_identity_proven && self.identity == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2021-45079: strongSwan took a conversation for successful whose method had no key, and then
    /// verified the AUTH payload without one.
    #[test]
    fn a_method_that_derives_keys_does_not_succeed_without_one() {
        let result = |method, len: Option<usize>| {
            let msk = len.map(|len| SecretBytes::new(&[7].repeat(len)));
            Authenticated::new(method, b"carol".into(), msk).map(|result| result.msk.map(|msk| msk.len()))
        };
        assert_eq!(result(Method::MsChapV2, None), Err(EapFault::MissingKey));
        assert_eq!(result(Method::MsChapV2, Some(0)), Err(EapFault::MissingKey));
        assert_eq!(result(Method::MsChapV2, Some(63)), Err(EapFault::MissingKey));
        assert_eq!(result(Method::MsChapV2, Some(64)), Ok(Some(64)));
        assert_eq!(result(Method::Gtc, Some(64)), Err(EapFault::MissingKey));
        assert_eq!(result(Method::Gtc, Some(8)), Err(EapFault::MissingKey));
        assert_eq!(result(Method::Gtc, None), Ok(None));
    }

    #[test]
    fn a_server_names_a_key_unless_the_method_derives_none() {
        let result = |kind, len: Option<usize>| {
            let msk = len.map(|len| SecretBytes::new(&[7].repeat(len)));
            let result = Authenticated::by_server(kind, b"carol".into(), msk, Vec::new());
            result.map(|result| result.msk.map(|msk| msk.len()))
        };
        for kind in [0, 13, 21, 25, 26, 29, 43, 254] {
            assert_eq!(result(kind, None), Err(EapFault::MissingKey), "{kind}");
            assert_eq!(result(kind, Some(63)), Err(EapFault::MissingKey), "{kind}");
            assert_eq!(result(kind, Some(64)), Ok(Some(64)), "{kind}");
        }
        for kind in [MD5, OTP, GTC] {
            assert_eq!(result(kind, None), Ok(None), "{kind}");
            assert_eq!(result(kind, Some(64)), Ok(None), "the peer has no such key: {kind}");
        }
    }

    #[test]
    fn the_identity_is_proven_only_by_methods_that_authenticate_it() {
        let result = |kind| {
            let msk = Some(SecretBytes::new(&[7; 64]));
            Authenticated::by_server(kind, b"carol".into(), msk, Vec::new()).unwrap()
        };
        for kind in [MD5, OTP, GTC, 23, 26, 50] {
            assert_eq!(result(kind).proven_name(), Some(&b"carol"[..]), "{kind}");
        }
        // None, TLS, SIM, TTLS, PEAP, FAST, PWD, TEAP, and an experimental method.
        for kind in [0, 13, 18, 21, 25, 43, 52, 55, 254, 255] {
            let mut done = result(kind);
            assert_eq!((done.proven_name(), done.has_proved(b"carol")), (None, false), "{kind}");
            done.user = Some(b"dave".into());
            assert_eq!(done.proven_name(), Some(&b"dave"[..]), "{kind}");
            assert!(done.has_proved(b"dave") && !done.has_proved(b"carol"), "{kind}");
        }
        let mut named = result(GTC);
        named.user = Some(b"dave".into());
        assert_eq!(named.proven_name(), Some(&b"dave"[..]));
        assert!(named.has_proved(b"carol") && named.has_proved(b"dave") && !named.has_proved(b"eve"));
    }
}
