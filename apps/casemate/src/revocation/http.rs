//! Fetches a CRL or an OCSP response by HTTP.
//!
//! No redirect is followed, no proxy is used, and nothing is sent but the request itself. A URI of a
//! certificate may lead to global and private addresses of others only: not to this host, not to its link,
//! where cloud services have their secrets, and not to groups.

use super::uri::HttpUri;
use casemate_linux::netlink::Netlink;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};
use std::time::{Duration, Instant};
use ureq::{Agent, Error};

/// Longest time for one source.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of addresses of a host that are tried.
const MAX_ADDRS: usize = 3;
/// Maximum length of the header of a response in bytes.
const MAX_HEADER: usize = 16 << 10;

/// Where a URI is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The administrator has configured it.
    Configuration,
    /// A certificate contains it, which a trusted CA has signed.
    Certificate,
}

/// What is fetched.
pub(super) enum Query<'q> {
    /// A CRL.
    Crl,
    /// The response to this OCSP request (RFC 6960 appendix A.1).
    Ocsp(&'q [u8]),
}

/// Why nothing was fetched.
#[derive(Debug)]
pub(super) enum FetchFault {
    NameLookUp(io::Error),
    NoAddress,
    /// The host has only addresses that URIs of certificates may not lead to.
    ForbiddenAddress(IpAddr),
    Timeout,
    /// The same, and packets to the address are routed into the TUN interface of this name.
    IntoTunnel(IpAddr, String),
    Status(u16),
    TooLong(usize),
    Http(String),
}

impl fmt::Display for FetchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameLookUp(error) => write!(f, "look-up of the name: {error}"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::ForbiddenAddress(addr) => {
                write!(f, "a URI of a certificate must not lead to {addr}, an address of this host or link")
            }
            Self::Timeout => f.write_str("no answer in time"),
            Self::IntoTunnel(addr, tun) => write!(
                f,
                "no answer in time; packets to {addr} are routed into {tun}: if the tunnel cannot come up \
                 without this answer, a child with `mode = pass`, `remote_ts = {addr}` and \
                 `start_action = trap` was expected"
            ),
            Self::Status(status @ 300..=399) => {
                write!(f, "HTTP status {status}: redirects are not followed")
            }
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::TooLong(most) => write!(f, "longer than {most} bytes"),
            Self::Http(error) => f.write_str(error),
        }
    }
}

/// Fetches at most `max_len` bytes until `deadline`.
pub(super) fn fetch(
    uri: &HttpUri,
    query: &Query<'_>,
    origin: Origin,
    max_len: usize,
    deadline: Instant,
) -> Result<Vec<u8>, FetchFault> {
    let deadline = deadline.min(Instant::now() + TIMEOUT);
    let found = (uri.host(), uri.port()).to_socket_addrs().map_err(FetchFault::NameLookUp)?;
    let addrs: Vec<IpAddr> = found.map(|addr| addr.ip()).collect();
    let allowed = addrs
        .iter()
        .filter(|addr| origin == Origin::Configuration || may_lead_to(**addr) && !is_of_this_host(**addr));
    let mut fault = addrs.first().map_or(FetchFault::NoAddress, |addr| FetchFault::ForbiddenAddress(*addr));
    for addr in allowed.take(MAX_ADDRS) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(FetchFault::Timeout);
        }
        match fetch_from(uri, *addr, query, max_len, left) {
            Err(FetchFault::Http(error)) => fault = FetchFault::Http(error),
            Err(FetchFault::Timeout) => {
                return Err(
                    tun_to(*addr).map_or(FetchFault::Timeout, |tun| FetchFault::IntoTunnel(*addr, tun))
                );
            }
            result => return result,
        }
    }
    Err(fault)
}

fn fetch_from(
    uri: &HttpUri,
    addr: IpAddr,
    query: &Query<'_>,
    max_len: usize,
    timeout: Duration,
) -> Result<Vec<u8>, FetchFault> {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent("casemate")
        .max_response_header_size(MAX_HEADER)
        .max_idle_connections(0)
        .build();
    let (agent, url, host) = (Agent::new_with_config(config), uri.at(addr), uri.host_header());
    let sent = match query {
        Query::Crl => agent.get(url).header("Host", host).call(),
        Query::Ocsp(request) => {
            let post = agent.post(url).header("Host", host).header("Accept", "application/ocsp-response");
            post.content_type("application/ocsp-request").send(*request)
        }
    };
    let failed = |error| match error {
        Error::Timeout(_) => FetchFault::Timeout,
        Error::BodyExceedsLimit(_) => FetchFault::TooLong(max_len),
        error => FetchFault::Http(error.to_string()),
    };
    let mut response = sent.map_err(failed)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(FetchFault::Status(status));
    }
    response.body_mut().with_config().limit(max_len as u64).read_to_vec().map_err(failed)
}

/// Whether a URI of a certificate may lead to an address.
fn may_lead_to(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => {
            !(addr.is_loopback()
                || addr.is_unspecified()
                || addr.is_link_local()
                || addr.is_multicast()
                || addr.is_broadcast()
                || addr.octets().starts_with(&[0]))
        }
        IpAddr::V6(addr) => match embedded_ipv4(addr) {
            Some(inner) => may_lead_to(inner),
            None => {
                !(addr.is_loopback()
                    || addr.is_unspecified()
                    || addr.is_unicast_link_local()
                    || addr.is_multicast())
            }
        },
    }
}

/// Whether the kernel delivers packets for an address to this host, or does not say where they go.
fn is_of_this_host(addr: IpAddr) -> bool {
    let addr = if let IpAddr::V6(v6) = addr { embedded_ipv4(v6).unwrap_or(addr) } else { addr };
    // The requests have no mark.
    let route = Netlink::open().and_then(|mut netlink| netlink.route_to(addr, 0));
    route.map_or(true, |route| route.is_some_and(|route| route.is_local))
}

/// Name of the TUN interface into which packets for an address are routed, if they are.
fn tun_to(addr: IpAddr) -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    // The requests have no mark.
    let index = netlink.interface_to(addr, 0).ok()??;
    let is_tun = netlink.is_tun(index).ok()?;
    is_tun.then(|| netlink.link_at(index).ok().map(|link| link.name))?
}

/// The IPv4 address to which packets for an IPv4-mapped address go, or for one behind NAT64 (RFC 6052).
fn embedded_ipv4(addr: Ipv6Addr) -> Option<IpAddr> {
    let nat64 = match addr.octets() {
        [0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Some([a, b, c, d].into()),
        _ => None,
    };
    addr.to_ipv4_mapped().or(nat64).map(IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_linux::netns::Netns;
    use std::net::TcpListener;

    /// A certificate must not lead to a service that only this host should reach.
    #[test]
    fn uris_of_certificates_do_not_lead_to_other_addresses_of_this_host() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let fetched = |origin| {
            let server = TcpListener::bind("10.44.0.1:0").unwrap();
            let uri = HttpUri::parse(&format!("http://{}/crl", server.local_addr().unwrap())).unwrap();
            drop(server);
            fetch(&uri, &Query::Crl, origin, 1_000, Instant::now() + TIMEOUT).unwrap_err()
        };
        netns
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let loopback = netlink.link("lo").unwrap().index;
                netlink.add_address(loopback, "10.44.0.1".parse().unwrap(), 32).unwrap();
                let forbidden = fetched(Origin::Certificate);
                assert!(matches!(forbidden, FetchFault::ForbiddenAddress(_)), "{forbidden:?}");
                let refused = fetched(Origin::Configuration);
                assert!(matches!(refused, FetchFault::Http(_)), "{refused:?}");
                assert!(!is_of_this_host("10.44.0.2".parse().unwrap()));
            })
            .unwrap();
    }

    #[test]
    fn uris_of_certificates_lead_neither_to_this_host_nor_to_its_link() {
        for addr in ["192.0.2.1", "10.1.2.3", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"] {
            assert!(may_lead_to(addr.parse().unwrap()), "{addr}");
        }
        for addr in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
        ] {
            assert!(!may_lead_to(addr.parse().unwrap()), "{addr}");
        }
    }
}
