//! Messages under the keys of an IKE SA (RFC 7296 section 3.14, RFC 7383 section 2.5).

use crate::keymat::SaKeys;
use crate::negotiate::IkeSuite;
use crate::{PeerFault, Role, SkError, SkKey, SkSuite, StateFault};
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{KeyError, Providers, Rng, SecretBytes};
use casemate_wire::ike::{
    Body, ExchangeType, Flags, Fragment, HEADER_LEN, Header, IkeSpi, Layout, Message, PayloadType, Sealable,
    Version, WriteError, Writer,
};
use core::ops::Range;

/// Which message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) exchange: ExchangeType,
    pub(crate) message_id: u32,
    pub(crate) response: bool,
}

/// Both directions of an IKE SA.
///
/// Between messages the keys are bytes, and a provider's key is set up for each message. One of AWS-LC's takes 0.6 KiB, and
/// messages of an IKE SA are rare.
pub(crate) struct Secured {
    spis: (IkeSpi, IkeSpi),
    role: Role,
    suite: SkSuite,
    seal: Direction,
    open: Direction,
    /// Counts what was sealed: counter modes make their IV of it.
    sealed: u64,
}

/// SK_e and SK_a of one direction.
struct Direction {
    encr: SecretBytes,
    integ: SecretBytes,
}

/// An opened message.
pub(crate) struct Opened {
    /// Type of the first payload inside.
    pub(crate) first: PayloadType,
    /// Where in the datagram the payloads are.
    pub(crate) payloads: Range<usize>,
    /// Which fragment it is, if it is one.
    pub(crate) fragment: Option<Fragment>,
}

/// Why nothing is sent. Never the peer's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotBuilt;

impl From<WriteError> for NotBuilt {
    fn from(_: WriteError) -> Self {
        Self
    }
}

/// The header of a message.
pub(crate) fn header(spis: (IkeSpi, IkeSpi), role: Role, kind: Kind) -> Header {
    Header {
        spi_i: spis.0,
        spi_r: spis.1,
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange: kind.exchange,
        flags: Flags { initiator: role == Role::Initiator, higher_version: false, response: kind.response },
        message_id: kind.message_id,
        length: 0,
    }
}

/// Writes the payloads of a message. Not a generic parameter, so that what seals and sends is not there once for each message.
pub(crate) type Build<'b> = &'b dyn Fn(&mut Writer<'_>) -> Result<(), WriteError>;

/// Makes a message in clear text.
pub(crate) fn plain(header: &Header, scratch: &mut [u8], build: Build<'_>) -> Result<Vec<u8>, NotBuilt> {
    let mut writer = Writer::new(scratch, header)?;
    build(&mut writer)?;
    Ok(writer.finish()?.to_vec())
}

impl Secured {
    /// Takes the keys of both directions. Fails if no provider has the suite.
    pub(crate) fn new(
        spis: (IkeSpi, IkeSpi),
        role: Role,
        suite: IkeSuite,
        keys: &SaKeys,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let initiator = Direction { encr: keys.ei.clone(), integ: keys.ai.clone() };
        let responder = Direction { encr: keys.er.clone(), integ: keys.ar.clone() };
        let (seal, open) = match role {
            Role::Initiator => (initiator, responder),
            Role::Responder => (responder, initiator),
        };
        let secured = Self { spis, role, suite: suite.sk, seal, open, sealed: 0 };
        secured.key(&secured.seal, providers)?;
        Ok(secured)
    }

    /// Which end of the IKE SA this is.
    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    fn key(&self, direction: &Direction, providers: &Providers<'_>) -> Result<SkKey, KeyError> {
        SkKey::new(self.suite, &direction.encr, &direction.integ, providers)
    }

    /// Makes an encrypted message; in fragments if it is longer than `limit` bytes.
    pub(crate) fn seal(
        &mut self,
        kind: Kind,
        limit: Option<usize>,
        scratch: &mut [u8],
        (rng, providers): (&mut dyn Rng, &Providers<'_>),
        build: Build<'_>,
    ) -> Result<Vec<Vec<u8>>, NotBuilt> {
        let header = header(self.spis, self.role, kind);
        let key = self.key(&self.seal, providers).map_err(|_| NotBuilt)?;
        let layout = *key.layout();
        let mut writer = Writer::new(scratch, &header)?.encrypted(layout)?;
        build(writer.payloads())?;
        let sealable = writer.finish()?;
        if limit.is_none_or(|limit| sealable.message.len() <= limit) {
            return Ok(vec![self.seal_one(&key, sealable, rng)?]);
        }
        // The encrypted payload is the only one: its own header names the first payload inside.
        let first = PayloadType(sealable.message.get(HEADER_LEN).copied().unwrap_or_default());
        let payloads = sealable.message.get(sealable.payloads.clone()).ok_or(NotBuilt)?.to_vec();
        self.seal_fragments(&key, &header, (first, &payloads), chunk_len(limit, &layout), rng)
    }

    fn seal_fragments(
        &mut self,
        key: &SkKey,
        header: &Header,
        (first, payloads): (PayloadType, &[u8]),
        chunk: usize,
        rng: &mut dyn Rng,
    ) -> Result<Vec<Vec<u8>>, NotBuilt> {
        let layout = *key.layout();
        let total = u16::try_from(payloads.chunks(chunk).len()).map_err(|_| NotBuilt)?;
        let mut room = vec![0; chunk.saturating_add(FRAGMENT_ROOM)];
        let mut datagrams = Vec::with_capacity(total.into());
        for (number, data) in (1..=total).zip(payloads.chunks(chunk)) {
            let fragment = Fragment::new(number, total).map_err(|_| NotBuilt)?;
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
    ) -> Result<Vec<u8>, NotBuilt> {
        // Never twice the same, and never used up: it ends before it would begin again.
        self.sealed = self.sealed.checked_add(1).ok_or(NotBuilt)?;
        key.seal(sealable, self.sealed, rng).map(|message| message.to_vec()).map_err(|_| NotBuilt)
    }

    /// Opens a message in place. What does not open is not to be looked at.
    pub(crate) fn open(&self, datagram: &mut [u8], providers: &Providers<'_>) -> Result<Opened, PeerFault> {
        let message = Message::parse(datagram)?;
        // Payloads in front of the encrypted one are not authenticated in a useful way, and are not looked at.
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
        let key = self.key(&self.open, providers).map_err(|_| StateFault::Provider)?;
        let payloads = key.open(datagram, &parts).map_err(|error| match error {
            SkError::IcvMismatch => PeerFault::State(StateFault::IcvMismatch),
            SkError::Padding(fault) => PeerFault::Wire(fault),
        })?;
        Ok(Opened { first, payloads, fragment })
    }
}

/// Header, payload header, fragment numbers, the longest IV and ICV, and padding.
const FRAGMENT_ROOM: usize = 28 + 4 + 4 + 16 + 32 + 256;

/// How many bytes of payloads fit into a fragment of `limit` bytes.
fn chunk_len(limit: Option<usize>, layout: &Layout) -> usize {
    let around = (HEADER_LEN + 4 + 4usize).saturating_add(layout.iv).saturating_add(layout.icv);
    let inside = limit.unwrap_or(usize::MAX).saturating_sub(around);
    // Whole blocks, of which the last byte says how much padding there is.
    let blocks = inside.checked_div(layout.block.max(1)).unwrap_or(0).saturating_mul(layout.block.max(1));
    blocks.saturating_sub(1).max(MIN_CHUNK)
}

/// However small a limit is, a fragment brings something along.
const MIN_CHUNK: usize = 64;
