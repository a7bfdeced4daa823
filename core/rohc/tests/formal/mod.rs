//! A decoder for ROHCv2 (RFC 5225) that reads the formal notation of the RFC as data.
//!
//! This is the check of the product, so it shares no code with it. The tables in `base` and `chains`
//! are the COMPRESSED and UNCOMPRESSED formats of RFC 5225 section 6.8.2.4, field by field and in the
//! order of the RFC. `walk` is the interpreter: it walks the bits of a packet along such a list, applies
//! the encoding method of each field and binds the value to the name of the field. `solve` then applies
//! the ENFORCE equations which tie fields together, `rebuild` writes the uncompressed headers and
//! computes the CRCs, and `decoder` does the framing of RFC 5795.
//!
//! It covers profiles 0x0000 and 0x0101 to 0x0104 with up to three IP headers (IPv4 without options,
//! IPv6 without extension headers). It decodes each packet against the last one of its context and makes
//! no attempt to repair anything. Timer-based timestamps (time_stride not 0) are refused.

#![allow(dead_code, unreachable_pub, unused_imports, missing_docs, reason = "shared by several test crates")]

mod base;
mod chains;
mod decoder;
mod rebuild;
mod solve;
mod table;
mod walk;

pub use decoder::Decoder;
pub use rebuild::crc;
