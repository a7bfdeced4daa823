//! What a ticket contains: all that RFC 5723 section 5 takes "from the ticket".
//!
//! Only this host reads its tickets, after it has authenticated them, so the format may change with any
//! version. Numbers are in network byte order, and a length of two bytes precedes each field that varies.

use crate::IkeSaId;
#[cfg(feature = "eap")]
use crate::UserIdentity;
use crate::auth::resumption::PeerRecord;
use crate::config::{AgreedKexes, Identity, KexRound};
use crate::engine::peer_index::Proof;
use crate::negotiate::{Algorithm, IkeSuite};
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_sa::Instant;
use casemate_wire::ike::{Id, IdType, KeMethod, TransformType};
#[cfg(feature = "eap")]
use core::net::IpAddr;
use zeroize::Zeroizing;

/// Longest contents in bytes: the first request must fit an IP packet without fragmentation. The memory is
/// reserved at once, because memory that grows would leave a copy of SK_d behind.
pub(super) const MAX_SESSION: usize = 1_024;
/// Key length of a transform without one.
const NO_KEY_LEN: u16 = 0;
/// Transform ID in place of the MAC of a combined-mode cipher.
const NO_INTEG: u16 = 0;
/// Before the PPK_ID of a post-quantum pre-shared key, which may be empty.
#[cfg(feature = "ppk")]
const HAS_PPK: &[u8] = &[1];

/// A session that can be resumed, as the responder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The IKE SA of the ticket.
    pub(crate) ike: IkeSaId,
    pub(crate) expires_at: Instant,
    /// When the peer must have been authenticated again; `None` for never.
    pub(crate) reauth_at: Option<Instant>,
    /// Number of the connection; another one after a change.
    pub(crate) connection: u64,
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: SecretBytes,
    pub(crate) peer: PeerRecord,
    /// MAC of the secret that has authenticated the peer, unless an AAA server has it, and of its
    /// post-quantum pre-shared key, if it uses one.
    pub(crate) secret_mac: Vec<u8>,
}

impl Session {
    /// Returns the contents of the ticket; `None` if the algorithms have no transform IDs, or a field is too
    /// long.
    pub(super) fn encode(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut out = Zeroizing::new(Vec::with_capacity(MAX_SESSION));
        let Self { ike, expires_at, reauth_at, connection, suite, sk_d, peer, secret_mac } = self;
        let reauth_at = reauth_at.map_or(u64::MAX, Instant::as_micros);
        for word in [ike.0, expires_at.as_micros(), reauth_at, *connection] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let (encr, integ) = suite.sk_transforms()?;
        let integ = integ.map_or(NO_INTEG, |alg| alg.id);
        let key_bits = encr.key_bits.unwrap_or(NO_KEY_LEN);
        for number in [encr.id, key_bits, integ, suite.prf.id(), suite.kex.id(), peer.proof as u16] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(peer.full_transcript.into());
        for round in KexRound::ALL {
            let id = suite.additional.method(round).map_or(KeMethod::NONE.0, KexMethod::id);
            out.extend_from_slice(&id.to_be_bytes());
        }
        let (id, own_id) = (peer.id.to_bytes(), peer.own_id.to_bytes());
        for field in [sk_d.expose(), &id, &own_id, secret_mac] {
            put(&mut out, field)?;
        }
        #[cfg(feature = "ppk")]
        put(&mut out, &peer.ppk_id.as_deref().map_or_else(Vec::new, |id| [HAS_PPK, id].concat()))?;
        #[cfg(feature = "eap")]
        {
            put(&mut out, &peer.eap_identity.as_ref().map_or_else(Vec::new, user_bytes))?;
            for addr in &peer.assigned_addrs {
                match addr {
                    IpAddr::V4(addr) => put(&mut out, &addr.octets())?,
                    IpAddr::V6(addr) => put(&mut out, &addr.octets())?,
                }
            }
        }
        Some(out)
    }

    /// Reads the contents of a ticket; `None` if they are malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ike = IkeSaId(fields.u64()?);
        let expires_at = Instant::from_micros(fields.u64()?);
        let reauth_at = Some(fields.u64()?).filter(|at| *at != u64::MAX).map(Instant::from_micros);
        let connection = fields.u64()?;
        let (encr, bits, integ) = (fields.u16()?, fields.u16()?, fields.u16()?);
        let key_bits = Some(bits).filter(|bits| *bits != NO_KEY_LEN);
        let encr = Algorithm { kind: TransformType::ENCR, id: encr, key_bits };
        let integ = Some(integ).filter(|id| *id != NO_INTEG);
        let integ = integ.map(|id| Algorithm { kind: TransformType::INTEG, id, key_bits: None });
        let suite = IkeSuite::from_transforms(encr, integ, fields.u16()?, fields.u16()?)?;
        let proof = proof(fields.u16()?)?;
        let full_transcript = fields.flag()?;
        let suite = IkeSuite { additional: fields.additional()?, ..suite };
        let sk_d = SecretBytes::new(fields.bytes()?);
        let (id, own_id) = (identity(fields.bytes()?)?, identity(fields.bytes()?)?);
        let secret_mac = fields.bytes()?.into();
        #[cfg(feature = "ppk")]
        let ppk_id = match fields.bytes()? {
            [] => None,
            ppk => Some(ppk.strip_prefix(HAS_PPK)?.into()),
        };
        #[cfg(feature = "eap")]
        let eap_identity = match fields.bytes()? {
            [] => None,
            bytes => Some(user(bytes)?),
        };
        #[cfg(feature = "eap")]
        let assigned_addrs = fields.addrs()?;
        let peer = PeerRecord {
            id,
            own_id,
            proof,
            full_transcript,
            #[cfg(feature = "ppk")]
            ppk_id,
            #[cfg(feature = "eap")]
            eap_identity,
            #[cfg(feature = "eap")]
            assigned_addrs,
        };
        if !fields.0.is_empty() {
            return None;
        }
        Some(Self { ike, expires_at, reauth_at, connection, suite, sk_d, peer, secret_mac })
    }
}

/// Before an EAP identity that is proven, and before one that is not.
#[cfg(feature = "eap")]
const PROVEN: u8 = 1;
#[cfg(feature = "eap")]
const CLAIMED: u8 = 2;

#[cfg(feature = "eap")]
fn user_bytes(user: &UserIdentity) -> Vec<u8> {
    match user {
        UserIdentity::Proven(identity) => [&[PROVEN], &**identity].concat(),
        UserIdentity::Claimed { identity, login } => {
            [&[CLAIMED], &login.0.to_be_bytes()[..], identity].concat()
        }
    }
}

#[cfg(feature = "eap")]
fn user(bytes: &[u8]) -> Option<UserIdentity> {
    match bytes.split_first()? {
        (&PROVEN, identity) => Some(UserIdentity::Proven(identity.into())),
        (&CLAIMED, rest) => {
            let (login, identity) = rest.split_first_chunk()?;
            let login = IkeSaId(u64::from_be_bytes(*login));
            Some(UserIdentity::Claimed { identity: identity.into(), login })
        }
        _ => None,
    }
}

/// Proofs with which a ticket is granted.
fn proof(number: u16) -> Option<Proof> {
    let mut known = [
        Proof::SharedKey,
        #[cfg(feature = "eap")]
        Proof::Eap,
        #[cfg(feature = "eap")]
        Proof::EapLogin,
    ]
    .into_iter();
    known.find(|proof| *proof as u16 == number)
}

fn identity(bytes: &[u8]) -> Option<Identity> {
    let (kind, data) = bytes.split_first()?;
    Identity::from_payload(&Id { kind: IdType(*kind), data })
}

/// Adds a field, if there is room.
fn put(out: &mut Vec<u8>, field: &[u8]) -> Option<()> {
    let len = out.len().saturating_add(field.len()).saturating_add(2);
    if len > MAX_SESSION {
        return None;
    }
    out.extend_from_slice(&u16::try_from(field.len()).ok()?.to_be_bytes());
    out.extend_from_slice(field);
    Some(())
}

/// The fields that were not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn u16(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number))
    }

    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        match *flag {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn additional(&mut self) -> Option<AgreedKexes> {
        KexRound::ALL.into_iter().try_fold(AgreedKexes::NONE, |agreed, round| match self.u16()? {
            id if id == KeMethod::NONE.0 => Some(agreed),
            id => Some(agreed.with(round, KexMethod::from_id(id)?)),
        })
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        let (field, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        Some(field)
    }

    /// The addresses up to the end.
    #[cfg(feature = "eap")]
    fn addrs(&mut self) -> Option<Vec<IpAddr>> {
        let mut addrs = Vec::new();
        while !self.0.is_empty() {
            let octets = self.bytes()?;
            let v4 = octets.as_array::<4>().map(|octets| IpAddr::from(*octets));
            addrs.push(v4.or_else(|| octets.as_array::<16>().map(|octets| IpAddr::from(*octets)))?);
        }
        Some(addrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SkSuite;
    use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind, PrfAlg};

    fn session(sk: SkSuite, proof: Proof) -> Session {
        Session {
            ike: IkeSaId(7),
            expires_at: Instant::from_secs(3_600),
            reauth_at: Some(Instant::from_secs(9_000)),
            connection: 3,
            suite: IkeSuite {
                sk,
                prf: PrfAlg::HmacSha256,
                kex: KexMethod::X25519,
                additional: AgreedKexes::NONE.with(KexRound::ALL[2], KexMethod::EcpP384),
            },
            sk_d: SecretBytes::new(&[5; 32]),
            peer: PeerRecord {
                id: Identity::Email("carol@example.org".into()),
                own_id: Identity::Fqdn("gateway.example.org".into()),
                proof,
                full_transcript: proof == Proof::SharedKey,
                #[cfg(feature = "ppk")]
                ppk_id: Some(b"carol@example.org".as_slice().into()),
                #[cfg(feature = "eap")]
                eap_identity: Some(UserIdentity::Proven(b"carol".into())),
                #[cfg(feature = "eap")]
                assigned_addrs: ["10.9.0.1", "2001:db8::9"].map(|addr| addr.parse().unwrap()).into(),
            },
            secret_mac: [8; 32].into(),
        }
    }

    fn sessions() -> [Session; 2] {
        let combined = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B256, 16).unwrap());
        let separate =
            SkSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha256));
        let mut second =
            Session { reauth_at: None, secret_mac: Vec::new(), ..session(separate, Proof::SharedKey) };
        #[cfg(feature = "ppk")]
        {
            second.peer.ppk_id = None;
        }
        [session(combined, Proof::SharedKey), second]
    }

    #[test]
    fn sessions_survive_a_ticket() {
        for session in sessions() {
            let encoded = session.encode().unwrap();
            assert!(encoded.len() < 250, "{} bytes", encoded.len());
            assert_eq!(Session::decode(&encoded), Some(session));
        }
    }

    #[cfg(feature = "eap")]
    #[test]
    fn a_user_is_proven_or_claimed_in_a_login() {
        let [mut session, _] = sessions();
        session.peer.proof = Proof::EapLogin;
        let login = IkeSaId(5);
        session.peer.eap_identity = Some(UserIdentity::Claimed { identity: b"carol".into(), login });
        assert_eq!(Session::decode(&session.encode().unwrap()), Some(session));
        for (bytes, expected) in [
            (&[PROVEN][..], Some(UserIdentity::Proven(Vec::new()))),
            (&[CLAIMED, 0, 0, 0, 0, 0, 0, 0], None),
            (&[CLAIMED, 0, 0, 0, 0, 0, 0, 0, 5], Some(UserIdentity::Claimed { identity: Vec::new(), login })),
            (&[3, b'a'], None),
        ] {
            assert_eq!(user(bytes), expected);
        }
    }

    #[test]
    fn truncated_sessions_are_refused() {
        let without_addrs = {
            let mut session = sessions()[0].clone();
            #[cfg(feature = "eap")]
            session.peer.assigned_addrs.clear();
            session.secret_mac.clear();
            session
        };
        let encoded = without_addrs.encode().unwrap();
        for len in 0..encoded.len() {
            assert_eq!(Session::decode(&encoded[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn a_peer_with_a_certificate_has_no_session() {
        let [session, _] = sessions();
        let peer = PeerRecord { proof: Proof::Signature, ..session.peer };
        let encoded = Session { peer, ..session }.encode().unwrap();
        assert_eq!(Session::decode(&encoded), None);
    }
}
