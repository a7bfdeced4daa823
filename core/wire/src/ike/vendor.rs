//! Vendor ID payload (RFC 7296 section 3.12).

/// A constant by which implementations of a vendor recognise each other; any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor<'a>(
    /// Content of the payload.
    pub &'a [u8],
);
