//! AES-CBC (RFC 3602), without padding: ESP pads by itself. Batches are encrypted in [`lanes`], since a packet alone is
//! one long chain; decryption has no chain and is parallel within a packet.

use crate::etm::BatchCipher;
use crate::lanes::{self, Chain, xor};
use crate::provider::init;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit, KeyInit, consts::U16,
};
use aes::{Aes128, Aes192, Aes256, Block};
use alloc::boxed::Box;
use casemate_crypto::{AesBits, CipherKey, EtmJob, KeyError, Outcome};
use cbc::{Decryptor, Encryptor};
use core::slice;

struct Cbc<A>(A);

/// An AES-CBC key.
pub(crate) fn key(bits: AesBits, key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError> {
    match bits {
        AesBits::B128 => with::<Aes128>(key),
        AesBits::B192 => with::<Aes192>(key),
        AesBits::B256 => with::<Aes256>(key),
    }
}

fn with<A>(key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError>
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

/// An AES-CBC key for the cipher `A`, without the code that works on several packets at once.
pub(crate) fn packet_by_packet<A>(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError>
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
        let chains = jobs.iter_mut().filter_map(|EtmJob { iv, data, text, outcome, .. }| {
            *outcome = Outcome::Failed;
            let chain = Encrypt::new(data.get_mut(text.clone())?)?;
            *outcome = Outcome::Done;
            Some((chain, Array(*iv)))
        });
        lanes::run(&self.0, chains);
    }
}

/// Encryption of one text.
struct Encrypt<'t> {
    /// Waits for its ciphertext.
    current: Option<&'t mut Block>,
    rest: slice::IterMut<'t, Block>,
}

impl<'t> Encrypt<'t> {
    /// `None` if the text is not made of whole blocks.
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
