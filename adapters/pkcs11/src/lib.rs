//! Private keys and certificates on PKCS #11 tokens: smart cards, USB tokens, and hardware security modules.
//!
//! A token comes with a module, a shared library that [`TokenModule`] loads into this process (OASIS PKCS #11
//! 2.40; 3.0 for Ed25519). Each module has one thread, on which all its functions run one after the other, so
//! that a slow token delays nobody else. The token performs every operation with a private key; hashing and
//! padding of RSA with PKCS #1 v1.5 happen here, because not every token can.
//!
//! A PIN is sent to a token once. A token counts wrong PINs and locks itself after a few, so a PIN that it has
//! refused is not tried again until the program ends.

mod error;
mod key;
mod login;
mod module;
mod public_key;
mod signature;
mod worker;

pub use error::TokenError;
pub use key::TokenKey;
pub use module::{TokenModule, TokenObject};
pub use worker::ThreadEntry;
