//! Requests, responses and errors.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// ID that the client assigns to a request. The response carries the same ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// ID of a socket. It is valid only in the session that opened the socket: it is an index into the
/// session's own socket table, combined with a generation number that changes when the index is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId(pub u32);

/// A request of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Opens a listening TCP socket. Response: [`Response::Opened`].
    Listen {
        /// Local address; `None` for any.
        local: Option<IpAddr>,
        /// Local port, not 0.
        port: u16,
        /// Maximum number of connections that wait to be accepted, at least 1.
        backlog: u16,
    },
    /// Opens a TCP connection. The server returns [`Response::Opened`] immediately. When the socket
    /// becomes writable, the connection is established or has failed.
    Connect {
        /// Address and port of the peer.
        remote: SocketAddr,
    },
    /// Opens a UDP socket. Response: [`Response::Opened`].
    Bind {
        /// Local address; `None` for any.
        local: Option<IpAddr>,
        /// Local port; 0 for any free port.
        port: u16,
    },
    /// Accepts the next connection of a listening socket. Response: [`Response::Accepted`].
    Accept {
        /// The listening socket.
        socket: SocketId,
        /// Wait until a connection is available.
        wait: bool,
    },
    /// Sends the data that follows the request over a TCP connection. The server may accept less than all
    /// data; it returns [`Error::WouldBlock`] if it accepts nothing. Response: [`Response::Sent`].
    Send {
        /// The connection.
        socket: SocketId,
    },
    /// Sends the data that follows the request as a datagram. Response: [`Response::Sent`].
    SendTo {
        /// The UDP socket.
        socket: SocketId,
        /// Destination.
        to: SocketAddr,
    },
    /// Receives data of a TCP connection, or a datagram. Response: [`Response::Received`].
    Receive {
        /// The connection or UDP socket.
        socket: SocketId,
        /// Maximum length in bytes. The rest of a longer datagram is discarded.
        max_len: u32,
        /// Wait until data is available.
        wait: bool,
    },
    /// Closes the sending direction of a TCP connection. Response: [`Response::Done`].
    ShutdownWrite {
        /// The connection.
        socket: SocketId,
    },
    /// Closes a socket. Data sent before is still delivered. Response: [`Response::Done`].
    Close {
        /// The socket.
        socket: SocketId,
    },
    /// Queries whether the socket is readable or writable. Response: [`Response::Ready`].
    Poll {
        /// The socket.
        socket: SocketId,
        /// Conditions to test; the response has those that are met.
        interest: Readiness,
        /// Wait until one of the conditions is met.
        wait: bool,
    },
    /// Cancels a waiting request. The server first answers that request, then this one with
    /// [`Response::Done`].
    Cancel {
        /// ID of the request to cancel.
        request: RequestId,
    },
}

/// Readiness of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Receiving or accepting would not block: data, a connection, or the end of the stream is available.
    pub read: bool,
    /// Sending would not block; a TCP connection is established.
    pub write: bool,
}

/// A successful response of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The request is complete.
    Done,
    /// A socket was opened.
    Opened {
        /// ID of the new socket.
        socket: SocketId,
        /// Local address and port.
        local: SocketAddr,
    },
    /// A connection was accepted.
    Accepted {
        /// ID of the new connection.
        socket: SocketId,
        /// Address and port of the peer.
        peer: SocketAddr,
    },
    /// Data was accepted for sending.
    Sent {
        /// Number of bytes accepted, from the start of the data.
        bytes: u32,
    },
    /// Data follows the response. No data on a TCP connection is the end of the stream.
    Received {
        /// Source of a datagram; `None` for TCP.
        from: Option<SocketAddr>,
    },
    /// Readiness of the socket.
    Ready(Readiness),
}

/// Reason why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The request is unknown or has an invalid field.
    Malformed,
    /// The session has no socket with this ID.
    NoSocket,
    /// The socket type does not support the request.
    WrongKind,
    /// The application may not bind the port.
    NotPermitted,
    /// The port is in use.
    PortInUse,
    /// No ephemeral port is free.
    NoFreePort,
    /// The address is not an address of the stack.
    AddressNotAvailable,
    /// The stack has no route to the destination, or no address for it.
    NoRoute,
    /// The session has reached its socket limit.
    TooManySockets,
    /// The server has no memory for another socket.
    NoMemory,
    /// The session has reached its limit of waiting requests.
    TooManyRequests,
    /// The request would have to wait, and does not ask for that.
    WouldBlock,
    /// The datagram exceeds the socket's buffer or the maximum length of UDP.
    TooLong,
    /// The peer refused the connection or did not answer.
    ConnectionRefused,
    /// The connection was reset.
    ConnectionReset,
    /// The sending direction was closed before.
    WriteShutDown,
    /// The client cancelled the request.
    Cancelled,
}

impl Error {
    /// All errors, in the order of their numbers in the protocol.
    pub(crate) const ALL: [Self; 17] = [
        Self::Malformed,
        Self::NoSocket,
        Self::WrongKind,
        Self::NotPermitted,
        Self::PortInUse,
        Self::NoFreePort,
        Self::AddressNotAvailable,
        Self::NoRoute,
        Self::TooManySockets,
        Self::NoMemory,
        Self::TooManyRequests,
        Self::WouldBlock,
        Self::TooLong,
        Self::ConnectionRefused,
        Self::ConnectionReset,
        Self::WriteShutDown,
        Self::Cancelled,
    ];
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "invalid request: the server does not know its type or one of its fields",
            Self::NoSocket => "the session has no such socket",
            Self::WrongKind => "the socket type does not support this request",
            Self::NotPermitted => {
                "the application may not use the port: ports below 1024 need `casemate stack --grant`"
            }
            Self::PortInUse => "the port is in use",
            Self::NoFreePort => "no port is free",
            Self::AddressNotAvailable => "the address is not one of the stack's",
            Self::NoRoute => "the stack has no address or no route to send there",
            Self::TooManySockets => "the application has reached its limit of sockets",
            Self::NoMemory => "the server has no memory for another socket",
            Self::TooManyRequests => "the application has reached its limit of pending calls",
            Self::WouldBlock => "it would have to wait",
            Self::TooLong => "the datagram is too long",
            Self::ConnectionRefused => "the connection was refused, or the peer did not respond",
            Self::ConnectionReset => "the connection was aborted",
            Self::WriteShutDown => "the connection is closed for sending",
            Self::Cancelled => "the call was cancelled",
        })
    }
}

impl core::error::Error for Error {}
