//! AES-CBC (RFC 3602) and AES-CTR (RFC 3686), and a cipher and a MAC over whole batches (RFC 4303 section
//! 3.3.2: encrypt, then MAC). Batches let CBC and the chained MACs process several packets at once.
//!
//! A CBC chain needs the previous ciphertext block to encrypt the next block, so one packet leaves most of an
//! AES unit idle. Up to [`LANES`] packets of a batch are processed in parallel. When a packet ends, its lane
//! continues with the next packet.

use crate::init;
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt,
    BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit, KeyInit, StreamCipher,
};
use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc, Block};
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use casemate_crypto::{
    AesBits, CipherAlg, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob, MacKey, Tag,
};
use cbc::{Decryptor, Encryptor};
use core::slice;
use ctr::{Ctr32BE, CtrCore};

/// AES-CBC without padding, because ESP has its own padding. Batches are encrypted in parallel,
/// because CBC encryption is sequential within a packet. Decryption is parallel within a packet.
struct Cbc<A>(A);

/// Sets up an AES-CBC key.
pub(crate) fn cbc(bits: AesBits, key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError> {
    match bits {
        AesBits::B128 => cbc_for::<Aes128>(key),
        AesBits::B192 => cbc_for::<Aes192>(key),
        AesBits::B256 => cbc_for::<Aes256>(key),
    }
}

fn cbc_for<A>(key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16>
        + BlockCipherEncrypt
        + BlockCipherDecrypt
        + KeyInit
        + Send
        + Sync
        + 'static,
{
    Ok(Box::new(Cbc(init::<A>(key)?)))
}

/// Sets up an AES-CBC key for the cipher `A`, without the code for parallel packets.
pub(crate) fn cbc_packet_by_packet<A>(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16>
        + BlockCipherEncrypt
        + BlockCipherDecrypt
        + KeyInit
        + Send
        + Sync
        + 'static,
{
    Ok(Box::new(Cbc(init::<A>(key)?)))
}

impl<A> CipherKey for Cbc<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let (blocks, []) = Block::slice_as_chunks_mut(text) else { return false };
        Encryptor::inner_iv_init(&self.0, &Array(*iv)).encrypt_blocks(blocks);
        true
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let (blocks, []) = Block::slice_as_chunks_mut(text) else { return false };
        Decryptor::inner_iv_init(&self.0, &Array(*iv)).decrypt_blocks(blocks);
        true
    }
}

impl<A> BatchCipher for Cbc<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt_all(&self, jobs: &mut [EtmJob<'_>]) {
        let chains = jobs.iter_mut().filter_map(|EtmJob { iv, data, text, status, .. }| {
            *status = JobStatus::Failed;
            let chain = Encrypt::new(data.get_mut(text.clone())?)?;
            *status = JobStatus::Done;
            Some((chain, Array(*iv)))
        });
        run_chains(&self.0, chains);
    }
}

/// Encryption of one text.
struct Encrypt<'t> {
    /// Block whose ciphertext is being computed.
    current: Option<&'t mut Block>,
    rest: slice::IterMut<'t, Block>,
}

impl<'t> Encrypt<'t> {
    /// Returns `None` if the text is not a whole number of blocks.
    fn new(text: &'t mut [u8]) -> Option<Self> {
        let (blocks, []) = Block::slice_as_chunks_mut(text) else { return None };
        Some(Self { current: None, rest: blocks.iter_mut() })
    }
}

impl Chain for Encrypt<'_> {
    #[inline(always)]
    fn step(&mut self, state: &mut Block) -> bool {
        if let Some(block) = self.current.take() {
            *block = *state;
        }
        self.current = self.rest.next();
        match &self.current {
            Some(block) => xor(state, block),
            None => return false,
        }
        true
    }
}

/// AES-CTR (RFC 3686). The caller passes the complete counter block; its last 32 bits are the counter
/// (section 4).
struct Ctr<A>(A);

/// Sets up an AES-CTR key.
pub(crate) fn ctr(bits: AesBits, key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError> {
    match bits {
        AesBits::B128 => ctr_for::<Aes128Enc>(key),
        AesBits::B192 => ctr_for::<Aes192Enc>(key),
        AesBits::B256 => ctr_for::<Aes256Enc>(key),
    }
}

fn ctr_for<A>(key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    Ok(Box::new(Ctr(init::<A>(key)?)))
}

impl<A> CipherKey for Ctr<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync,
{
    /// Returns `false` only for texts longer than the key stream, which has 2^36 bytes.
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let core = CtrCore::inner_iv_init(&self.0, &Array(*iv));
        Ctr32BE::from_core(core).try_apply_keystream(text).is_ok()
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.encrypt(iv, text)
    }
}

impl<A> BatchCipher for Ctr<A> where A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync {}

/// Number of blocks that AES-NI and the bitsliced software process at once.
pub(crate) const LANES: usize = 8;

/// CBC chain of one packet.
pub(crate) trait Chain {
    /// Replaces `state`, which is the last output of the cipher or at first the initial state, with the next
    /// input. Returns `false` at the end of the chain.
    fn step(&mut self, state: &mut Block) -> bool;
}

/// Runs each chain from its initial state to its end.
pub(crate) fn run_chains<C: Chain>(
    cipher: &impl BlockCipherEncrypt<BlockSize = U16>,
    chains: impl Iterator<Item = (C, Block)>,
) {
    cipher.encrypt_with_backend(Lanes(chains));
}

/// All lanes in one call of the cipher, which detects the AES instructions of the processor on each call.
struct Lanes<I>(I);

impl<I> BlockSizeUser for Lanes<I> {
    type BlockSize = U16;
}

impl<C: Chain, I: Iterator<Item = (C, Block)>> BlockCipherEncClosure for Lanes<I> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut waiting = self.0;
        let (mut lanes, mut states): (ArrayVec<C, LANES>, ArrayVec<Block, LANES>) =
            waiting.by_ref().take(LANES).unzip();
        loop {
            let mut at = 0;
            while let (Some(lane), Some(state)) = (lanes.get_mut(at), states.get_mut(at)) {
                if lane.step(state) {
                    at = at.saturating_add(1);
                } else if let Some(next) = waiting.next() {
                    (*lane, *state) = next;
                } else {
                    lanes.swap_pop(at);
                    states.swap_pop(at);
                }
            }
            match (&mut lanes[..], &mut states[..]) {
                ([], _) => return,
                ([lane], [state]) => return alone(lane, *state, backend),
                (_, states) => encrypt(states, backend),
            }
        }
    }
}

#[inline(always)]
fn encrypt(states: &mut [Block], backend: &impl BlockCipherEncBackend<BlockSize = U16>) {
    let (groups, rest) = InOutBuf::from(states).into_chunks();
    for group in groups {
        backend.encrypt_par_blocks(group);
    }
    backend.encrypt_tail_blocks(rest);
}

/// Processes a single lane, with its state in a register.
#[inline(always)]
fn alone(lane: &mut impl Chain, mut state: Block, backend: &impl BlockCipherEncBackend<BlockSize = U16>) {
    loop {
        backend.encrypt_block((&mut state).into());
        if !lane.step(&mut state) {
            return;
        }
    }
}

/// Adds `with` to the block in GF(2^128).
#[inline(always)]
pub(crate) fn xor(block: &mut Block, with: &Block) {
    for (to, from) in block.iter_mut().zip(with) {
        *to ^= from;
    }
}

/// A cipher that may encrypt a batch faster than single packets.
pub(crate) trait BatchCipher: CipherKey {
    /// Encrypts the text of each job. Sets [`JobStatus::Done`] if the cipher accepts the text.
    fn encrypt_all(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            let iv = job.iv;
            job.status = status(text(job).is_some_and(|text| self.encrypt(&iv, text)));
        }
    }
}

struct Etm {
    /// Cipher; `None` is NULL encryption (RFC 2410).
    cipher: Option<Box<dyn BatchCipher>>,
    mac: Box<dyn MacKey>,
}

/// Sets up a cipher and a MAC.
pub(crate) fn etm_key(
    cipher: CipherAlg,
    cipher_key: &[u8],
    mac: MacAlg,
    mac_key: &[u8],
) -> Result<Box<dyn EtmKey>, KeyError> {
    let cipher = match cipher {
        CipherAlg::Null => None,
        CipherAlg::AesCbc(bits) => Some(cbc(bits, cipher_key)?),
        CipherAlg::AesCtr(bits) => Some(ctr(bits, cipher_key)?),
        _ => return Err(KeyError::Unsupported),
    };
    Ok(Box::new(Etm { cipher, mac: crate::mac_key(mac, mac_key)? }))
}

impl EtmKey for Etm {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        for jobs in jobs.chunks_mut(LANES) {
            self.encrypt(jobs);
            let tags = self.sign(jobs);
            for (job, tag) in jobs.iter_mut().zip(tags) {
                match (job.status, tag) {
                    (JobStatus::Done, Some(tag)) => job.tag = tag,
                    _ => job.status = JobStatus::Failed,
                }
            }
        }
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        for jobs in jobs.chunks_mut(LANES) {
            let tags = self.sign(jobs);
            for (job, tag) in jobs.iter_mut().zip(tags) {
                let verified = tag.is_some_and(|tag| tag.matches(&job.tag));
                job.status = status(verified && self.decrypt(job));
            }
        }
    }
}

impl Etm {
    fn encrypt(&self, jobs: &mut [EtmJob<'_>]) {
        match &self.cipher {
            Some(cipher) => cipher.encrypt_all(jobs),
            None => jobs.iter_mut().for_each(|job| job.status = status(text(job).is_some())),
        }
    }

    fn decrypt(&self, job: &mut EtmJob<'_>) -> bool {
        let iv = job.iv;
        match (&self.cipher, text(job)) {
            (Some(cipher), Some(text)) => cipher.decrypt(&iv, text),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// Returns the tags over the data of at most [`LANES`] jobs.
    fn sign(&self, jobs: &[EtmJob<'_>]) -> ArrayVec<Option<Tag>, LANES> {
        let mut signing: ArrayVec<_, LANES> = jobs.iter().map(unsigned).collect();
        self.mac.sign(&mut signing);
        signing.iter().map(|job| (job.status == JobStatus::Done).then_some(job.tag)).collect()
    }
}

fn unsigned<'j>(job: &'j EtmJob<'_>) -> MacJob<'j> {
    let tag = Tag::zeroed(job.tag.as_slice().len());
    MacJob { nonce: job.mac_nonce, data: job.data, tag, status: JobStatus::Pending }
}

/// Returns the encrypted part of a job's data, or `None` if it exceeds the data.
fn text<'j>(job: &'j mut EtmJob<'_>) -> Option<&'j mut [u8]> {
    job.data.get_mut(job.text.clone())
}

fn status(done: bool) -> JobStatus {
    if done { JobStatus::Done } else { JobStatus::Failed }
}
