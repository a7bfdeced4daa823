//! NAT detection (RFC 7296 section 2.23).

use crate::message::Content;
use crate::{Path, StateFault};
use alloc::vec::Vec;
use casemate_crypto::{HashAlg, Providers};
use casemate_wire::ike::{IkeSpi, Notify, NotifyType, WriteError, Writer};
use core::net::{IpAddr, SocketAddr};

/// Who is behind a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Nat {
    pub(crate) local: bool,
    pub(crate) remote: bool,
}

impl Nat {
    pub(crate) const fn any(self) -> bool {
        self.local || self.remote
    }
}

/// SHA-1 of SPIs, address and port.
fn hash(spis: (IkeSpi, IkeSpi), end: SocketAddr, providers: &Providers<'_>) -> Result<Vec<u8>, StateFault> {
    let (i, r) = (spis.0.0.to_be_bytes(), spis.1.0.to_be_bytes());
    let port = end.port().to_be_bytes();
    let digest = match end.ip() {
        IpAddr::V4(ip) => providers.hash(HashAlg::Sha1, &[&i, &r, &ip.octets(), &port]),
        IpAddr::V6(ip) => providers.hash(HashAlg::Sha1, &[&i, &r, &ip.octets(), &port]),
    };
    digest.map(|digest| digest.as_slice().into()).ok_or(StateFault::Provider)
}

/// Both notifications, as the sender at `path.local` makes them.
pub(crate) struct Detection {
    source: Vec<u8>,
    destination: Vec<u8>,
}

impl Detection {
    /// `pretend` makes the source look translated, so that the peer encapsulates in any case.
    pub(crate) fn new(
        spis: (IkeSpi, IkeSpi),
        path: Path,
        pretend: bool,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        // A source that nobody has: no real one hashes to the same.
        let nowhere = SocketAddr::new(path.local.ip(), 0);
        let source = if pretend { nowhere } else { path.local };
        Ok(Self { source: hash(spis, source, providers)?, destination: hash(spis, path.remote, providers)? })
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.notify(&Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, &self.source))?;
        out.notify(&Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, &self.destination))
    }
}

/// What a message that came on `path` says; `None` if it says nothing of NATs.
pub(crate) fn detect(
    content: &Content<'_>,
    spis: (IkeSpi, IkeSpi),
    path: Path,
    providers: &Providers<'_>,
) -> Result<Option<Nat>, StateFault> {
    let of = |kind| content.notifies.iter().filter(move |notify| notify.kind == kind);
    let mut sources = of(NotifyType::NAT_DETECTION_SOURCE_IP).peekable();
    let mut destinations = of(NotifyType::NAT_DETECTION_DESTINATION_IP).peekable();
    if sources.peek().is_none() || destinations.peek().is_none() {
        return Ok(None);
    }
    let (theirs, ours) = (hash(spis, path.remote, providers)?, hash(spis, path.local, providers)?);
    // A sender with several addresses may send several hashes: one that fits is enough.
    Ok(Some(Nat {
        remote: !sources.any(|notify| notify.data == theirs),
        local: !destinations.any(|notify| notify.data == ours),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use casemate_crypto::Provider;

    const SPIS: (IkeSpi, IkeSpi) = (IkeSpi(0x0102_0304_0506_0708), IkeSpi::NONE);

    fn with_providers<T>(act: impl FnOnce(&Providers<'_>) -> T) -> T {
        let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
        act(&Providers(&[provider]))
    }

    /// Expected values by Python's hashlib.
    #[test]
    fn hashes_of_spis_address_and_port() {
        for (end, expected) in [
            ("192.0.2.1:500", "644b4575455bd6fcc1efe2be8162a9218e448e5f"),
            ("[2001:db8::1]:4500", "98c75483db80168697635aa7844504963e87de33"),
        ] {
            let hash = with_providers(|providers| hash(SPIS, end.parse().unwrap(), providers)).unwrap();
            assert_eq!(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        }
    }

    #[test]
    fn one_hash_of_several_is_enough() {
        let path = Path { local: "192.0.2.2:500".parse().unwrap(), remote: "192.0.2.1:500".parse().unwrap() };
        let (theirs, ours) = with_providers(|providers| {
            (hash(SPIS, path.remote, providers).unwrap(), hash(SPIS, path.local, providers).unwrap())
        });
        let wrong = [0; 20];
        let judge = |sources: &[&[u8]], destinations: &[&[u8]]| {
            let mut content = Content::default();
            let source = |data| Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, data);
            let destination = |data| Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, data);
            content.notifies.extend(sources.iter().copied().map(source));
            content.notifies.extend(destinations.iter().copied().map(destination));
            with_providers(|providers| detect(&content, SPIS, path, providers)).unwrap()
        };
        let nat = |local, remote| Some(Nat { local, remote });
        assert_eq!(judge(&[&theirs], &[&ours]), nat(false, false));
        assert_eq!(judge(&[&wrong, &theirs], &[&wrong, &ours]), nat(false, false));
        assert_eq!(judge(&[&wrong], &[&ours]), nat(false, true));
        assert_eq!(judge(&[&theirs], &[&wrong]), nat(true, false));
        assert_eq!(judge(&[&theirs[..19]], &[&[]]), nat(true, true));
        // Who says nothing of one of them says nothing.
        assert_eq!((judge(&[], &[&ours]), judge(&[&theirs], &[])), (None, None));
    }
}
