//! Messages as words.
//!
//! ```text
//!  word 0   length of the data (32 bits)   tag (32)
//!       1   kind (8)  flags (8)  port (16)   socket (32)
//!       2   number (32)   family of the address: 0, 4 or 6 (8)   zeros (24)
//!       3   address; IPv4 has the first four bytes
//!       4   its end
//! ```
//!
//! Little-endian. Every message has all five words; what a kind does not use is not looked at.

use crate::WORD;
use crate::message::{Answer, Call, Error, Handle, Readiness, Tag};
use core::net::{IpAddr, SocketAddr};

/// Words in front of the data.
pub(crate) const HEAD_WORDS: usize = 5;
const HEAD_BYTES: usize = HEAD_WORDS * WORD;

const PATIENT: u8 = 0x80;
const READ: u8 = 1;
const WRITE: u8 = 2;

/// Kinds of calls.
const LISTEN: u8 = 1;
const CONNECT: u8 = 2;
const BIND: u8 = 3;
const ACCEPT: u8 = 4;
const SEND: u8 = 5;
const SEND_TO: u8 = 6;
const RECEIVE: u8 = 7;
const FINISH: u8 = 8;
const CLOSE: u8 = 9;
const POLL: u8 = 10;
const CANCEL: u8 = 11;

/// Kinds of answers.
const DONE: u8 = 65;
const OPENED: u8 = 66;
const ACCEPTED: u8 = 67;
const SENT: u8 = 68;
const RECEIVED: u8 = 69;
const READY: u8 = 70;
/// With the number of the error.
const FAILED: u8 = 71;

/// The fixed part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) len: u32,
    tag: u32,
    kind: u8,
    flags: u8,
    port: u16,
    socket: u32,
    number: u32,
    addr: Option<IpAddr>,
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
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
            &self.tag.to_le_bytes(),
            &[self.kind, self.flags],
            &self.port.to_le_bytes(),
            &self.socket.to_le_bytes(),
            &self.number.to_le_bytes(),
            &[family, 0, 0, 0],
            &addr,
        ];
        let mut bytes = [0; HEAD_BYTES];
        bytes.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [l0, l1, l2, l3, t0, t1, t2, t3, kind, flags, p0, p1, s0, s1, s2, s3, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, family, _, _, _, addr @ ..] = rest;
        let [a, b, c, d, ..] = addr;
        let addr: [u8; 16] = addr;
        Self {
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            tag: u32::from_le_bytes([t0, t1, t2, t3]),
            kind,
            flags,
            port: u16::from_le_bytes([p0, p1]),
            socket: u32::from_le_bytes([s0, s1, s2, s3]),
            number: u32::from_le_bytes([n0, n1, n2, n3]),
            addr: match family {
                4 => Some([a, b, c, d].into()),
                6 => Some(addr.into()),
                _ => None,
            },
        }
    }

    /// The same with so many bytes of data behind it.
    pub(crate) const fn with_data(self, len: u32) -> Self {
        Self { len, ..self }
    }

    pub(crate) const fn tag(self) -> Tag {
        Tag(self.tag)
    }

    const fn of(tag: Tag, kind: u8) -> Self {
        Self { len: 0, tag: tag.0, kind, flags: 0, port: 0, socket: 0, number: 0, addr: None }
    }

    const fn on(self, socket: Handle) -> Self {
        Self { socket: socket.0, ..self }
    }

    const fn at(self, addr: SocketAddr) -> Self {
        Self { addr: Some(addr.ip()), port: addr.port(), ..self }
    }

    const fn flagged(self, flag: u8, set: bool) -> Self {
        if set { Self { flags: self.flags | flag, ..self } } else { self }
    }

    const fn ready(self, readiness: Readiness) -> Self {
        self.flagged(READ, readiness.read).flagged(WRITE, readiness.write)
    }

    fn address(self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addr?, self.port))
    }

    const fn readiness(self) -> Readiness {
        Readiness { read: self.flags & READ != 0, write: self.flags & WRITE != 0 }
    }

    pub(crate) fn from_call(tag: Tag, call: &Call) -> Self {
        match *call {
            Call::Listen { local, port, backlog } => {
                Self { addr: local, port, number: backlog.into(), ..Self::of(tag, LISTEN) }
            }
            Call::Connect { remote } => Self::of(tag, CONNECT).at(remote),
            Call::Bind { local, port } => Self { addr: local, port, ..Self::of(tag, BIND) },
            Call::Accept { socket, patient } => Self::of(tag, ACCEPT).on(socket).flagged(PATIENT, patient),
            Call::Send { socket } => Self::of(tag, SEND).on(socket),
            Call::SendTo { socket, to } => Self::of(tag, SEND_TO).on(socket).at(to),
            Call::Receive { socket, most, patient } => {
                Self { number: most, ..Self::of(tag, RECEIVE) }.on(socket).flagged(PATIENT, patient)
            }
            Call::Finish { socket } => Self::of(tag, FINISH).on(socket),
            Call::Close { socket } => Self::of(tag, CLOSE).on(socket),
            Call::Poll { socket, interest, patient } => {
                Self::of(tag, POLL).on(socket).ready(interest).flagged(PATIENT, patient)
            }
            Call::Cancel { call } => Self { number: call.0, ..Self::of(tag, CANCEL) },
        }
    }

    pub(crate) fn to_call(self) -> Result<Call, Error> {
        let (socket, patient) = (Handle(self.socket), self.flags & PATIENT != 0);
        let address = self.address().ok_or(Error::Malformed);
        Ok(match self.kind {
            LISTEN => {
                let backlog = u16::try_from(self.number).map_err(|_| Error::Malformed)?;
                if self.port == 0 || backlog == 0 {
                    return Err(Error::Malformed);
                }
                Call::Listen { local: self.addr, port: self.port, backlog }
            }
            CONNECT => Call::Connect { remote: address? },
            BIND => Call::Bind { local: self.addr, port: self.port },
            ACCEPT => Call::Accept { socket, patient },
            SEND => Call::Send { socket },
            SEND_TO => Call::SendTo { socket, to: address? },
            RECEIVE => Call::Receive { socket, most: self.number, patient },
            FINISH => Call::Finish { socket },
            CLOSE => Call::Close { socket },
            POLL => Call::Poll { socket, interest: self.readiness(), patient },
            CANCEL => Call::Cancel { call: Tag(self.number) },
            _ => return Err(Error::Malformed),
        })
    }

    pub(crate) fn from_answer(tag: Tag, answer: Result<Answer, Error>) -> Self {
        match answer {
            Ok(Answer::Done) => Self::of(tag, DONE),
            Ok(Answer::Opened { socket, local }) => Self::of(tag, OPENED).on(socket).at(local),
            Ok(Answer::Accepted { socket, peer }) => Self::of(tag, ACCEPTED).on(socket).at(peer),
            Ok(Answer::Sent { bytes }) => Self { number: bytes, ..Self::of(tag, SENT) },
            Ok(Answer::Received { from: None }) => Self::of(tag, RECEIVED),
            Ok(Answer::Received { from: Some(from) }) => Self::of(tag, RECEIVED).at(from),
            Ok(Answer::Ready(readiness)) => Self::of(tag, READY).ready(readiness),
            Err(error) => {
                let number = Error::ALL.iter().position(|known| *known == error).unwrap_or(0);
                Self { number: number as u32, ..Self::of(tag, FAILED) }
            }
        }
    }

    /// What it says; an answer that makes no sense is [`Error::Malformed`].
    pub(crate) fn to_answer(self) -> Result<Answer, Error> {
        let socket = Handle(self.socket);
        let address = self.address().ok_or(Error::Malformed);
        Ok(match self.kind {
            DONE => Answer::Done,
            OPENED => Answer::Opened { socket, local: address? },
            ACCEPTED => Answer::Accepted { socket, peer: address? },
            SENT => Answer::Sent { bytes: self.number },
            RECEIVED => Answer::Received { from: self.address() },
            READY => Answer::Ready(self.readiness()),
            FAILED => {
                let index = usize::try_from(self.number).map_err(|_| Error::Malformed)?;
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

    fn call() -> impl Strategy<Value = Call> {
        let handle = any::<u32>().prop_map(Handle);
        let readiness = (any::<bool>(), any::<bool>()).prop_map(|(read, write)| Readiness { read, write });
        prop_oneof![
            (any::<Option<IpAddr>>(), 1u16.., 1u16..).prop_map(|(local, port, backlog)| Call::Listen {
                local,
                port,
                backlog
            }),
            socket_addr().prop_map(|remote| Call::Connect { remote }),
            (any::<Option<IpAddr>>(), any::<u16>()).prop_map(|(local, port)| Call::Bind { local, port }),
            (handle.clone(), any::<bool>()).prop_map(|(socket, patient)| Call::Accept { socket, patient }),
            handle.clone().prop_map(|socket| Call::Send { socket }),
            (handle.clone(), socket_addr()).prop_map(|(socket, to)| Call::SendTo { socket, to }),
            (handle.clone(), any::<u32>(), any::<bool>()).prop_map(|(socket, most, patient)| Call::Receive {
                socket,
                most,
                patient
            }),
            handle.clone().prop_map(|socket| Call::Finish { socket }),
            handle.clone().prop_map(|socket| Call::Close { socket }),
            (handle, readiness, any::<bool>()).prop_map(|(socket, interest, patient)| Call::Poll {
                socket,
                interest,
                patient
            }),
            any::<u32>().prop_map(|call| Call::Cancel { call: Tag(call) }),
        ]
    }

    fn answer() -> impl Strategy<Value = Result<Answer, Error>> {
        let handle = any::<u32>().prop_map(Handle);
        prop_oneof![
            Just(Ok(Answer::Done)),
            (handle.clone(), socket_addr()).prop_map(|(socket, local)| Ok(Answer::Opened { socket, local })),
            (handle, socket_addr()).prop_map(|(socket, peer)| Ok(Answer::Accepted { socket, peer })),
            any::<u32>().prop_map(|bytes| Ok(Answer::Sent { bytes })),
            proptest::option::of(socket_addr()).prop_map(|from| Ok(Answer::Received { from })),
            (any::<bool>(), any::<bool>())
                .prop_map(|(read, write)| Ok(Answer::Ready(Readiness { read, write }))),
            (0..Error::ALL.len()).prop_map(|at| Err(Error::ALL[at])),
        ]
    }

    /// IPv6 addresses of sockets have flow labels and scopes, which do not travel.
    fn plain(addr: SocketAddr) -> SocketAddr {
        SocketAddr::new(addr.ip(), addr.port())
    }

    proptest! {
        #[test]
        fn calls_are_read_as_they_were_written(tag: u32, call in call()) {
            let head = Head::from_bytes(&Head::from_call(Tag(tag), &call).to_bytes());
            prop_assert_eq!((head.tag(), head.to_call()), (Tag(tag), Ok(call)));
        }

        #[test]
        fn answers_are_read_as_they_were_written(tag: u32, answer in answer()) {
            let head = Head::from_bytes(&Head::from_answer(Tag(tag), answer).to_bytes());
            prop_assert_eq!((head.tag(), head.to_answer()), (Tag(tag), answer));
        }

        #[test]
        fn any_bytes_are_a_head(bytes: [u8; HEAD_BYTES]) {
            let head = Head::from_bytes(&bytes);
            if let Ok(call) = head.to_call() {
                prop_assert_eq!(Head::from_call(head.tag(), &call).to_call(), Ok(call));
            }
            if let Some(addr) = head.address() {
                prop_assert_eq!(addr, plain(addr));
            }
            let _ = head.to_answer();
        }
    }

    #[test]
    fn values_that_cannot_be_are_malformed() {
        let listen = |port, backlog| {
            let call = Call::Listen { local: None, port, backlog };
            Head::from_call(Tag(1), &call).to_call()
        };
        assert_eq!((listen(0, 1), listen(1, 0)), (Err(Error::Malformed), Err(Error::Malformed)));
        for kind in [0, 12, 64, DONE, FAILED, 255] {
            assert_eq!(Head::of(Tag(1), kind).to_call(), Err(Error::Malformed));
        }
        assert_eq!(Head::of(Tag(1), CONNECT).to_call(), Err(Error::Malformed));
        let failed = Head { number: 17, ..Head::of(Tag(1), FAILED) };
        assert_eq!(failed.to_answer(), Err(Error::Malformed));
    }
}
