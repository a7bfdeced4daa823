//! The part of HTTP/1.1 (RFC 9110, RFC 9112) that a scrape needs: one GET request of one page, and a response
//! that ends the connection.

use super::exposition::Format;
use httparse::{EMPTY_HEADER, Header, Request};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of a request in bytes.
pub(super) const MAX_REQUEST: usize = 8_192;
/// Maximum number of header fields.
const MAX_HEADERS: usize = 64;
/// The only page.
const PAGE: &str = "/metrics";

/// What a client has sent so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The request is incomplete.
    Part,
    /// A request for the metrics.
    Scrape(Scrape),
    /// A request that gets an error.
    Refused(Refusal),
}

/// A request for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scrape {
    /// The format that the client prefers.
    pub(super) format: Format,
    /// Whether the client understands chunks, so that it notices a response without an end. Clients of
    /// HTTP/1.0 do not.
    pub(super) is_chunked: bool,
}

/// Why a request gets no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLong,
    /// The Host field names another host.
    Misdirected,
}

impl Received {
    /// Parses what a client has sent.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => Self::of(&request),
            Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST => Self::Part,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                Self::Refused(Refusal::TooLong)
            }
            Err(_) => Self::Refused(Refusal::BadRequest),
        }
    }

    fn of(request: &Request<'_, '_>) -> Self {
        // A web page whose host name leads to this host must not read the metrics through a browser.
        let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        if !hosts.all(|header| str::from_utf8(header.value).is_ok_and(is_loopback)) {
            return Self::Refused(Refusal::Misdirected);
        }
        let path = request.path.unwrap_or_default();
        if path.split('?').next() != Some(PAGE) {
            return Self::Refused(Refusal::NotFound);
        }
        if request.method != Some("GET") {
            return Self::Refused(Refusal::MethodNotAllowed);
        }
        Self::Scrape(Scrape {
            format: preferred_format(request.headers),
            is_chunked: request.version == Some(1),
        })
    }
}

/// Whether a Host field (RFC 9110 section 7.2) is `localhost` or a loopback address, with or without a port.
fn is_loopback(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let addr = rest.split(']').next().unwrap_or_default();
        return addr.parse::<Ipv6Addr>().is_ok_and(|addr| addr.is_loopback());
    }
    let name = host.split(':').next().unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|addr| addr.is_loopback())
}

/// Chooses the format (RFC 9110 section 12.5.1): OpenMetrics if the client names it and prefers no other.
fn preferred_format(headers: &[Header<'_>]) -> Format {
    let accept = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let ranges =
        accept.filter_map(|header| str::from_utf8(header.value).ok()).flat_map(|value| value.split(','));
    let (mut open_metrics, mut text) = (0, 0);
    for MediaRange { media_type, weight, version } in ranges.filter_map(MediaRange::parse) {
        match media_type.as_str() {
            "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                open_metrics = open_metrics.max(weight);
            }
            "text/plain" | "text/*" | "*/*" => text = text.max(weight),
            _ => {}
        }
    }
    if open_metrics > 0 && open_metrics >= text { Format::OpenMetrics } else { Format::Text }
}

/// An element of an Accept field.
struct MediaRange<'a> {
    /// In lower case.
    media_type: String,
    /// The weight `q`, in thousandths.
    weight: u16,
    version: Option<&'a str>,
}

impl<'a> MediaRange<'a> {
    /// Parses an element; `None` if its weight is not a number.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        let (mut weight, mut version) = (1_000, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" | "Q" => weight = thousandths(value.trim())?,
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        Some(Self { media_type, weight, version })
    }
}

/// A weight between 0 and 1 with at most three digits after the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 {
        return None;
    }
    let whole: u16 = whole.parse().ok()?;
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    Some(whole.checked_mul(1_000)?.checked_add(fraction)?.min(1_000))
}

/// The head of the response to a scrape.
pub(super) fn head(scrape: Scrape) -> String {
    let transfer = if scrape.is_chunked { "Transfer-Encoding: chunked\r\n" } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n{transfer}Connection: close\r\n\r\n",
        scrape.format.content_type()
    )
}

impl Refusal {
    /// The whole response.
    pub(super) fn response(self) -> String {
        let (status, more, text) = match self {
            Self::BadRequest => ("400 Bad Request", "", "a request of HTTP/1.1 was expected"),
            Self::Misdirected => {
                ("421 Misdirected Request", "", "Host: localhost or a loopback address was expected")
            }
            Self::NotFound => ("404 Not Found", "", "the metrics are at /metrics"),
            Self::MethodNotAllowed => {
                ("405 Method Not Allowed", "Allow: GET\r\n", "the method GET was expected")
            }
            Self::TooLong => {
                ("431 Request Header Fields Too Large", "", "a request of at most 8192 bytes was expected")
            }
        };
        let len = text.len().saturating_add(1);
        format!(
            "HTTP/1.1 {status}\r\n{more}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\n\
             Connection: close\r\n\r\n{text}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(accept: &str) -> String {
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n")
    }

    fn format_for(accept: &str) -> Format {
        match Received::parse(request(accept).as_bytes()) {
            Received::Scrape(scrape) => scrape.format,
            other => panic!("{other:?}"),
        }
    }

    /// The Accept fields of Prometheus 2.42, 2.50 and 3.0, of curl and of browsers.
    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        for accept in [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2",
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=\"1.0.0\"; q=1, text/plain",
        ] {
            assert_eq!(format_for(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.5",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=high",
            "",
        ] {
            assert_eq!(format_for(accept), Format::Text, "{accept}");
        }
    }

    #[test]
    fn requests_for_anything_else_are_refused() {
        let parse = |text: &str| Received::parse(text.as_bytes());
        for (text, refusal) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", Refusal::MethodNotAllowed),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Refusal::MethodNotAllowed),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::NotFound),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", Refusal::NotFound),
            ("GET /metrics HTTP/3.0\r\n\r\n", Refusal::BadRequest),
            ("\u{0}\r\n\r\n", Refusal::BadRequest),
            ("{\"do\": \"status\"}\n", Refusal::BadRequest),
        ] {
            assert_eq!(parse(text), Received::Refused(refusal), "{text}");
            assert!(refusal.response().contains("Connection: close\r\n"));
        }
        assert_eq!(parse("GET /metrics HTTP/1.1\r\nHost: x\r\n"), Received::Part);
        let old = Scrape { format: Format::Text, is_chunked: false };
        assert_eq!(parse("GET /metrics?all=1 HTTP/1.0\r\n\r\n"), Received::Scrape(old));
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_REQUEST));
        assert_eq!(parse(&long), Received::Refused(Refusal::TooLong));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(parse(&many), Received::Refused(Refusal::TooLong));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Received::parse(&bytes);
        }

        #[test]
        fn no_accept_field_panics(accept in "[ -~]{0,100}") {
            let _ = Received::parse(request(&accept).as_bytes());
        }
    }

    #[test]
    fn only_requests_to_this_host_are_served() {
        let of =
            |host: &str| Received::parse(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        for host in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "127.1.2.3", "[::1]:9464", "[::1]"] {
            assert!(matches!(of(host), Received::Scrape(_)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9464", "192.0.2.1", "[2001:db8::1]:9464", ""] {
            assert_eq!(of(host), Received::Refused(Refusal::Misdirected), "{host}");
        }
    }
}
