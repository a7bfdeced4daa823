//! Encryption and decryption of messages with the keys of an IKE SA (RFC 7296 section 3.14, RFC 7383 section
//! 2.5).

use crate::keymat::SaKeys;
use crate::negotiate::IkeSuite;
#[cfg(feature = "records")]
use crate::record::{IkeKeyFields, Secret};
use crate::{IkeSpis, PeerFault, Role, SkError, SkKey, SkSuite, StateFault};
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{KeyError, Providers, Rng, SecretBytes};
use casemate_wire::ike::{
    Body, ExchangeType, Flags, Fragment, HEADER_LEN, Header, Message, PayloadType, Sealable, SkLayout,
    Version, WriteError, Writer,
};
use core::ops::Range;

/// Position of the number of owners in an IV of 64 bits.
const OWNER_SHIFT: u32 = 48;
/// Maximum number of owners of an IKE SA. The last ones are left out, so that no IV wraps.
#[cfg(feature = "records")]
pub(crate) const MAX_OWNERS: u16 = u16::MAX - 1;

/// Exchange type, message ID and direction of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageKind {
    pub(crate) exchange: ExchangeType,
    pub(crate) message_id: u32,
    pub(crate) response: bool,
}

/// Keys of both directions of an IKE SA.
///
/// Between messages only the key bytes are stored; the provider's key is set up for each message. A key of
/// AWS-LC takes 0.6 KiB, and messages of an IKE SA are rare.
pub(crate) struct MessageCipher {
    spis: IkeSpis,
    role: Role,
    suite: SkSuite,
    seal: DirectionKeys,
    open: DirectionKeys,
    /// Keys of the peer's last request, if other keys have replaced them since. Its repetitions have them.
    #[cfg(feature = "multiple-kex")]
    open_before: Option<DirectionKeys>,
    /// Number of encrypted messages. Counter modes use it as the IV.
    sealed: u64,
}

/// SK_e and SK_a of one direction.
struct DirectionKeys {
    encr: SecretBytes,
    integ: SecretBytes,
}

impl DirectionKeys {
    /// Keys with which this role encrypts, and those with which it decrypts.
    fn of(keys: &SaKeys, role: Role) -> (Self, Self) {
        let initiator = Self { encr: keys.ei.clone(), integ: keys.ai.clone() };
        let responder = Self { encr: keys.er.clone(), integ: keys.ar.clone() };
        match role {
            Role::Initiator => (initiator, responder),
            Role::Responder => (responder, initiator),
        }
    }
}

/// A decrypted message.
pub(crate) struct Opened {
    /// Type of the first inner payload.
    pub(crate) first: PayloadType,
    /// Range of the inner payloads in the datagram.
    pub(crate) payloads: Range<usize>,
    /// Number and total, if the message is a fragment.
    pub(crate) fragment: Option<Fragment>,
}

/// The message could not be built. The cause is local, never the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuildError;

impl From<WriteError> for BuildError {
    fn from(_: WriteError) -> Self {
        Self
    }
}

/// Returns the header of a message.
pub(crate) fn header(spis: IkeSpis, role: Role, kind: MessageKind) -> Header {
    Header {
        spi_i: spis.initiator,
        spi_r: spis.responder,
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange: kind.exchange,
        flags: Flags { initiator: role == Role::Initiator, higher_version: false, response: kind.response },
        message_id: kind.message_id,
        length: 0,
    }
}

/// Writes the payloads of a message. A trait object and not a generic parameter, so that the code for
/// encryption and sending exists once.
pub(crate) type Build<'b> = &'b dyn Fn(&mut Writer<'_>) -> Result<(), WriteError>;

/// Writes a message in clear text.
pub(crate) fn write_plain(
    header: &Header,
    scratch: &mut [u8],
    build: Build<'_>,
) -> Result<Vec<u8>, BuildError> {
    let mut writer = Writer::new(scratch, header)?;
    build(&mut writer)?;
    Ok(writer.finish()?.to_vec())
}

impl MessageCipher {
    /// Stores the keys of both directions. Fails if no provider supports the suite.
    pub(crate) fn new(
        spis: IkeSpis,
        role: Role,
        suite: IkeSuite,
        keys: &SaKeys,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let (seal, open) = DirectionKeys::of(keys, role);
        let cipher = Self {
            spis,
            role,
            suite: suite.sk,
            seal,
            open,
            #[cfg(feature = "multiple-kex")]
            open_before: None,
            sealed: 0,
        };
        cipher.key(&cipher.seal, providers)?;
        Ok(cipher)
    }

    /// The keys of both directions, for a record, without SK_d.
    #[cfg(feature = "records")]
    pub(crate) fn to_fields(&self, sk_d: &SecretBytes) -> IkeKeyFields {
        IkeKeyFields {
            d: Secret(sk_d.clone()),
            seal_encr: Secret(self.seal.encr.clone()),
            seal_integ: Secret(self.seal.integ.clone()),
            open_encr: Secret(self.open.encr.clone()),
            open_integ: Secret(self.open.integ.clone()),
        }
    }

    /// The cipher of a record. `owners` is the number of processes and hosts that have had the IKE SA: the
    /// IVs of each begin with another number, so that none occurs twice. Fails if no provider
    /// supports the suite, or after [`MAX_OWNERS`].
    #[cfg(feature = "records")]
    pub(crate) fn from_fields(
        spis: IkeSpis,
        role: Role,
        suite: IkeSuite,
        keys: IkeKeyFields,
        owners: u16,
        providers: &Providers<'_>,
    ) -> Result<Self, BuildError> {
        let first = u64::from(owners).checked_shl(OWNER_SHIFT).filter(|_| owners <= MAX_OWNERS);
        let cipher = Self {
            spis,
            role,
            suite: suite.sk,
            seal: DirectionKeys { encr: keys.seal_encr.0, integ: keys.seal_integ.0 },
            open: DirectionKeys { encr: keys.open_encr.0, integ: keys.open_integ.0 },
            open_before: None,
            sealed: first.ok_or(BuildError)?,
        };
        cipher.key(&cipher.seal, providers).map_err(|_| BuildError)?;
        Ok(cipher)
    }

    /// Replaces the keys of both directions. The responder still opens repetitions of the request before.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn replace_keys(&mut self, keys: &SaKeys) {
        let (seal, open) = DirectionKeys::of(keys, self.role);
        let before = core::mem::replace(&mut self.open, open);
        self.open_before = (self.role == Role::Responder).then_some(before);
        (self.seal, self.sealed) = (seal, 0);
    }

    /// Forgets the keys of requests before the one that is being answered.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn forget_replaced_keys(&mut self) {
        self.open_before = None;
    }

    /// Role of this host in the IKE SA.
    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    fn key(&self, direction: &DirectionKeys, providers: &Providers<'_>) -> Result<SkKey, KeyError> {
        SkKey::new(self.suite, &direction.encr, &direction.integ, providers)
    }

    /// Encrypts a message. Splits it into fragments if it is longer than `limit` bytes.
    pub(crate) fn seal(
        &mut self,
        kind: MessageKind,
        limit: Option<usize>,
        scratch: &mut [u8],
        rng: &mut dyn Rng,
        providers: &Providers<'_>,
        build: Build<'_>,
    ) -> Result<Vec<Vec<u8>>, BuildError> {
        let header = header(self.spis, self.role, kind);
        let key = self.key(&self.seal, providers).map_err(|_| BuildError)?;
        let layout = *key.layout();
        let mut writer = Writer::new(scratch, &header)?.encrypted(layout)?;
        build(writer.payloads())?;
        let sealable = writer.finish()?;
        if limit.is_none_or(|limit| sealable.message.len() <= limit) {
            return Ok(vec![self.seal_one(&key, sealable, rng)?]);
        }
        // The encrypted payload is the only payload; its header has the type of the first inner payload.
        let first = PayloadType(*sealable.message.get(HEADER_LEN).ok_or(BuildError)?);
        let payloads = sealable.message.get(sealable.payloads.clone()).ok_or(BuildError)?.to_vec();
        self.seal_fragments(&key, &header, first, &payloads, chunk_len(limit, &layout), rng)
    }

    fn seal_fragments(
        &mut self,
        key: &SkKey,
        header: &Header,
        first: PayloadType,
        payloads: &[u8],
        chunk: usize,
        rng: &mut dyn Rng,
    ) -> Result<Vec<Vec<u8>>, BuildError> {
        let layout = *key.layout();
        let total = u16::try_from(payloads.chunks(chunk).len()).map_err(|_| BuildError)?;
        let mut room = vec![0; chunk.saturating_add(FRAGMENT_OVERHEAD)];
        let mut datagrams = Vec::with_capacity(total.into());
        for (number, data) in (1..=total).zip(payloads.chunks(chunk)) {
            let fragment = Fragment::new(number, total).map_err(|_| BuildError)?;
            let writer = Writer::new(&mut room, header)?;
            let sealable = writer.fragment(layout, fragment, first, data)?;
            datagrams.push(self.seal_one(key, sealable, rng)?);
        }
        Ok(datagrams)
    }

    fn seal_one(
        &mut self,
        key: &SkKey,
        sealable: Sealable<'_>,
        rng: &mut dyn Rng,
    ) -> Result<Vec<u8>, BuildError> {
        // The counter never repeats: sending ends before it would reach the numbers of the next owner.
        self.sealed =
            self.sealed.checked_add(1).filter(|next| !is_first_of_owner(*next)).ok_or(BuildError)?;
        key.seal(sealable, self.sealed, rng).map(|message| message.to_vec()).map_err(|_| BuildError)
    }

    /// Decrypts a message in place. `repeats` tells whether it has the message ID of the peer's last request.
    /// After an error the contents must not be used.
    pub(crate) fn open(
        &self,
        datagram: &mut [u8],
        repeats: bool,
        providers: &Providers<'_>,
    ) -> Result<Opened, PeerFault> {
        let message = Message::parse(datagram)?;
        // Payloads before the encrypted one are not encrypted and are ignored.
        let mut last = None;
        for payload in message.payloads() {
            last = Some(payload?);
        }
        let last = last.filter(|payload| payload.kind.is_encrypted()).ok_or(StateFault::NotEncrypted)?;
        let Body::Encrypted(encrypted) = Body::parse(&last)? else {
            return Err(StateFault::NotEncrypted.into());
        };
        let parts = encrypted.parts(&self.suite.layout())?;
        let (first, fragment) = (encrypted.first, encrypted.fragment);
        let key = self.key(self.open_keys(repeats), providers).map_err(|_| StateFault::Provider)?;
        let payloads = key.open(datagram, &parts).map_err(|error| match error {
            SkError::IcvMismatch => PeerFault::State(StateFault::IcvMismatch),
            SkError::Padding(fault) => PeerFault::Wire(fault),
        })?;
        Ok(Opened { first, payloads, fragment })
    }
}

impl MessageCipher {
    #[cfg(feature = "multiple-kex")]
    fn open_keys(&self, repeats: bool) -> &DirectionKeys {
        self.open_before.as_ref().filter(|_| repeats).unwrap_or(&self.open)
    }

    #[cfg(not(feature = "multiple-kex"))]
    const fn open_keys(&self, _repeats: bool) -> &DirectionKeys {
        &self.open
    }
}

/// Whether a number of an IV belongs to the next owner of the IKE SA. No IKE SA sends 2^48 messages.
const fn is_first_of_owner(number: u64) -> bool {
    number.trailing_zeros() >= OWNER_SHIFT
}

/// Header, payload header, fragment numbers, longest IV and ICV, and padding, in bytes.
const FRAGMENT_OVERHEAD: usize = 28 + 4 + 4 + 16 + 32 + 256;

/// Number of bytes of inner payloads that fit into a fragment of `limit` bytes.
fn chunk_len(limit: Option<usize>, layout: &SkLayout) -> usize {
    let overhead = (HEADER_LEN + 4 + 4usize).saturating_add(layout.iv).saturating_add(layout.icv);
    let inside = limit.unwrap_or(usize::MAX).saturating_sub(overhead);
    // Whole blocks. The last byte is the pad length.
    let blocks = inside.checked_div(layout.block.max(1)).unwrap_or(0).saturating_mul(layout.block.max(1));
    blocks.saturating_sub(1).max(MIN_CHUNK)
}

/// Minimum number of bytes of inner payloads in a fragment, however small the limit.
const MIN_CHUNK: usize = 64;
