//! Vendor ID payload (RFC 7296 section 3.12).

/// What a vendor recognises its kind by; any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor<'a>(
    /// The constant.
    pub &'a [u8],
);
