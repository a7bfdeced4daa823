//! URIs of CRLs and OCSP responders.

use casemate_pki::MAX_URI_LEN;
use std::fmt;
use std::net::IpAddr;
use ureq::http::Uri;

/// A URI with the scheme `http`, without user and fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpUri {
    text: String,
    host: String,
    port: u16,
}

impl HttpUri {
    /// Reads a URI. The error says what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_URI_LEN {
            return Err(format!("a URI of at most {MAX_URI_LEN} bytes was expected"));
        }
        let expected = || "a URI such as http://ca.example.org/ca.crl was expected".to_owned();
        let is_text = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let uri: Uri = text.parse().ok().filter(|_| is_text).ok_or_else(expected)?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(expected)?;
        if uri.scheme_str() != Some("http") || authority.host().is_empty() {
            return Err(expected());
        }
        let port = authority.port_u16().unwrap_or(80);
        Ok(Self { text: text.into(), host: authority.host().into(), port })
    }

    /// The host, without the brackets around an IPv6 address.
    pub(super) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Value of the header `Host`.
    pub(super) fn host_header(&self) -> String {
        if self.port == 80 { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The same URI with an address of the host in place of its name.
    pub(super) fn at(&self, addr: IpAddr) -> String {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/");
        let slash = if path.starts_with('/') { "" } else { "/" };
        format!("http://{}{slash}{path}", std::net::SocketAddr::new(addr, self.port))
    }
}

impl fmt::Display for HttpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_name_is_replaced_by_an_address() {
        let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        for (text, host, header, at) in [
            ("http://ca.test/a.crl", "ca.test", "ca.test", "http://192.0.2.1:80/a.crl"),
            ("http://ca.test:8880", "ca.test", "ca.test:8880", "http://192.0.2.1:8880/"),
            ("http://ca.test?a=/b", "ca.test", "ca.test", "http://192.0.2.1:80/?a=/b"),
            ("http://[2001:db8::1]:81/x", "2001:db8::1", "[2001:db8::1]:81", "http://192.0.2.1:81/x"),
        ] {
            let uri = HttpUri::parse(text).unwrap();
            assert_eq!((uri.host(), uri.host_header().as_str(), uri.at(v4).as_str()), (host, header, at));
        }
        let uri = HttpUri::parse("http://ca.test/").unwrap();
        assert_eq!(uri.at(IpAddr::V6(Ipv6Addr::LOCALHOST)), "http://[::1]:80/");
    }

    #[test]
    fn only_plain_http_is_accepted() {
        let long = format!("http://ca.test/{}", "a".repeat(MAX_URI_LEN));
        for text in [
            "https://ca.test/a.crl",
            "ldap://ca.test/cn=a",
            "file:///etc/ca.crl",
            "http://user@ca.test/",
            "http://ca.test/a b",
            "http://ca.test/#a",
            "http:///a",
            "ca.test",
            "/a.crl",
            "",
            &long,
        ] {
            assert!(HttpUri::parse(text).is_err(), "{text}");
        }
    }
}
