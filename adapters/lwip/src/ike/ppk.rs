//! Post-quantum pre-shared keys (PPK, RFC 8784) for C. The fields exist without the feature `ppk` too: then a
//! connection with a PPK is refused, and not established without it.

use super::convert::ConnectionInput;
use crate::Status;
use crate::convert::flag;
use casemate::ConnectionKeys;
use casemate_ike::config::Connection;
use casemate_strongswan::parse_ppk_id;
#[cfg(feature = "ppk")]
use {casemate_crypto::SecretBytes, casemate_ike::config::PpkId, casemate_ike::config::PpkPolicy};

/// Maximum lengths of a PPK_ID and of a key in bytes.
const MAX_ID_LEN: usize = 64;
const MAX_KEY_LEN: usize = 256;

impl ConnectionInput<'_> {
    /// Adds the PPK of this input to its connection and to the keys. Does nothing if there is none.
    pub(crate) fn add_ppk(
        &self,
        connection: &mut Connection,
        keys: &mut ConnectionKeys,
    ) -> Result<(), Status> {
        let required = flag(self.spec.ppk_required)?;
        let Some(id) = self.ppk_id else {
            return if required || !self.ppk.is_empty() { Err(Status::Ppk) } else { Ok(()) };
        };
        let id = parse_ppk_id(id).map_err(|_| Status::Ppk)?;
        // An asterisk would stand for all PPK_IDs with an ending (`PpkId`), but there is one key.
        let is_valid = (1..=MAX_ID_LEN).contains(&id.len())
            && !id.starts_with(b"*")
            && (1..=MAX_KEY_LEN).contains(&self.ppk.len());
        if !is_valid {
            return Err(Status::Ppk);
        }
        self.insert_ppk(&id, required, connection, keys)
    }

    #[cfg(feature = "ppk")]
    fn insert_ppk(
        &self,
        id: &[u8],
        required: bool,
        connection: &mut Connection,
        keys: &mut ConnectionKeys,
    ) -> Result<(), Status> {
        connection.ppk = PpkPolicy { id: Some(PpkId::new(id)), required };
        keys.insert_ppk(&connection.name, id, SecretBytes::new(self.ppk)).map_err(|_| Status::Ppk)
    }

    #[cfg(not(feature = "ppk"))]
    fn insert_ppk(
        &self,
        _: &[u8],
        _: bool,
        _: &mut Connection,
        _: &mut ConnectionKeys,
    ) -> Result<(), Status> {
        Err(Status::Ppk)
    }
}
