//! What the owner of keys and certificates does for IKE.

use crate::config::{Connection, Identity};
use casemate_crypto::SecretBytes;

/// Keys and certificates, of this host and for judging peers.
pub trait Credentials {
    /// The key that `local` and `remote` share, if there is one.
    fn shared_key(
        &self,
        connection: &Connection,
        local: &Identity,
        remote: &Identity,
    ) -> Option<&SecretBytes>;
}
