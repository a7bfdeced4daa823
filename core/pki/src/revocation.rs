//! What a missing CRL means. CRLs are given to the store by the administrator; none is fetched.

/// Whether a certificate must be known not to be revoked. One that is listed in a CRL of its issuer is refused in any case. The words are
/// those of strongSwan's `revocation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Revocation {
    /// A certificate about which no CRL says anything is taken.
    #[default]
    Relaxed,
    /// As [`Strict`](Self::Strict) for certificates that say where their CRL is, as [`Relaxed`](Self::Relaxed) for the others.
    IfUri,
    /// Each certificate below the root needs a valid CRL of its issuer.
    Strict,
}
