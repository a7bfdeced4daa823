//! Calls and what answers them.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// The number that an application gives a call, and that its answer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

/// A socket of one application. It means something in that application's session only: it is an index into a table that no
/// other application shares, with a number that changes when the place is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// What an application wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A TCP socket that listens: [`Answer::Opened`].
    Listen {
        /// On this address; `None` is every one.
        local: Option<IpAddr>,
        /// Not 0.
        port: u16,
        /// Connections that may wait to be accepted, at least 1.
        backlog: u16,
    },
    /// A TCP connection: [`Answer::Opened`] at once; it is established, or has failed, when it is ready to be written.
    Connect {
        /// To where.
        remote: SocketAddr,
    },
    /// A UDP socket: [`Answer::Opened`].
    Bind {
        /// On this address; `None` is every one.
        local: Option<IpAddr>,
        /// 0 is any that is free.
        port: u16,
    },
    /// The next connection of a socket that listens: [`Answer::Accepted`].
    Accept {
        /// The socket.
        socket: Handle,
        /// Wait for one.
        patient: bool,
    },
    /// Data for a TCP connection, behind the call: [`Answer::Sent`]. It may take less, and says [`Error::NotNow`] if it takes
    /// nothing.
    Send {
        /// The socket.
        socket: Handle,
    },
    /// A datagram, behind the call: [`Answer::Sent`].
    SendTo {
        /// The socket.
        socket: Handle,
        /// To where.
        to: SocketAddr,
    },
    /// Data of a TCP connection, or a datagram: [`Answer::Received`].
    Receive {
        /// The socket.
        socket: Handle,
        /// No more bytes than these. What a datagram has more is lost.
        most: u32,
        /// Wait for some.
        patient: bool,
    },
    /// Nothing more will be sent over a TCP connection: [`Answer::Done`].
    Finish {
        /// The socket.
        socket: Handle,
    },
    /// The socket is not needed any more: [`Answer::Done`]. What was sent before is delivered still.
    Close {
        /// The socket.
        socket: Handle,
    },
    /// What the socket is ready for: [`Answer::Ready`].
    Poll {
        /// The socket.
        socket: Handle,
        /// For one of these.
        interest: Readiness,
        /// Wait until it is.
        patient: bool,
    },
    /// The call of this number need not be waited for any more: [`Answer::Done`], before which the call itself is answered.
    Cancel {
        /// The call.
        call: Tag,
    },
}

/// What a socket is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Receiving or accepting would not wait: there is something, or there never will be.
    pub read: bool,
    /// Sending would not wait; a connection is established.
    pub write: bool,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing more is to be said.
    Done,
    /// There is a socket.
    Opened {
        /// Its name.
        socket: Handle,
        /// Our end.
        local: SocketAddr,
    },
    /// Another connection.
    Accepted {
        /// Its name.
        socket: Handle,
        /// The other end.
        peer: SocketAddr,
    },
    /// So many bytes were taken.
    Sent {
        /// From the start of the data.
        bytes: u32,
    },
    /// Data, behind the answer. None of a TCP connection means that there will be no more.
    Received {
        /// Where a datagram came from.
        from: Option<SocketAddr>,
    },
    /// What the socket is ready for.
    Ready(Readiness),
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No call, or with values that it cannot have.
    Malformed,
    /// The application has no such socket.
    NoSocket,
    /// The socket is of another kind.
    WrongKind,
    /// The port is not for this application.
    NotPermitted,
    /// Somebody has the port.
    PortInUse,
    /// No port is free.
    NoPort,
    /// The address is not one of ours.
    NotOurAddress,
    /// No address of ours is fit to send there.
    NoRoute,
    /// The application has as many sockets as it may have.
    TooManySockets,
    /// The server has no memory for another socket.
    NoMemory,
    /// The application waits for as many calls as it may wait for.
    TooManyCalls,
    /// It would have to wait, and has no patience.
    NotNow,
    /// The datagram is longer than the socket takes.
    TooLong,
    /// Nobody accepted the connection.
    Refused,
    /// The connection was broken off.
    Reset,
    /// The connection can send no more: it was finished.
    Finished,
    /// The application does not want it any more.
    Cancelled,
}

impl Error {
    /// Every error, in the order of their numbers on the ring.
    pub(crate) const ALL: [Self; 17] = [
        Self::Malformed,
        Self::NoSocket,
        Self::WrongKind,
        Self::NotPermitted,
        Self::PortInUse,
        Self::NoPort,
        Self::NotOurAddress,
        Self::NoRoute,
        Self::TooManySockets,
        Self::NoMemory,
        Self::TooManyCalls,
        Self::NotNow,
        Self::TooLong,
        Self::Refused,
        Self::Reset,
        Self::Finished,
        Self::Cancelled,
    ];
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a call that the server does not understand",
            Self::NoSocket => "the application has no such socket",
            Self::WrongKind => "the socket is of another kind",
            Self::NotPermitted => {
                "the port is not for this application: a grant, or a port from 1024 on, was expected"
            }
            Self::PortInUse => "the port is in use",
            Self::NoPort => "no port is free",
            Self::NotOurAddress => "the address is not one of the stack's",
            Self::NoRoute => "the stack has no address or no route to send there",
            Self::TooManySockets => "the application has as many sockets as it may have",
            Self::NoMemory => "the server has no memory for another socket",
            Self::TooManyCalls => "the application waits for as many calls as it may",
            Self::NotNow => "it would have to wait",
            Self::TooLong => "the datagram is too long",
            Self::Refused => "the connection was refused, or nobody answered",
            Self::Reset => "the connection was broken off",
            Self::Finished => "the connection was finished and sends no more",
            Self::Cancelled => "the call was cancelled",
        })
    }
}

impl core::error::Error for Error {}
