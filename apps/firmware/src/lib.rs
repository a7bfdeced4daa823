//! A machine without an operating system that serves a page behind IPsec: what is not hardware.
//!
//! The image in `src/image` boots, and has all that is `unsafe`. `cargo xtask firmware` builds it.
#![no_std]
#![forbid(unsafe_code)]
