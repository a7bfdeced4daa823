//! Post-quantum pre-shared keys in IKE_AUTH (RFC 8784 section 3).
//!
//! Both sides announce in IKE_SA_INIT that they use PPKs. The initiator names its PPK beside its AUTH
//! payload, and SK_d, SK_pi and SK_pr depend on it from then on, if the responder has it as well. If the
//! initiator does not require the PPK, it adds a proof without it, with which the responder may go on.

use super::{OwnProof, SignedOctets};
use crate::config::Connection;
use crate::transport::Content;
use crate::{Context, Credentials, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::{PrfAlg, Providers, SecretBytes, prf_plus};
use casemate_wire::ike::{Auth, Notify, NotifyType, WriteError, Writer};

/// Type of a PPK_ID whose key is configured on both sides (section 5.1).
const PPK_ID_FIXED: u8 = 2;

/// SK_d, SK_pi and SK_pr that depend on a PPK.
pub(crate) struct PpkKeys {
    pub(crate) d: SecretBytes,
    pi: SecretBytes,
    pr: SecretBytes,
}

/// The PPK that an IKE SA depends on.
pub(crate) struct UsedPpk {
    pub(crate) id: Box<[u8]>,
    pub(crate) sk_d: SecretBytes,
}

/// SK_d, SK_pi and SK_pr without a PPK.
#[derive(Clone, Copy)]
pub(crate) struct PlainKeys<'a> {
    pub(crate) d: &'a SecretBytes,
    pub(crate) pi: &'a SecretBytes,
    pub(crate) pr: &'a SecretBytes,
}

impl PpkKeys {
    /// prf+ (PPK, key), for each key
    pub(crate) fn new(
        prf: PrfAlg,
        ppk: &SecretBytes,
        plain: PlainKeys<'_>,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        let keyed = providers.prf(prf, ppk.expose()).map_err(|_| StateFault::Provider)?;
        let mix = |key: &SecretBytes| {
            prf_plus(&*keyed, &[key.expose()], key.len()).map_err(|_| StateFault::Provider)
        };
        Ok(Self { d: mix(plain.d)?, pi: mix(plain.pi)?, pr: mix(plain.pr)? })
    }
}

/// Use of a PPK in an IKE SA that is not established yet.
#[derive(Default)]
pub(crate) enum PpkUse {
    /// One side has not announced PPKs.
    #[default]
    No,
    /// Both sides have announced them.
    Agreed,
    /// As the initiator: our PPK is named beside our AUTH payload, and the responder decides.
    Offered(Box<PpkOffer>),
    /// As the responder: the keys depend on the PPK of the initiator.
    Accepted,
}

/// The PPK of an initiator.
pub(crate) struct PpkOffer {
    id: Box<[u8]>,
    keys: PpkKeys,
    /// Our proof without the PPK; `None` if the connection requires one.
    fallback: Option<OwnProof>,
}

impl PpkOffer {
    /// Our PPK for a connection.
    pub(crate) fn new(
        connection: &Connection,
        prf: PrfAlg,
        plain: PlainKeys<'_>,
        context: &Context<'_>,
    ) -> Result<Self, StateFault> {
        let found = own_ppk(connection, context.credentials)?;
        let (id, ppk) = found.ok_or(StateFault::PpkMissing)?;
        let keys = PpkKeys::new(prf, ppk, plain, context.providers)?;
        Ok(Self { id: id.into(), keys, fallback: None })
    }

    /// Creates our proofs: the one with the PPK is returned. Those that exist already are not created again.
    pub(crate) fn prove<E>(
        &mut self,
        plain: &SignedOctets<'_>,
        is_required: bool,
        mut prove: impl FnMut(&SignedOctets<'_>) -> Result<OwnProof, E>,
    ) -> Result<OwnProof, E> {
        if !is_required && self.fallback.is_none() {
            self.fallback = Some(prove(plain)?);
        }
        prove(&SignedOctets { sk_p: &self.keys.pi, ..*plain })
    }
}

impl PpkUse {
    /// Writes what goes with the AUTH payload of an initiator.
    pub(crate) fn write_offer(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        let Self::Offered(offer) = self else { return Ok(()) };
        let id = [&[PPK_ID_FIXED], &*offer.id].concat();
        out.notify(&Notify::new(NotifyType::PPK_IDENTITY, &id))?;
        let fallback = offer.fallback.iter();
        fallback
            .map(OwnProof::data)
            .try_for_each(|data| out.notify(&Notify::new(NotifyType::NO_PPK_AUTH, &data)))
    }

    /// Writes that the responder uses the PPK of the initiator.
    pub(crate) fn write_acceptance(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self {
            Self::Accepted => out.notify(&Notify::new(NotifyType::PPK_IDENTITY, &[])),
            Self::No | Self::Agreed | Self::Offered(_) => Ok(()),
        }
    }

    /// Octets that the AUTH payload of the responder covers in this response; `plain` are those without a
    /// PPK.
    pub(crate) fn responder_octets<'a>(
        &'a self,
        plain: SignedOctets<'a>,
        connection: &Connection,
        content: &Content<'_>,
    ) -> Result<SignedOctets<'a>, StateFault> {
        match self {
            Self::Offered(offer) if content.has_notify(NotifyType::PPK_IDENTITY) => {
                Ok(SignedOctets { sk_p: &offer.keys.pr, ..plain })
            }
            Self::Offered(_) if connection.ppk.required => Err(StateFault::PpkUnused),
            // By EAP the responder proves its identity before it knows the PPK.
            Self::No | Self::Agreed | Self::Offered(_) | Self::Accepted => Ok(plain),
        }
    }

    /// Our PPK, if the IKE SA that the last response establishes depends on it.
    pub(crate) fn into_used(self, content: &Content<'_>) -> Option<UsedPpk> {
        match self {
            Self::Offered(offer) if content.has_notify(NotifyType::PPK_IDENTITY) => {
                Some(UsedPpk { id: offer.id, sk_d: offer.keys.d })
            }
            Self::No | Self::Agreed | Self::Offered(_) | Self::Accepted => None,
        }
    }
}

/// The PPK that an initiator uses on a connection, with its PPK_ID.
fn own_ppk<'a>(
    connection: &'a Connection,
    credentials: &'a dyn Credentials,
) -> Result<Option<(&'a [u8], &'a SecretBytes)>, StateFault> {
    let found = connection.own_ppk_id().and_then(|id| Some((id, credentials.ppk(id)?)));
    match found {
        None if connection.ppk.required => Err(StateFault::PpkMissing),
        found => Ok(found),
    }
}

/// Whether an initiator announces PPKs.
pub(crate) fn is_announced(
    connection: &Connection,
    credentials: &dyn Credentials,
) -> Result<bool, StateFault> {
    own_ppk(connection, credentials).map(|found| found.is_some())
}

/// The PPK that a peer names with its PPK_ID, if the connection accepts it.
fn accepted_ppk<'a, 'n>(
    connection: &Connection,
    named: &Notify<'n>,
    credentials: &'a dyn Credentials,
) -> Option<(&'n [u8], &'a SecretBytes)> {
    let id = named.data.strip_prefix(&[PPK_ID_FIXED]).filter(|id| connection.accepts_ppk(id))?;
    Some((id, credentials.ppk(id)?))
}

/// Puts the connections that accept the PPK of a request before those that would go on without it.
pub(crate) fn order_by_ppk(
    candidates: &mut [Arc<Connection>],
    content: &Content<'_>,
    credentials: &dyn Credentials,
) {
    let Some(named) = content.notify(NotifyType::PPK_IDENTITY) else { return };
    candidates.sort_by_key(|connection| accepted_ppk(connection, named, credentials).is_none());
}

/// What a responder verifies the AUTH payload of the initiator with.
pub(crate) enum PeerPpk<'m> {
    /// No PPK.
    No,
    /// The PPK that the initiator has named.
    Named { id: &'m [u8], keys: Box<PpkKeys> },
    /// No PPK, and this data instead of that in the AUTH payload.
    Fallback(&'m [u8]),
}

impl<'m> PeerPpk<'m> {
    /// Decides on the PPK that a request with an AUTH payload names (section 3, table 1).
    pub(crate) fn of_request(
        agreed: &PpkUse,
        connection: &Connection,
        content: &Content<'m>,
        keys: (PlainKeys<'_>, PrfAlg),
        context: &Context<'_>,
    ) -> Result<Self, StateFault> {
        let required = connection.ppk.required;
        if let PpkUse::No = agreed {
            return if required { Err(StateFault::PpkUnused) } else { Ok(Self::No) };
        }
        let named = content.notify(NotifyType::PPK_IDENTITY).ok_or(StateFault::PpkUnused)?;
        let (plain, prf) = keys;
        if let Some((id, ppk)) = accepted_ppk(connection, named, context.credentials) {
            let keys = PpkKeys::new(prf, ppk, plain, context.providers)?;
            return Ok(Self::Named { id, keys: Box::new(keys) });
        }
        let fallback = content.notify(NotifyType::NO_PPK_AUTH).filter(|_| !required);
        fallback.map(|proof| Self::Fallback(proof.data)).ok_or(StateFault::PpkMissing)
    }

    /// The proof of the initiator; `auth` is its AUTH payload.
    pub(crate) fn proof(&self, auth: Auth<'m>) -> Auth<'m> {
        match self {
            Self::Fallback(data) => Auth { data, ..auth },
            Self::No | Self::Named { .. } => auth,
        }
    }

    /// Octets that the AUTH payload of the initiator covers; `plain` are those without a PPK.
    pub(crate) fn initiator_octets<'a>(&'a self, plain: SignedOctets<'a>) -> SignedOctets<'a> {
        match self {
            Self::Named { keys, .. } => SignedOctets { sk_p: &keys.pi, ..plain },
            Self::No | Self::Fallback(_) => plain,
        }
    }

    /// Octets that our AUTH payload covers; `plain` are those without a PPK.
    pub(crate) fn responder_octets<'a>(&'a self, plain: SignedOctets<'a>) -> SignedOctets<'a> {
        match self {
            Self::Named { keys, .. } => SignedOctets { sk_p: &keys.pr, ..plain },
            Self::No | Self::Fallback(_) => plain,
        }
    }

    /// The PPK, if there is one.
    pub(crate) fn into_used(self) -> Option<UsedPpk> {
        match self {
            Self::Named { id, keys } => Some(UsedPpk { id: id.into(), sk_d: keys.d }),
            Self::No | Self::Fallback(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SkSuite;
    use crate::config::{AgreedKexes, Identity, PpkPolicy};
    use crate::negotiate::IkeSuite;
    use crate::transport::parse_payloads;
    use casemate_crypto::{AeadAlg, AesBits, KexMethod};
    use casemate_wire::ike::PayloadType;

    const PROVIDERS: Providers<'static> = Providers(&[&casemate_rustcrypto::RustCrypto]);

    fn secret(byte: u8) -> SecretBytes {
        SecretBytes::new(&[byte; 32])
    }

    /// SK = prf (PPK, SK' | 0x01) for the PRFs whose output has the length of their keys (section 3). The
    /// expected value is that of Python's hmac.
    #[test]
    fn keys_depend_on_the_ppk_as_in_the_rfc() {
        let (d, pi, pr) = (secret(1), secret(2), secret(3));
        let plain = PlainKeys { d: &d, pi: &pi, pr: &pr };
        let keys = PpkKeys::new(PrfAlg::HmacSha256, &secret(9), plain, &PROVIDERS).unwrap();
        let mut expected = [0; 32];
        const D: &str = "50a7278a04237c5b8f566c88490283ea8fe7bce8e97534de952d9e50ca1ffc1b";
        for (byte, digits) in expected.iter_mut().zip(D.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(core::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        assert_eq!(keys.d.expose(), expected);
        assert!(keys.pi != keys.pr && keys.pi != pi);
    }

    /// A responder that broke the key exchange must not make an initiator go on without the PPK.
    #[test]
    fn a_response_without_the_ppk_is_refused_if_it_is_required() {
        let mut connection =
            Connection::with_shared_key("c", Identity::Fqdn("l".into()), Identity::Fqdn("r".into()));
        let (sk_d, sk_pi, sk_pr) = (secret(1), secret(2), secret(3));
        let plain = PlainKeys { d: &sk_d, pi: &sk_pi, pr: &sk_pr };
        let keys = PpkKeys::new(PrfAlg::HmacSha256, &secret(9), plain, &PROVIDERS).unwrap();
        let with_ppk = keys.pr.clone();
        let usage = PpkUse::Offered(Box::new(PpkOffer { id: [].into(), keys, fallback: None }));
        let suite = IkeSuite {
            sk: SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap()),
            prf: PrfAlg::HmacSha256,
            kex: KexMethod::X25519,
            additional: AgreedKexes::default(),
        };
        let octets = || SignedOctets {
            message: &[],
            other_message: None,
            nonce: &[],
            sk_p: &sk_pr,
            id: &[],
            int_auth: &[],
            suite,
        };
        let identity = [0, 0, 0, 8, 0, 0, 0x40, 0x34];
        let without = parse_payloads(PayloadType::NONE, &[]).unwrap();
        let with = parse_payloads(PayloadType::NOTIFY, &identity).unwrap();
        for required in [false, true] {
            connection.ppk = PpkPolicy { id: None, required };
            let used = |content: &Content<'_>| {
                usage.responder_octets(octets(), &connection, content).map(|octets| octets.sk_p.clone())
            };
            assert_eq!(used(&with), Ok(with_ppk.clone()));
            let expected = if required { Err(StateFault::PpkUnused) } else { Ok(sk_pr.clone()) };
            assert_eq!(used(&without), expected);
        }
    }
}
