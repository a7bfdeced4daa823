//! Fuzzer input, read as a sequence of choices. After its end every choice is 0, so any bytes are a valid
//! input.

/// Remaining input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Lowest bit of the next byte.
    pub(crate) fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Index below `len`; 0 if `len` is 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        match len {
            0 | 1 => 0,
            2..=256 => usize::from(self.u8()) % len,
            _ => usize::from(self.u16()) % len,
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    /// Next `len` bytes, or the remaining ones if there are fewer.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Choices written so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Script(Vec<u8>);

impl Script {
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}
