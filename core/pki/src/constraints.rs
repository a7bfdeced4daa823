//! Name constraints of CAs (RFC 5280 section 4.2.1.10).
//!
//! Undecidable cases count against the certificate: a constraint on an unsupported kind of name that the
//! certificate has, and a malformed name or constraint.

use crate::certificate::{Cert, read_value};
use crate::dn;
use crate::general_name::{self, GeneralName, is_dns_name};
use casemate_crypto::der::{Malformed, Reader, SEQUENCE};

/// The names cannot be compared: malformed, or of an unsupported kind.
pub(crate) struct Undecided;

impl From<Malformed> for Undecided {
    fn from(_: Malformed) -> Self {
        Self
    }
}

/// Constraints of one CA, with validated syntax.
#[derive(Debug, Clone)]
pub(crate) struct NameConstraints<'a> {
    permitted: &'a [u8],
    excluded: &'a [u8],
}

impl<'a> NameConstraints<'a> {
    pub(crate) fn parse(extension: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::only(SEQUENCE, extension)?;
        let (permitted, excluded) = (reader.read_optional(0xA0)?, reader.read_optional(0xA1)?);
        reader.finish()?;
        // At least one of the two is present, and neither is empty.
        if permitted.is_none() && excluded.is_none() || permitted == Some(&[]) || excluded == Some(&[]) {
            return Err(Malformed);
        }
        for list in [permitted, excluded].into_iter().flatten() {
            let mut reader = Reader::new(list);
            while !reader.is_empty() {
                subtree(&mut reader)?;
            }
        }
        Ok(Self { permitted: permitted.unwrap_or_default(), excluded: excluded.unwrap_or_default() })
    }

    /// Whether all names of the certificate are allowed. Subtracts the compared bytes from `work`; nothing is
    /// allowed once it is zero.
    pub(crate) fn allows(&self, cert: &Cert<'_>, work: &mut usize) -> bool {
        let Ok(emails) = dn::email_addresses(cert.subject) else { return false };
        // RFC 5280 section 4.2.1.10: an email address in the subject counts if there is no rfc822Name.
        let has_email =
            general_name::names(cert.extensions.alt_names).any(|name| matches!(name, GeneralName::Email(_)));
        let emails = emails.into_iter().filter(|_| !has_email).map(GeneralName::Email);
        let subject = (!dn::is_empty(cert.subject)).then_some(GeneralName::Directory(cert.subject));
        let mut names = general_name::names(cert.extensions.alt_names).chain(emails).chain(subject);
        names.all(|name| self.allows_name(&name, work).unwrap_or(false))
    }

    fn allows_name(&self, name: &GeneralName<'_>, work: &mut usize) -> Result<bool, Undecided> {
        let mut excluded = Reader::new(self.excluded);
        while !excluded.is_empty() {
            if compare(name, &subtree(&mut excluded)?, SubtreeList::Excluded, work)? == Some(true) {
                return Ok(false);
            }
        }
        let (mut permitted, mut constrained, mut allowed) = (Reader::new(self.permitted), false, false);
        while !permitted.is_empty() {
            if let Some(within) = compare(name, &subtree(&mut permitted)?, SubtreeList::Permitted, work)? {
                (constrained, allowed) = (true, allowed || within);
            }
        }
        Ok(allowed || !constrained)
    }
}

/// Reads a GeneralSubtree. RFC 5280 section 4.2.1.10: minimum is zero and therefore omitted, and maximum is
/// absent.
fn subtree<'a>(reader: &mut Reader<'a>) -> Result<GeneralName<'a>, Malformed> {
    let mut inside = Reader::new(read_value(reader, SEQUENCE)?.content);
    let base = GeneralName::read(&mut inside)?;
    inside.finish()?;
    Ok(base)
}

#[derive(Clone, Copy, PartialEq)]
enum SubtreeList {
    Permitted,
    Excluded,
}

/// Like [`matches()`], and subtracts the length of both names from `work`.
fn compare(
    name: &GeneralName<'_>,
    base: &GeneralName<'_>,
    side: SubtreeList,
    work: &mut usize,
) -> Result<Option<bool>, Undecided> {
    let cost = name.len().saturating_add(base.len()).saturating_add(1);
    *work = work.saturating_sub(cost);
    if *work == 0 { Err(Undecided) } else { matches(name, base, side) }
}

/// Whether the name is within the subtree; `None` if it is of another kind.
fn matches(
    name: &GeneralName<'_>,
    base: &GeneralName<'_>,
    side: SubtreeList,
) -> Result<Option<bool>, Undecided> {
    match (name, base) {
        (GeneralName::Dns(name), GeneralName::Dns(base)) => dns(name, base, side).map(Some),
        (GeneralName::Email(name), GeneralName::Email(base)) => email(name, base).map(Some),
        (GeneralName::Uri(name), GeneralName::Uri(base)) => uri(name, base).map(Some),
        (GeneralName::Ip(name), GeneralName::Ip(base)) => ip(name, base),
        (GeneralName::Directory(name), GeneralName::Directory(base)) => Ok(Some(dn::is_within(name, base)?)),
        (GeneralName::Other(name), GeneralName::Other(base)) if name == base => Err(Undecided),
        _ => Ok(None),
    }
}

/// Whether the host is the base or ends in a dot and the base. An empty base matches any host.
fn is_in_domain(host: &str, base: &str) -> bool {
    let Some(at) = host.len().checked_sub(base.len()) else { return false };
    let Some((front, end)) = host.split_at_checked(at) else { return false };
    end.eq_ignore_ascii_case(base) && (front.is_empty() || front.ends_with('.') || base.is_empty())
}

fn dns(name: &str, base: &str, side: SubtreeList) -> Result<bool, Undecided> {
    if !base.is_empty() && !is_dns_name(base, false) {
        return Err(Undecided);
    }
    Ok(match (name.strip_prefix("*."), side) {
        (Some(domain), SubtreeList::Permitted) => is_in_domain(domain, base),
        // A wildcard stands for hosts that may be excluded (CVE-2025-61727).
        (Some(domain), SubtreeList::Excluded) => is_in_domain(domain, base) || is_in_domain(base, domain),
        (None, _) => is_in_domain(name, base),
    })
}

/// The base is one mailbox, all mailboxes of a host, or with a leading dot those of all hosts below a domain.
/// RFC 5280 section 7.5: case matters before the `@` and not after it.
fn email(name: &str, base: &str) -> Result<bool, Undecided> {
    let (local, host) = mailbox(name)?;
    if base.contains('@') {
        let (wanted, at) = mailbox(base)?;
        return Ok(local == wanted && host.eq_ignore_ascii_case(at));
    }
    host_within(host, base)
}

fn mailbox(address: &str) -> Result<(&str, &str), Undecided> {
    match address.rsplit_once('@') {
        Some((local, host)) if !local.is_empty() && !local.contains('@') && is_dns_name(host, false) => {
            Ok((local, host))
        }
        _ => Err(Undecided),
    }
}

/// Whether the host is the base, or below it if the base has a leading dot.
fn host_within(host: &str, base: &str) -> Result<bool, Undecided> {
    match base.strip_prefix('.') {
        Some(domain) if is_dns_name(domain, false) => {
            Ok(host.len() > domain.len() && is_in_domain(host, domain))
        }
        None if is_dns_name(base, false) => Ok(host.eq_ignore_ascii_case(base)),
        _ => Err(Undecided),
    }
}

/// Compares the host of a URI. A URI without a host name, such as one with an address, is never allowed (RFC
/// 5280 section 4.2.1.10).
fn uri(name: &str, base: &str) -> Result<bool, Undecided> {
    let (_, rest) = name.split_once("://").ok_or(Undecided)?;
    let authority = rest.split(['/', '?', '#']).next().ok_or(Undecided)?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let is_address = host.split('.').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if is_address || !is_dns_name(host, false) {
        return Err(Undecided);
    }
    host_within(host, base)
}

fn ip(address: &[u8], base: &[u8]) -> Result<Option<bool>, Undecided> {
    let (network, mask) = match base.len() {
        8 | 32 => base.split_at_checked(base.len() >> 1).ok_or(Undecided)?,
        _ => return Err(Undecided),
    };
    if !is_prefix(mask) {
        return Err(Undecided);
    }
    let masked = |(address, (network, mask)): (&u8, (&u8, &u8))| (address ^ network) & mask == 0;
    Ok((address.len() == network.len()).then(|| address.iter().zip(network.iter().zip(mask)).all(masked)))
}

/// Whether a mask consists of ones followed by zeros (RFC 4632).
fn is_prefix(mask: &[u8]) -> bool {
    let ones = mask.iter().take_while(|byte| **byte == 0xFF).count();
    match mask.get(ones..) {
        Some([first, rest @ ..]) => {
            first.leading_ones() == first.count_ones() && rest.iter().all(|byte| *byte == 0)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(answer: Result<bool, Undecided>) -> Option<bool> {
        answer.ok()
    }

    #[test]
    fn cve_2026_35331_case_of_dns_names() {
        for (name, base, within) in [
            ("moon.strongSwan.org", "STRONGSWAN.ORG", Some(true)),
            ("STRONGSWAN.ORG", "strongswan.org", Some(true)),
            ("badstrongswan.org", "strongswan.org", Some(false)),
            ("org", "strongswan.org", Some(false)),
            ("moon.org", "", Some(true)),
            ("moon.org", ".org", None),
            ("moon.org", "*.org", None),
            ("moon.org", "org.", None),
        ] {
            for side in [SubtreeList::Permitted, SubtreeList::Excluded] {
                assert_eq!(decided(dns(name, base, side)), within, "{name} {base}");
            }
        }
    }

    #[test]
    fn cve_2025_61727_wildcards() {
        for (base, permitted, excluded) in [
            ("example.com", true, true),
            ("com", true, true),
            ("moon.example.com", false, true),
            ("a.moon.example.com", false, true),
            ("example.org", false, false),
        ] {
            assert_eq!(
                decided(dns("*.example.com", base, SubtreeList::Permitted)),
                Some(permitted),
                "{base}"
            );
            assert_eq!(decided(dns("*.example.com", base, SubtreeList::Excluded)), Some(excluded), "{base}");
        }
    }

    #[test]
    fn mailboxes() {
        for (name, base, within) in [
            ("alice@moon.org", "alice@MOON.org", Some(true)),
            ("alice@moon.org", "Alice@moon.org", Some(false)),
            ("alice@moon.org", "moon.ORG", Some(true)),
            ("alice@a.moon.org", "moon.org", Some(false)),
            ("alice@a.moon.org", ".moon.org", Some(true)),
            ("alice@moon.org", ".moon.org", Some(false)),
            ("alice@moon.org", "", None),
            ("alice", "moon.org", None),
            ("a@b@moon.org", "moon.org", None),
            ("@moon.org", "moon.org", None),
        ] {
            assert_eq!(decided(email(name, base)), within, "{name} {base}");
        }
    }

    #[test]
    fn hosts_of_uris() {
        for (name, base, within) in [
            ("http://moon.org/a?b#c", "moon.org", Some(true)),
            ("http://user@moon.org:80/", "moon.org", Some(true)),
            ("ldap://a.moon.org", ".moon.org", Some(true)),
            ("http://moon.org", ".moon.org", Some(false)),
            ("http://moon.org@sun.org/", "moon.org", Some(false)),
            ("http://10.0.0.1/", "moon.org", None),
            ("http://[::1]/", "moon.org", None),
            ("mailto:moon.org", "moon.org", None),
        ] {
            assert_eq!(decided(uri(name, base)), within, "{name} {base}");
        }
    }

    #[test]
    fn networks() {
        let within = |address: &[u8], base: &[u8]| ip(address, base).ok();
        assert_eq!(within(&[10, 1, 2, 3], &[10, 0, 0, 0, 255, 0, 0, 0]), Some(Some(true)));
        assert_eq!(within(&[11, 1, 2, 3], &[10, 0, 0, 0, 255, 0, 0, 0]), Some(Some(false)));
        assert_eq!(within(&[11, 1, 2, 3], &[0; 8]), Some(Some(true)));
        assert_eq!(within(&[0; 16], &[0; 8]), Some(None));
        assert_eq!(within(&[10, 1, 2, 3], &[10, 0, 0, 0, 255, 0, 255, 0]), None);
        assert_eq!(within(&[10, 1, 2, 3], &[10, 0, 0, 0, 253, 0, 0, 0]), None);
        assert_eq!(within(&[10, 1, 2, 3], &[10, 0, 0, 0]), None);
    }
}
