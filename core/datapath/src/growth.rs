//! How long a packet becomes under an SA, worked out once so that each packet costs an addition and a mask.

use crate::shared::Engine;
use casemate_sa::{Mode, SaParams};
use casemate_wire::ah::Align;
use casemate_wire::udp;

/// Lengths in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// An IP header between the SA's addresses, without options or extension headers.
    header: usize,
    is_transport: bool,
    /// UDP, ESP or AH, IV and ICV.
    around: usize,
    /// ESP's trailer.
    trailer: usize,
    /// The text is padded to one more than this.
    mask: usize,
    /// Traffic-flow padding, or 0.
    tfc_pad_to: usize,
    /// What is added at most.
    most: usize,
}

impl Growth {
    /// `header` is the length of an IP header between the SA's addresses.
    pub(crate) fn new(params: &SaParams, engine: &Engine, header: usize, align: Align) -> Self {
        let udp = if params.encap.is_some() { udp::HEADER_LEN } else { 0 };
        let (protection, trailer, mask) = match engine {
            Engine::Esp(key) => key.sizes.around_text(),
            Engine::Ah(key) => (key.header_len(align), 0, 0),
        };
        let is_transport = params.mode == Mode::Transport;
        let tfc_pad_to = usize::from(params.tfc_pad_to);
        let around = udp.saturating_add(protection);
        let parts = [if is_transport { 0 } else { header }, around, trailer, mask, tfc_pad_to];
        let most = parts.into_iter().fold(0, usize::saturating_add);
        Self { header, is_transport, around, trailer, mask, tfc_pad_to, most }
    }

    /// Length of the packet that protects one of `len` bytes, if that has neither IP options nor extension headers.
    #[inline]
    pub(crate) fn sealed_len(&self, len: usize) -> usize {
        self.sealed_len_behind(len, self.header)
    }

    /// The same for a packet whose own headers take `headers` bytes, which in transport mode stay in front of what is
    /// padded.
    #[inline]
    pub(crate) fn sealed_len_behind(&self, len: usize, headers: usize) -> usize {
        let (front, text) = match self.is_transport {
            true => (headers, len.saturating_sub(headers)),
            false => (self.header, self.padded_len(len)),
        };
        let text = text.saturating_add(self.trailer).saturating_add(self.mask) & !self.mask;
        front.saturating_add(self.around).saturating_add(text)
    }

    /// An upper bound, whatever the packet's headers are.
    #[inline]
    pub(crate) fn sealed_len_at_most(&self, len: usize) -> usize {
        len.saturating_add(self.most)
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
