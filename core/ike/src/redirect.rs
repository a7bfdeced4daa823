//! Redirection of an initiator to another gateway (RFC 5685).
//!
//! The redirected host uses the same connection: the new gateway must prove the identity that the connection
//! expects of the first one (section 3). A redirect in IKE_SA_INIT is not authenticated, so an attacker on
//! the path can send the initiator to a host that cannot authenticate itself; it could as well drop the
//! messages. The addresses of a gateway that is named by an FQDN are looked up.

mod look_up;

pub(crate) use look_up::Waiting;

use crate::child_sa::ChildRequest;
use crate::config::{Connection, Gateway, HostName};
use crate::context::Step;
use crate::engine::effects::Effect;
use crate::state::{Established, IkeSa, InitSent, SaCommon, State};
use crate::transport::Content;
use crate::{Event, Path, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, WriteError, Writer};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// Maximum number of redirects within [`LOOP_PERIOD`] (section 7).
const MAX_REDIRECTS: usize = 5;
/// REDIRECT_LOOP_DETECT_PERIOD of section 7.
const LOOP_PERIOD: Duration = Duration::from_secs(300);
/// Time that a redirected peer has to set up its SAs with the other gateway and to close this IKE SA (section
/// 5).
const REDIRECTED_LIFETIME: Duration = Duration::from_secs(180);

/// Types of gateway identities (section 9.2).
const IPV4: u8 = 1;
const IPV6: u8 = 2;
const FQDN: u8 = 3;

/// Writes a redirect without a nonce, in a protected message.
pub(crate) fn write_protected(gateway: &Gateway, out: &mut Writer<'_>) -> Result<(), WriteError> {
    out.notify(&Notify::new(NotifyType::REDIRECT, &gateway_data(gateway)))
}

/// What an IKE SA has to do with redirects. A successor by rekeying inherits it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RedirectState {
    /// Whether this host, as the initiator, has announced that it follows redirects.
    follows: bool,
    /// Whether the peer, as the initiator, has announced that.
    peer_follows: bool,
    /// The gateway that redirected this host last.
    from: Option<IpAddr>,
    /// Times of the redirects that led here, and of those of this IKE SA.
    times: Vec<Instant>,
}

impl RedirectState {
    /// State of an IKE SA that this host starts.
    pub(crate) const fn of_initiator(follows: bool) -> Self {
        Self { follows, peer_follows: false, from: None, times: Vec::new() }
    }

    /// State of an IKE SA that the peer starts with this IKE_SA_INIT request.
    pub(crate) fn of_request(content: &Content<'_>) -> Self {
        let peer_follows = content.has_notify(NotifyType::REDIRECT_SUPPORTED)
            || content.has_notify(NotifyType::REDIRECTED_FROM);
        Self { peer_follows, ..Self::default() }
    }

    /// Writes the notification of an IKE_SA_INIT request.
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self.from {
            Some(from) => out.notify(&Notify::new(NotifyType::REDIRECTED_FROM, &addr_data(from))),
            None if self.follows => out.notify(&Notify::new(NotifyType::REDIRECT_SUPPORTED, &[])),
            None => Ok(()),
        }
    }

    /// The gateway to which the peer of a new IKE SA is redirected.
    pub(crate) fn gateway_for_peer(common: &SaCommon) -> Option<&Gateway> {
        common.connection.redirect_to.as_ref().filter(|_| common.redirect.peer_follows)
    }

    /// State after another redirect; `None` if there were too many.
    fn after(&self, from: IpAddr, now: Instant) -> Option<Self> {
        let recent = |at: &&Instant| now.since(**at) < LOOP_PERIOD;
        let mut times: Vec<Instant> = self.times.iter().filter(recent).copied().collect();
        if times.len() >= MAX_REDIRECTS {
            return None;
        }
        times.push(now);
        Some(Self { from: Some(from), times, ..self.clone() })
    }
}

/// Data that identify a gateway (section 9.2), without a nonce.
fn gateway_data(gateway: &Gateway) -> Vec<u8> {
    match gateway {
        Gateway::Addr(addr) => addr_data(*addr),
        Gateway::Name(name) => {
            let name = name.as_str().as_bytes();
            // A name has at most 254 bytes.
            [&[FQDN, u8::try_from(name.len()).unwrap_or(u8::MAX)][..], name].concat()
        }
    }
}

fn addr_data(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => [&[IPV4, 4][..], &addr.octets()].concat(),
        IpAddr::V6(addr) => [&[IPV6, 16][..], &addr.octets()].concat(),
    }
}

/// Parses the gateway and the nonce of a REDIRECT notification. `None` if it is malformed.
fn parse(data: &[u8]) -> Option<(Gateway, &[u8])> {
    let ([kind, len], rest) = data.split_first_chunk()?;
    let (gateway, nonce) = rest.split_at_checked(usize::from(*len))?;
    let gateway = match *kind {
        IPV4 => Gateway::Addr(IpAddr::from(*<&[u8; 4]>::try_from(gateway).ok()?)),
        IPV6 => Gateway::Addr(IpAddr::from(*<&[u8; 16]>::try_from(gateway).ok()?)),
        FQDN => Gateway::Name(HostName::new(core::str::from_utf8(gateway).ok()?)?),
        _ => return None,
    };
    Some((gateway, nonce))
}

/// A redirect that this host follows.
#[derive(Debug)]
pub(crate) struct Redirect {
    gateway: Gateway,
    state: RedirectState,
}

impl Redirect {
    /// Whether a response to IKE_SA_INIT is a redirect. It then contains nothing else.
    pub(crate) fn is_init_response(content: &Content<'_>) -> bool {
        content.has_notify(NotifyType::REDIRECT) && content.sa.is_none()
    }

    /// Reads the redirect in the response to the IKE_SA_INIT request with this nonce. Without the nonce it
    /// does not come from a host that has seen the request (section 3).
    pub(crate) fn in_init_response(
        content: &Content<'_>,
        nonce: &[u8],
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Option<Self> {
        let (gateway, shown) = parse(content.notify(NotifyType::REDIRECT)?.data)?;
        if shown == nonce { Self::follow(common, gateway, step) } else { None }
    }

    /// Reads the redirect in a protected message of an authenticated gateway.
    pub(crate) fn in_protected(
        content: &Content<'_>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Option<Self> {
        let (gateway, nonce) = parse(content.notify(NotifyType::REDIRECT)?.data)?;
        if nonce.is_empty() { Self::follow(common, gateway, step) } else { None }
    }

    /// The redirect, if this host follows redirects and may reach the gateway, as far as that is known. It
    /// counts for this IKE SA as well, which the gateway may redirect again.
    fn follow(common: &mut SaCommon, gateway: Gateway, step: &mut Step<'_, '_>) -> Option<Self> {
        let may_be_reached = match &gateway {
            Gateway::Addr(addr) => way_to(*addr, common, step).is_some(),
            Gateway::Name(_) => true,
        };
        if !common.redirect.follows || !may_be_reached {
            return None;
        }
        let from = common.path.remote.ip();
        let state = common.redirect.after(from, step.context.now)?;
        common.redirect.times.clone_from(&state.times);
        step.event(Event::Redirected {
            ike: common.id,
            connection: common.connection.clone(),
            from,
            to: gateway.clone(),
        });
        Some(Self { gateway, state })
    }
}

/// The way to a gateway, if it may be another one and this host has a source address for it.
fn way_to(gateway: IpAddr, common: &SaCommon, step: &Step<'_, '_>) -> Option<Path> {
    let Path { local, remote } = common.path;
    let is_host = !gateway.is_unspecified() && !gateway.is_multicast() && !gateway.is_loopback();
    if !is_host || gateway == remote.ip() || gateway == local.ip() {
        return None;
    }
    let (connection, routes) = (&common.connection, step.context.routes);
    let is_ours = |addr: &IpAddr| connection.local_addrs.iter().any(|one| one.matches(*addr, routes));
    let present = Some(local.ip()).filter(|addr| addr.is_ipv4() == gateway.is_ipv4());
    let source = routes.source_for(gateway).filter(is_ours).or(present)?;
    Some(Path {
        local: SocketAddr::new(source, connection.local_port),
        remote: SocketAddr::new(gateway, connection.remote_port),
    })
}

impl InitSent {
    /// Starts an IKE SA with another gateway, to which an established one on this path is redirected.
    pub(crate) fn begin_redirected(
        (connection, path): (Arc<Connection>, Path),
        redirect: Redirect,
        child_requests: Vec<ChildRequest>,
        step: &mut Step<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        let mut common = SaCommon::of_initiator(connection, path, step);
        let state = Self::redirected(&mut common, redirect, child_requests, 0, step)?;
        Ok(IkeSa { common, state: State::InitSent(Box::new(state)) })
    }

    /// Follows a redirect, or waits for another response (RFC 5685 section 3).
    pub(crate) fn on_redirect(
        self: Box<Self>,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> State {
        let Some(redirect) = Redirect::in_init_response(content, &self.nonce, common, step) else {
            return State::InitSent(self);
        };
        Self::restart_redirected(common, redirect, self.child_requests, self.sequences, step)
    }
}

impl Established {
    /// Follows a redirect of the gateway in the middle of a session. The old IKE SA is closed once the new
    /// one is established.
    pub(crate) fn on_redirect(&self, common: &mut SaCommon, content: &Content<'_>, step: &mut Step<'_, '_>) {
        if let Some(redirect) = Redirect::in_protected(content, common, step) {
            step.effect(Effect::Redirect(common.id, Box::new(redirect)));
        }
    }

    /// Gives a redirected peer the time to set up its SAs with the other gateway.
    pub(crate) fn expire_redirected(&mut self, now: Instant) {
        let latest = now.after(REDIRECTED_LIFETIME);
        self.expire_by(latest);
    }

    /// Redirects the peer.
    pub(crate) fn request_redirect(
        &mut self,
        common: &SaCommon,
        gateway: &Gateway,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let exchange = ExchangeType::INFORMATIONAL;
        let sent = self.channel.send_request(common, exchange, step, &|out| write_protected(gateway, out));
        sent.map_err(|_| StateFault::Provider)?;
        // Not with the response: the peer may rekey the IKE SA before it responds.
        self.expire_redirected(step.context.now);
        Ok(())
    }
}

impl IkeSa {
    /// Whether the peer follows a redirect.
    pub(crate) fn can_be_redirected(&self) -> bool {
        self.is_current() && self.common.redirect.peer_follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_and_nonces() {
        let nonce = [7; 32];
        for gateway in ["192.0.2.1", "2001:db8::1", "gw.example.org"] {
            let gateway = Gateway::parse(gateway).unwrap();
            let data = gateway_data(&gateway);
            assert_eq!(parse(&data), Some((gateway.clone(), &[][..])));
            assert_eq!(parse(&[&*data, &nonce].concat()), Some((gateway, &nonce[..])));
            for cut in 0..data.len() {
                assert_eq!(parse(&data[..cut]), None);
            }
        }
        // Names that are none, an unknown type, and an address of the wrong length.
        for wrong in [
            &[3, 3, b'a', b' ', b'b'][..],
            &[3, 2, b'a', 0],
            &[3, 1, 0xff],
            &[3, 0],
            &[0, 0],
            &[4, 4, 1, 2, 3, 4],
            &[1, 5, 1, 2, 3, 4, 5],
            &[2, 4, 1, 2, 3, 4],
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn five_redirects_in_five_minutes() {
        let from = IpAddr::from([192, 0, 2, 1]);
        let mut state = RedirectState::of_initiator(true);
        for second in 0..5 {
            state = state.after(from, Instant::from_secs(second)).unwrap();
        }
        assert!(state.after(from, Instant::from_secs(299)).is_none());
        let later = state.after(from, Instant::from_secs(300)).unwrap();
        assert!(later.after(from, Instant::from_secs(300)).is_none(), "four of them are still recent");
        assert!(later.after(from, Instant::from_secs(301)).is_some());
    }
}
