//! The opposite of [`Input`](crate::input::Input): writes choices down, for seeds.

/// Choices so far.
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

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}
