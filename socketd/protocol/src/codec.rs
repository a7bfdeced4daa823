//! Encoding of requests and responses as 64-bit words.
//!
//! ```text
//!  word 0   length of the data (32 bits)   request ID (32)
//!       1   type (8)  flags (8)  port (16)   socket ID (32)
//!       2   argument (32)   address family: 0, 4 or 6 (8)   zero (24)
//!       3   address; IPv4 uses the first four bytes
//!       4   address, continued
//! ```
//!
//! All fields are little-endian. Each message has all five words. The receiver ignores fields that a type
//! does not use.

use crate::WORD;
use crate::message::{Error, Readiness, Request, RequestId, Response, SocketId};
use core::net::{IpAddr, SocketAddr};

/// Length of a message header, in words.
pub(crate) const HEADER_WORDS: usize = 5;
const HEADER_BYTES: usize = HEADER_WORDS * WORD;

const WAIT: u8 = 0x80;
const READ: u8 = 1;
const WRITE: u8 = 2;

// Request types.
const LISTEN: u8 = 1;
const CONNECT: u8 = 2;
const BIND: u8 = 3;
const ACCEPT: u8 = 4;
const SEND: u8 = 5;
const SEND_TO: u8 = 6;
const RECEIVE: u8 = 7;
const SHUTDOWN_WRITE: u8 = 8;
const CLOSE: u8 = 9;
const POLL: u8 = 10;
const CANCEL: u8 = 11;

// Response types.
const DONE: u8 = 65;
const OPENED: u8 = 66;
const ACCEPTED: u8 = 67;
const SENT: u8 = 68;
const RECEIVED: u8 = 69;
const READY: u8 = 70;
/// An error response. The argument is the index into [`Error::ALL`].
const FAILED: u8 = 71;

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MessageHeader {
    pub(crate) len: u32,
    id: u32,
    kind: u8,
    flags: u8,
    port: u16,
    socket: u32,
    argument: u32,
    addr: Option<IpAddr>,
}

impl MessageHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (family, addr) = match self.addr {
            None => (0, [0; 16]),
            Some(IpAddr::V4(addr)) => {
                let [a, b, c, d] = addr.octets();
                (4, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            Some(IpAddr::V6(addr)) => (6, addr.octets()),
        };
        let fields = [
            &self.len.to_le_bytes()[..],
            &self.id.to_le_bytes(),
            &[self.kind, self.flags],
            &self.port.to_le_bytes(),
            &self.socket.to_le_bytes(),
            &self.argument.to_le_bytes(),
            &[family, 0, 0, 0],
            &addr,
        ];
        let mut bytes = [0; HEADER_BYTES];
        bytes.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [l0, l1, l2, l3, t0, t1, t2, t3, kind, flags, p0, p1, s0, s1, s2, s3, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, family, _, _, _, addr @ ..] = rest;
        let [a, b, c, d, ..] = addr;
        let addr: [u8; 16] = addr;
        Self {
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            id: u32::from_le_bytes([t0, t1, t2, t3]),
            kind,
            flags,
            port: u16::from_le_bytes([p0, p1]),
            socket: u32::from_le_bytes([s0, s1, s2, s3]),
            argument: u32::from_le_bytes([n0, n1, n2, n3]),
            addr: match family {
                4 => Some([a, b, c, d].into()),
                6 => Some(addr.into()),
                _ => None,
            },
        }
    }

    /// Returns the header with the data length set to `len`.
    pub(crate) const fn with_data(self, len: u32) -> Self {
        Self { len, ..self }
    }

    pub(crate) const fn id(self) -> RequestId {
        RequestId(self.id)
    }

    const fn new(id: RequestId, kind: u8) -> Self {
        Self { len: 0, id: id.0, kind, flags: 0, port: 0, socket: 0, argument: 0, addr: None }
    }

    const fn with_socket(self, socket: SocketId) -> Self {
        Self { socket: socket.0, ..self }
    }

    const fn with_addr(self, addr: SocketAddr) -> Self {
        Self { addr: Some(addr.ip()), port: addr.port(), ..self }
    }

    const fn with_flag(self, flag: u8, set: bool) -> Self {
        if set { Self { flags: self.flags | flag, ..self } } else { self }
    }

    const fn with_readiness(self, readiness: Readiness) -> Self {
        self.with_flag(READ, readiness.read).with_flag(WRITE, readiness.write)
    }

    fn address(self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addr?, self.port))
    }

    const fn readiness(self) -> Readiness {
        Readiness { read: self.flags & READ != 0, write: self.flags & WRITE != 0 }
    }

    pub(crate) fn from_request(id: RequestId, request: &Request) -> Self {
        match *request {
            Request::Listen { local, port, backlog } => {
                Self { addr: local, port, argument: backlog.into(), ..Self::new(id, LISTEN) }
            }
            Request::Connect { remote } => Self::new(id, CONNECT).with_addr(remote),
            Request::Bind { local, port } => Self { addr: local, port, ..Self::new(id, BIND) },
            Request::Accept { socket, wait } => {
                Self::new(id, ACCEPT).with_socket(socket).with_flag(WAIT, wait)
            }
            Request::Send { socket } => Self::new(id, SEND).with_socket(socket),
            Request::SendTo { socket, to } => Self::new(id, SEND_TO).with_socket(socket).with_addr(to),
            Request::Receive { socket, max_len, wait } => {
                Self { argument: max_len, ..Self::new(id, RECEIVE) }.with_socket(socket).with_flag(WAIT, wait)
            }
            Request::ShutdownWrite { socket } => Self::new(id, SHUTDOWN_WRITE).with_socket(socket),
            Request::Close { socket } => Self::new(id, CLOSE).with_socket(socket),
            Request::Poll { socket, interest, wait } => {
                Self::new(id, POLL).with_socket(socket).with_readiness(interest).with_flag(WAIT, wait)
            }
            Request::Cancel { request } => Self { argument: request.0, ..Self::new(id, CANCEL) },
        }
    }

    pub(crate) fn to_request(self) -> Result<Request, Error> {
        let (socket, wait) = (SocketId(self.socket), self.flags & WAIT != 0);
        let address = self.address().ok_or(Error::Malformed);
        Ok(match self.kind {
            LISTEN => {
                let backlog = u16::try_from(self.argument).map_err(|_| Error::Malformed)?;
                if self.port == 0 || backlog == 0 {
                    return Err(Error::Malformed);
                }
                Request::Listen { local: self.addr, port: self.port, backlog }
            }
            CONNECT => Request::Connect { remote: address? },
            BIND => Request::Bind { local: self.addr, port: self.port },
            ACCEPT => Request::Accept { socket, wait },
            SEND => Request::Send { socket },
            SEND_TO => Request::SendTo { socket, to: address? },
            RECEIVE => Request::Receive { socket, max_len: self.argument, wait },
            SHUTDOWN_WRITE => Request::ShutdownWrite { socket },
            CLOSE => Request::Close { socket },
            POLL => Request::Poll { socket, interest: self.readiness(), wait },
            CANCEL => Request::Cancel { request: RequestId(self.argument) },
            _ => return Err(Error::Malformed),
        })
    }

    pub(crate) fn from_response(id: RequestId, response: Result<Response, Error>) -> Self {
        match response {
            Ok(Response::Done) => Self::new(id, DONE),
            Ok(Response::Opened { socket, local }) => {
                Self::new(id, OPENED).with_socket(socket).with_addr(local)
            }
            Ok(Response::Accepted { socket, peer }) => {
                Self::new(id, ACCEPTED).with_socket(socket).with_addr(peer)
            }
            Ok(Response::Sent { bytes }) => Self { argument: bytes, ..Self::new(id, SENT) },
            Ok(Response::Received { from: None }) => Self::new(id, RECEIVED),
            Ok(Response::Received { from: Some(from) }) => Self::new(id, RECEIVED).with_addr(from),
            Ok(Response::Ready(readiness)) => Self::new(id, READY).with_readiness(readiness),
            Err(error) => {
                let argument = Error::ALL.iter().position(|known| *known == error).unwrap_or(0);
                Self { argument: argument as u32, ..Self::new(id, FAILED) }
            }
        }
    }

    /// Decodes a response. A response that cannot be decoded is [`Error::Malformed`].
    pub(crate) fn to_response(self) -> Result<Response, Error> {
        let socket = SocketId(self.socket);
        let address = self.address().ok_or(Error::Malformed);
        Ok(match self.kind {
            DONE => Response::Done,
            OPENED => Response::Opened { socket, local: address? },
            ACCEPTED => Response::Accepted { socket, peer: address? },
            SENT => Response::Sent { bytes: self.argument },
            RECEIVED => Response::Received { from: self.address() },
            READY => Response::Ready(self.readiness()),
            FAILED => {
                let index = usize::try_from(self.argument).map_err(|_| Error::Malformed)?;
                return Err(*Error::ALL.get(index).ok_or(Error::Malformed)?);
            }
            _ => return Err(Error::Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn socket_addr() -> impl Strategy<Value = SocketAddr> {
        any::<SocketAddr>().prop_map(|addr| SocketAddr::new(addr.ip(), addr.port()))
    }

    fn request() -> impl Strategy<Value = Request> {
        let handle = any::<u32>().prop_map(SocketId);
        let readiness = (any::<bool>(), any::<bool>()).prop_map(|(read, write)| Readiness { read, write });
        prop_oneof![
            (any::<Option<IpAddr>>(), 1u16.., 1u16..).prop_map(|(local, port, backlog)| Request::Listen {
                local,
                port,
                backlog
            }),
            socket_addr().prop_map(|remote| Request::Connect { remote }),
            (any::<Option<IpAddr>>(), any::<u16>()).prop_map(|(local, port)| Request::Bind { local, port }),
            (handle.clone(), any::<bool>()).prop_map(|(socket, wait)| Request::Accept { socket, wait }),
            handle.clone().prop_map(|socket| Request::Send { socket }),
            (handle.clone(), socket_addr()).prop_map(|(socket, to)| Request::SendTo { socket, to }),
            (handle.clone(), any::<u32>(), any::<bool>())
                .prop_map(|(socket, max_len, wait)| Request::Receive { socket, max_len, wait }),
            handle.clone().prop_map(|socket| Request::ShutdownWrite { socket }),
            handle.clone().prop_map(|socket| Request::Close { socket }),
            (handle, readiness, any::<bool>()).prop_map(|(socket, interest, wait)| Request::Poll {
                socket,
                interest,
                wait
            }),
            any::<u32>().prop_map(|request| Request::Cancel { request: RequestId(request) }),
        ]
    }

    fn response() -> impl Strategy<Value = Result<Response, Error>> {
        let handle = any::<u32>().prop_map(SocketId);
        prop_oneof![
            Just(Ok(Response::Done)),
            (handle.clone(), socket_addr())
                .prop_map(|(socket, local)| Ok(Response::Opened { socket, local })),
            (handle, socket_addr()).prop_map(|(socket, peer)| Ok(Response::Accepted { socket, peer })),
            any::<u32>().prop_map(|bytes| Ok(Response::Sent { bytes })),
            proptest::option::of(socket_addr()).prop_map(|from| Ok(Response::Received { from })),
            (any::<bool>(), any::<bool>())
                .prop_map(|(read, write)| Ok(Response::Ready(Readiness { read, write }))),
            (0..Error::ALL.len()).prop_map(|at| Err(Error::ALL[at])),
        ]
    }

    /// Removes flow label and scope ID of an IPv6 address: the header does not carry them.
    fn plain(addr: SocketAddr) -> SocketAddr {
        SocketAddr::new(addr.ip(), addr.port())
    }

    proptest! {
        #[test]
        fn requests_survive_encoding(id: u32, request in request()) {
            let bytes = MessageHeader::from_request(RequestId(id), &request).to_bytes();
            let header = MessageHeader::from_bytes(&bytes);
            prop_assert_eq!((header.id(), header.to_request()), (RequestId(id), Ok(request)));
        }

        #[test]
        fn responses_survive_encoding(id: u32, response in response()) {
            let bytes = MessageHeader::from_response(RequestId(id), response).to_bytes();
            let header = MessageHeader::from_bytes(&bytes);
            prop_assert_eq!((header.id(), header.to_response()), (RequestId(id), response));
        }

        #[test]
        fn arbitrary_bytes_are_decoded_without_a_panic(bytes: [u8; HEADER_BYTES]) {
            let header = MessageHeader::from_bytes(&bytes);
            if let Ok(request) = header.to_request() {
                prop_assert_eq!(MessageHeader::from_request(header.id(), &request).to_request(), Ok(request));
            }
            if let Some(addr) = header.address() {
                prop_assert_eq!(addr, plain(addr));
            }
            let _ = header.to_response();
        }
    }

    #[test]
    fn impossible_values_are_malformed() {
        let listen = |port, backlog| {
            let request = Request::Listen { local: None, port, backlog };
            MessageHeader::from_request(RequestId(1), &request).to_request()
        };
        assert_eq!((listen(0, 1), listen(1, 0)), (Err(Error::Malformed), Err(Error::Malformed)));
        for kind in [0, 12, 64, DONE, FAILED, 255] {
            assert_eq!(MessageHeader::new(RequestId(1), kind).to_request(), Err(Error::Malformed));
        }
        assert_eq!(MessageHeader::new(RequestId(1), CONNECT).to_request(), Err(Error::Malformed));
        let failed = MessageHeader { argument: 17, ..MessageHeader::new(RequestId(1), FAILED) };
        assert_eq!(failed.to_response(), Err(Error::Malformed));
    }
}
