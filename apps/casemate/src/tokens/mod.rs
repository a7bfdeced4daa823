//! Tokens (PKCS #11): certificates that are read from them, private keys on them, and the signatures of those
//! keys.
//!
//! `objects` finds the objects that a configuration names. `signatures` has messages signed: IKE waits for the
//! result, while the event loop goes on.

mod objects;
mod signatures;

pub(crate) use objects::{OpenedKey, TokenEnvironment, TokenSigningKey, open_key, open_keys};
pub(crate) use signatures::{TokenLink, TokenState};
