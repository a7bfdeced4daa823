//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2-02), which carries MS-CHAPv2 (RFC 2759).
//!
//! ```text
//!  authenticator                                     peer
//!  challenge            ->
//!                       <-   challenge of the peer, NT response
//!  success: S=...       ->                                          or failure: E=691
//!                       <-   success                                or failure
//! ```
//!
//! The authenticator offers no second attempt and no change of the password; the peer accepts neither. Each
//! new IKE SA is a new attempt. MD4 and three DES keys of 56, 56 and 16 bits protect the password, so whoever
//! records a conversation can compute the hash of the password.

mod crypto;
mod packet;
mod peer;
mod server;

pub use crypto::NtHash;
pub(super) use peer::MsChapV2Peer;
pub(super) use server::MsChapV2Server;
