//! Servers, and when they are asked again.

use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::net::SocketAddr;
use core::time::Duration;

/// An AAA server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Name in the configuration, for messages.
    pub name: String,
    /// Where Access-Requests go.
    pub auth: SocketAddr,
    /// Where Accounting-Requests go.
    pub acct: SocketAddr,
    /// Shared secret.
    pub secret: SecretBytes,
    /// NAS-Identifier of this host.
    pub nas_identifier: Vec<u8>,
}

/// Position of a server in the list of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerId(pub(crate) usize);

impl ServerId {
    /// A position for tests of code that asks servers.
    #[doc(hidden)]
    pub const fn for_tests(position: usize) -> Self {
        Self(position)
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Access-Request.
    Authentication,
    /// Accounting-Request.
    Accounting,
}

impl Service {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Authentication, Self::Accounting];
}

/// When a request is sent again, with the names and the meaning of strongSwan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// Number of transmissions to one server.
    pub tries: u32,
    /// Time until the second transmission.
    pub timeout: Duration,
    /// Factor by which each wait is longer than the one before, in thousandths.
    pub base_permille: u32,
}

impl Retransmission {
    /// Values of strongSwan.
    pub const DEFAULT: Self = Self { tries: 4, timeout: Duration::from_secs(2), base_permille: 1_400 };
    /// Longest wait.
    const MAX_WAIT: Duration = Duration::from_secs(60);

    /// Time to wait after this many transmissions.
    pub(crate) fn wait(&self, sent: u32) -> Duration {
        let longer = |wait: Duration, _| {
            let wait = wait.saturating_mul(self.base_permille).checked_div(1_000).unwrap_or(wait);
            wait.min(Self::MAX_WAIT)
        };
        (1..sent.min(64)).fold(self.timeout.min(Self::MAX_WAIT), longer)
    }
}

impl Server {
    /// Where the requests of a service go.
    pub const fn addr(&self, service: Service) -> SocketAddr {
        match service {
            Service::Authentication => self.auth,
            Service::Accounting => self.acct,
        }
    }
}
