//! AES-CBC (RFC 3602) and AES-CTR (RFC 3686).

use crate::etm::BatchCipher;
use crate::init;
use crate::lanes::{self, Chain, xor};
use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit, KeyInit, StreamCipher,
};
use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc, Block};
use alloc::boxed::Box;
use casemate_crypto::{AesBits, CipherKey, EtmJob, JobStatus, KeyError};
use cbc::{Decryptor, Encryptor};
use core::slice;
use ctr::{Ctr32BE, CtrCore};

/// AES-CBC without padding, because ESP has its own padding. Batches are encrypted in parallel [`lanes`],
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
        lanes::run(&self.0, chains);
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
