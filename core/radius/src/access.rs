//! Access-Request, and the responses to it (RFC 2865 section 4, RFC 3579).

use crate::attribute::{
    ACCT_INTERIM_INTERVAL, CALLED_ID, CALLING_ID, CLASS, EAP_MESSAGE, ESP_TUNNEL, FILTER_ID, FRAMED,
    FRAMED_IP_ADDRESS, FRAMED_IPV6_ADDRESS, NAS_IDENTIFIER, NAS_IP_ADDRESS, NAS_IPV6_ADDRESS, NAS_PORT_TYPE,
    SERVICE_TYPE, SESSION_TIMEOUT, STATE, TERMINATION_ACTION, TUNNEL_TYPE, USER_NAME, VIRTUAL,
};
use crate::packet::{Code, Packet};
use crate::proof::{master_session_key, verify_digest, verify_message};
use crate::writer::Writer;
use crate::{Algorithms, RadiusFault};
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// Maximum number of Class attributes that are kept.
const MAX_CLASSES: usize = 8;

/// What an Access-Request asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    /// EAP identity of the peer, at most 253 bytes.
    pub user_name: Vec<u8>,
    /// EAP packet of the peer.
    pub eap: Vec<u8>,
    /// State of the challenge that this request responds to.
    pub state: Option<Vec<u8>>,
    /// Address of this host, to which the peer has sent its packets.
    pub nas_addr: IpAddr,
    /// That address with its port, as text.
    pub called_id: String,
    /// Address and port of the peer, as text.
    pub calling_id: String,
}

/// What the server has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The peer is authenticated.
    Accept,
    /// The peer is refused.
    Reject,
    /// The server sends another EAP request.
    Challenge,
}

/// What happens at the end of Session-Timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationAction {
    /// The session ends.
    End,
    /// The peer authenticates itself again.
    Reauthenticate,
}

/// A response to an Access-Request, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessResponse {
    /// Decision.
    pub verdict: Verdict,
    /// EAP packet for the peer; empty if there is none.
    pub eap: Vec<u8>,
    /// State for the next request of the conversation.
    pub state: Option<Vec<u8>>,
    /// Class attributes, which accounting repeats.
    pub classes: Vec<Vec<u8>>,
    /// Name of a filter, if the server says that it belongs to an ESP tunnel.
    pub filter_id: Option<Vec<u8>>,
    /// Name of the user, if the server gives one (RFC 2865 section 5.1). Several different names are none.
    pub user_name: Option<Vec<u8>>,
    /// Master session key of the EAP method.
    pub msk: Option<SecretBytes>,
    /// Virtual addresses for the peer.
    pub addrs: Vec<IpAddr>,
    /// Longest time that the session lasts.
    pub session_timeout: Option<Duration>,
    /// What happens then.
    pub termination: TerminationAction,
    /// Interval of interim updates of accounting.
    pub interim_interval: Option<Duration>,
}

impl AccessRequest {
    pub(crate) fn write(&self, nas_identifier: &[u8], out: &mut Writer) {
        out.attribute(USER_NAME, &self.user_name);
        write_nas(self.nas_addr, nas_identifier, out);
        out.number(NAS_PORT_TYPE, VIRTUAL);
        out.number(SERVICE_TYPE, FRAMED);
        out.attribute(CALLED_ID, self.called_id.as_bytes());
        out.attribute(CALLING_ID, self.calling_id.as_bytes());
        if let Some(state) = &self.state {
            out.attribute(STATE, state);
        }
        out.split(EAP_MESSAGE, &self.eap);
    }
}

/// Writes what names this host.
pub(crate) fn write_nas(addr: IpAddr, identifier: &[u8], out: &mut Writer) {
    match addr {
        IpAddr::V4(addr) => out.attribute(NAS_IP_ADDRESS, &addr.octets()),
        IpAddr::V6(addr) => out.attribute(NAS_IPV6_ADDRESS, &addr.octets()),
    }
    out.attribute(NAS_IDENTIFIER, identifier);
}

impl AccessResponse {
    /// Reads a response to the request with this authenticator. Verifies both of its authenticators.
    pub(crate) fn read(
        packet: &Packet<'_>,
        authenticator: &[u8; 16],
        algorithms: &Algorithms<'_>,
        secret: &SecretBytes,
    ) -> Result<Self, RadiusFault> {
        let verdict = match packet.code {
            Code::ACCESS_ACCEPT => Verdict::Accept,
            Code::ACCESS_REJECT => Verdict::Reject,
            Code::ACCESS_CHALLENGE => Verdict::Challenge,
            _ => return Err(RadiusFault::Unexpected),
        };
        let md5 = algorithms.md5;
        if !verify_message(md5, packet, authenticator, secret)? {
            return Err(RadiusFault::NoMessageAuthenticator);
        }
        verify_digest(md5, packet, authenticator, secret)?;
        let seconds = |kind| packet.number(kind).map(|seconds| Duration::from_secs(seconds.into()));
        let reauthenticates = packet.number(TERMINATION_ACTION) == Some(1);
        Ok(Self {
            verdict,
            eap: packet.joined(EAP_MESSAGE),
            state: packet.first(STATE).map(Vec::from),
            classes: packet.all(CLASS).take(MAX_CLASSES).map(Vec::from).collect(),
            filter_id: tunnel_filter(packet).map(Vec::from),
            user_name: user_name(packet).map(Vec::from),
            msk: master_session_key(packet, authenticator, md5, secret)?,
            addrs: framed_addrs(packet),
            session_timeout: seconds(SESSION_TIMEOUT).filter(|timeout| !timeout.is_zero()),
            termination: match reauthenticates {
                true => TerminationAction::Reauthenticate,
                false => TerminationAction::End,
            },
            interim_interval: seconds(ACCT_INTERIM_INTERVAL),
        })
    }
}

/// The only name of the user. An empty one is none.
fn user_name<'p>(packet: &Packet<'p>) -> Option<&'p [u8]> {
    let mut names = packet.all(USER_NAME);
    let first = names.next().filter(|name| !name.is_empty())?;
    names.all(|other| other == first).then_some(first)
}

/// The last filter name, if the last type of a tunnel is ESP.
fn tunnel_filter<'p>(packet: &Packet<'p>) -> Option<&'p [u8]> {
    let is_esp = packet.all(TUNNEL_TYPE).last()?.split_first()?.1 == ESP_TUNNEL;
    packet.all(FILTER_ID).last().filter(|_| is_esp)
}

/// The addresses for the peer. 255.255.255.255 and 255.255.255.254 leave the choice to the peer and to this
/// host (RFC 2865 section 5.8).
fn framed_addrs(packet: &Packet<'_>) -> Vec<IpAddr> {
    let v4 = packet.number(FRAMED_IP_ADDRESS).filter(|bits| *bits < 0xFFFF_FFFE).map(Ipv4Addr::from_bits);
    let v6 = packet.first(FRAMED_IPV6_ADDRESS).and_then(|value| <[u8; 16]>::try_from(value).ok());
    let v6 = v6.map(Ipv6Addr::from);
    let is_usable = |addr: &IpAddr| !addr.is_unspecified() && !addr.is_multicast() && !addr.is_loopback();
    v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6)).filter(is_usable).collect()
}
