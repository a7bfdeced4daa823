//! Accounting-Request (RFC 2866, RFC 2869).

use crate::access::write_nas;
use crate::attribute::{
    ACCT_INPUT_GIGAWORDS, ACCT_INPUT_OCTETS, ACCT_INPUT_PACKETS, ACCT_OUTPUT_GIGAWORDS, ACCT_OUTPUT_OCTETS,
    ACCT_OUTPUT_PACKETS, ACCT_SESSION_ID, ACCT_SESSION_TIME, ACCT_STATUS_TYPE, ACCT_TERMINATE_CAUSE,
    CALLED_ID, CALLING_ID, CLASS, FRAMED_IP_ADDRESS, FRAMED_IPV6_ADDRESS, NAS_PORT_TYPE, USER_NAME, VIRTUAL,
};
use crate::writer::Writer;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// What an Accounting-Request reports (RFC 2866 section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountingStatus {
    /// The session begins.
    Start,
    /// The session goes on.
    Interim,
    /// The session has ended for this reason.
    Stop(TerminateCause),
}

/// Why a session has ended (RFC 2866 section 5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminateCause {
    /// The peer has closed it.
    UserRequest,
    /// The peer does not respond any more.
    LostCarrier,
    /// The Session-Timeout, or another lifetime, has ended.
    SessionTimeout,
    /// An administrator has closed it, or the server (RFC 5176).
    AdminReset,
    /// This host ends.
    NasReboot,
    /// An error of this host or of the peer.
    NasError,
    /// A new session replaces it.
    NasRequest,
}

impl TerminateCause {
    const fn number(self) -> u32 {
        match self {
            Self::UserRequest => 1,
            Self::LostCarrier => 2,
            Self::SessionTimeout => 5,
            Self::AdminReset => 6,
            Self::NasError => 9,
            Self::NasRequest => 10,
            Self::NasReboot => 11,
        }
    }
}

/// What a session has carried. Input is what the peer has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes from the peer.
    pub input_bytes: u64,
    /// Packets from the peer.
    pub input_packets: u64,
    /// Bytes to the peer.
    pub output_bytes: u64,
    /// Packets to the peer.
    pub output_packets: u64,
}

/// A report about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountingRequest {
    /// What is reported.
    pub status: AccountingStatus,
    /// Identifier of the session.
    pub session_id: String,
    /// Name of the user.
    pub user_name: Vec<u8>,
    /// Class attributes of the Access-Accept.
    pub classes: Vec<Vec<u8>>,
    /// Virtual addresses of the peer.
    pub addrs: Vec<IpAddr>,
    /// Address of this host.
    pub nas_addr: IpAddr,
    /// That address with its port, as text.
    pub called_id: String,
    /// Address and port of the peer, as text.
    pub calling_id: String,
    /// Time since the session began.
    pub duration: Duration,
    /// What it has carried.
    pub usage: Usage,
}

impl AccountingRequest {
    /// Bytes that the request takes while it waits.
    pub(crate) fn size(&self) -> usize {
        let parts = [
            size_of::<Self>(),
            self.session_id.len(),
            self.user_name.len(),
            self.classes
                .iter()
                .fold(0, |sum, class| sum.saturating_add(size_of_val(class)).saturating_add(class.len())),
            size_of_val(&*self.addrs),
            self.called_id.len(),
            self.calling_id.len(),
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    pub(crate) fn write(&self, nas_identifier: &[u8], out: &mut Writer) {
        let status = match self.status {
            AccountingStatus::Start => 1,
            AccountingStatus::Stop(_) => 2,
            AccountingStatus::Interim => 3,
        };
        out.number(ACCT_STATUS_TYPE, status);
        out.attribute(ACCT_SESSION_ID, self.session_id.as_bytes());
        out.attribute(USER_NAME, &self.user_name);
        write_nas(self.nas_addr, nas_identifier, out);
        out.number(NAS_PORT_TYPE, VIRTUAL);
        out.attribute(CALLED_ID, self.called_id.as_bytes());
        out.attribute(CALLING_ID, self.calling_id.as_bytes());
        self.classes.iter().for_each(|class| out.attribute(CLASS, class));
        for addr in &self.addrs {
            match addr {
                IpAddr::V4(addr) => out.attribute(FRAMED_IP_ADDRESS, &addr.octets()),
                IpAddr::V6(addr) => out.attribute(FRAMED_IPV6_ADDRESS, &addr.octets()),
            }
        }
        if self.status != AccountingStatus::Start {
            self.write_usage(out);
        }
        if let AccountingStatus::Stop(cause) = self.status {
            out.number(ACCT_TERMINATE_CAUSE, cause.number());
        }
    }

    /// Counters have 32 bits; gigawords are the upper halves (RFC 2869 section 5.1).
    fn write_usage(&self, out: &mut Writer) {
        let Usage { input_bytes, input_packets, output_bytes, output_packets } = self.usage;
        out.number(ACCT_INPUT_OCTETS, input_bytes as u32);
        out.number(ACCT_INPUT_GIGAWORDS, (input_bytes >> 32) as u32);
        out.number(ACCT_INPUT_PACKETS, input_packets as u32);
        out.number(ACCT_OUTPUT_OCTETS, output_bytes as u32);
        out.number(ACCT_OUTPUT_GIGAWORDS, (output_bytes >> 32) as u32);
        out.number(ACCT_OUTPUT_PACKETS, output_packets as u32);
        out.number(ACCT_SESSION_TIME, u32::try_from(self.duration.as_secs()).unwrap_or(u32::MAX));
    }
}
