//! How long a packet becomes under an SA, worked out once so that each packet costs an addition and a mask.

use crate::sa_out::Engine;
use casemate_sa::{Mode, SaParams};
use casemate_wire::ah::Align;
use casemate_wire::udp;

/// Lengths in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// Everything around the padded text: outer header or the packet's own, UDP, ESP or AH, IV and ICV.
    around: usize,
    /// What of the packet is not text: its own header, in transport mode.
    outside: usize,
    /// ESP's trailer.
    trailer: usize,
    /// The text is padded to one more than this.
    mask: usize,
    /// Traffic-flow padding, or 0.
    tfc_pad_to: usize,
}

impl Growth {
    /// `header` is the length of an IP header between the SA's addresses.
    pub(crate) fn new(params: &SaParams, engine: &Engine, header: usize, align: Align) -> Self {
        let udp = if params.encap.is_some() { udp::HEADER_LEN } else { 0 };
        let (protection, trailer, mask) = match engine {
            Engine::Esp(key) => key.sizes.around_text(),
            Engine::Ah(key) => (key.header_len(align), 0, 0),
        };
        Self {
            around: header.saturating_add(udp).saturating_add(protection),
            outside: if params.mode == Mode::Transport { header } else { 0 },
            trailer,
            mask,
            tfc_pad_to: params.tfc_pad_to.into(),
        }
    }

    /// Length of the packet that protects one of `len` bytes. IP options and extension headers only move, so they count as
    /// text here; that can be wrong by the padding alone.
    #[inline]
    pub(crate) fn sealed_len(&self, len: usize) -> usize {
        let text = self.padded_len(len).saturating_sub(self.outside).saturating_add(self.trailer);
        self.around.saturating_add(text.saturating_add(self.mask) & !self.mask)
    }

    /// Length with traffic-flow padding.
    #[inline]
    pub(crate) fn padded_len(&self, len: usize) -> usize {
        match self.tfc_pad_to {
            0 => len,
            unit => len.checked_next_multiple_of(unit).unwrap_or(len),
        }
    }
}
