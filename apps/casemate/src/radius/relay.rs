//! An authenticator that passes EAP packets on to a RADIUS server (RFC 3579).
//!
//! The server knows which user it has authenticated, and this host only what the peer has sent outside of any
//! tunnel. Servers copy that to User-Name of Access-Accept unless they are told otherwise, FreeRADIUS for
//! example, so such a copy says nothing after a method that may have authenticated another name.

use super::host_id;
use super::{AccessAnswer, RadiusLink, Report};
use casemate_eap::{
    Authenticated, Authenticator, AuthenticatorStep, EapContext, EapFault, EapPacket, MAX_PACKETS, Method,
    aka_identity,
};
use casemate_ike::{EapSession, IkeSaId, Path};
use casemate_radius::{AccessRequest, AccessResponse, ServerId, Verdict};
use casemate_wire::ike::{Eap, EapCode};
use std::sync::mpsc::{Receiver, TryRecvError};

/// EAP types of requests that belong to no method (RFC 3748 section 5).
const IDENTITY: u8 = 1;
const NOTIFICATION: u8 = 2;
/// Another form of all types, with the number of a vendor (RFC 3748 section 5.7).
const EXPANDED: u8 = 254;
/// Subtype of AKA and AKA' (RFC 4187 section 11): the server asks for an identity, and authenticates that one
/// in place of the EAP identity.
const AKA_IDENTITY: u8 = 5;
/// Maximum length of a User-Name in bytes.
const MAX_IDENTITY: usize = 253;

/// The conversation with one peer.
pub(crate) struct RelayAuthenticator {
    link: RadiusLink,
    ike: IkeSaId,
    path: Path,
    /// EAP identity of the peer, once it is known: the last one that it has sent.
    identity: Option<Vec<u8>>,
    /// Identifier of the last request to the peer.
    identifier: u8,
    /// EAP type of the method that the server runs; 0 before its first request.
    method: u8,
    /// What the last request of the server has asked for.
    asked: Asked,
    /// Whether AKA has asked for an identity itself, and has got another one than the EAP identity.
    has_other_aka_identity: bool,
    /// Other EAP identities, which the peer had before the server asked for one itself. The server may have
    /// authenticated any of them.
    other_identities: Vec<Vec<u8>>,
    /// State of the last challenge, and the server that knows it.
    state: Option<Vec<u8>>,
    server: Option<ServerId>,
    stage: Stage,
    packets: u32,
}

/// What a request of a server asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    EapIdentity,
    AkaIdentity,
    Other,
}

enum Stage {
    Begin,
    AskedIdentity,
    /// The peer has to respond to a request of the server.
    AskedPeer,
    /// The server has to answer.
    AskedServer(Receiver<AccessAnswer>),
    Ended,
}

impl RelayAuthenticator {
    pub(crate) fn new(link: RadiusLink, session: &EapSession<'_>) -> Self {
        Self {
            ike: session.ike,
            path: session.path,
            link,
            identity: session.identity.clone(),
            identifier: 0,
            method: 0,
            asked: Asked::Other,
            has_other_aka_identity: false,
            other_identities: Vec::new(),
            state: None,
            server: None,
            stage: Stage::Begin,
            packets: 0,
        }
    }

    /// Passes a packet of the peer on.
    fn pass_on(&mut self, packet: &Eap<'_>) -> Result<AuthenticatorStep, EapFault> {
        let user_name = self.identity.clone().filter(|identity| identity.len() <= MAX_IDENTITY);
        let with_port = self.link.ids_have_port;
        let request = AccessRequest {
            user_name: user_name.ok_or(EapFault::Malformed)?,
            eap: encode(packet)?,
            state: self.state.take(),
            nas_addr: self.path.local.ip(),
            called_id: host_id(self.path.local, with_port),
            calling_id: host_id(self.path.remote, with_port),
        };
        self.stage = Stage::AskedServer(self.link.authenticate(request, self.server, self.ike));
        Ok(AuthenticatorStep::Pending)
    }

    /// Begins with the identity that the configuration or the ID payload gives, or asks for it.
    fn begin(&mut self, context: &mut EapContext<'_>) -> Result<AuthenticatorStep, EapFault> {
        if !matches!(self.stage, Stage::Begin) {
            return Err(EapFault::OutOfState);
        }
        // RFC 3748 section 4.1: the identifier should begin at a random value.
        let mut identifier = [0];
        context.rng.public(&mut identifier);
        [self.identifier] = identifier;
        let Some(identity) = &self.identity else {
            self.stage = Stage::AskedIdentity;
            let request = Eap { code: EapCode::REQUEST, identifier: self.identifier, data: &[IDENTITY] };
            return Ok(AuthenticatorStep::Request(EapPacket::from_payload(&request)));
        };
        let data = [&[IDENTITY], &identity[..]].concat();
        self.pass_on(&Eap { code: EapCode::RESPONSE, identifier: self.identifier, data: &data })
    }

    fn on_response(&mut self, response: &Eap<'_>) -> Result<AuthenticatorStep, EapFault> {
        self.packets = self.packets.saturating_add(1);
        if self.packets > MAX_PACKETS {
            return Err(EapFault::TooManyPackets);
        }
        if response.code != EapCode::RESPONSE || response.identifier != self.identifier {
            return Err(EapFault::OutOfState);
        }
        match (&self.stage, eap_identity(response.data)) {
            (Stage::AskedPeer, None) => self.note_aka_identity(response.data)?,
            (Stage::AskedPeer, Some(identity)) if self.asked == Asked::EapIdentity => {
                self.note_identity(identity);
            }
            (Stage::AskedIdentity, Some(identity)) => self.note_identity(identity),
            _ => return Err(EapFault::OutOfState),
        }
        self.pass_on(response)
    }

    /// Notes the EAP identity of the peer. It is the User-Name from now on (RFC 3579 section 2.1).
    fn note_identity(&mut self, identity: &[u8]) {
        let former = self.identity.replace(identity.into());
        self.other_identities.extend(former.filter(|former| former != identity));
    }

    /// Notes the identity in a response, if it is one of AKA that has an identity. Only a request that has
    /// asked for it may have such a response, which else could hide the answer to an earlier request.
    fn note_aka_identity(&mut self, data: &[u8]) -> Result<(), EapFault> {
        let (method, data) = data.split_first().ok_or(EapFault::OutOfState)?;
        let Some(identity) = aka_identity(data).filter(|_| is_aka(*method)) else { return Ok(()) };
        if self.asked != Asked::AkaIdentity || *method != self.method {
            return Err(EapFault::OutOfState);
        }
        self.has_other_aka_identity = self.identity.as_deref() != Some(identity);
        Ok(())
    }

    fn on_answer(&mut self) -> Result<AuthenticatorStep, EapFault> {
        let Stage::AskedServer(answer) = &self.stage else { return Err(EapFault::OutOfState) };
        let (server, response) = match answer.try_recv() {
            Err(TryRecvError::Empty) => return Ok(AuthenticatorStep::Pending),
            Err(TryRecvError::Disconnected) | Ok(AccessAnswer::NoServer) => return Err(EapFault::NoServer),
            Ok(AccessAnswer::Response(server, response)) => (server, response),
        };
        match response.verdict {
            Verdict::Challenge => self.on_challenge(server, *response),
            Verdict::Reject => Err(EapFault::ServerRefused),
            Verdict::Accept => self.on_accept(response),
        }
    }

    fn on_challenge(
        &mut self,
        server: ServerId,
        response: AccessResponse,
    ) -> Result<AuthenticatorStep, EapFault> {
        let request = parse(&response.eap, EapCode::REQUEST)?;
        self.asked = match *request.data {
            _ if eap_identity(request.data).is_some() => Asked::EapIdentity,
            [method, AKA_IDENTITY, ..] if is_aka(method) => Asked::AkaIdentity,
            _ => Asked::Other,
        };
        // Until the peer responds.
        self.has_other_aka_identity |= self.asked == Asked::AkaIdentity;
        match *request.data {
            [] | [IDENTITY | NOTIFICATION, ..] => {}
            [method, ..] => self.method = method,
        }
        (self.identifier, self.server) = (request.identifier, Some(server));
        let packet = EapPacket::from_payload(&request);
        self.state = response.state;
        self.stage = Stage::AskedPeer;
        Ok(AuthenticatorStep::Request(packet))
    }

    /// RFC 3579 section 2.6.3: what the server sends in the EAP packet must agree with its decision.
    fn on_accept(&mut self, response: Box<AccessResponse>) -> Result<AuthenticatorStep, EapFault> {
        let packet = EapPacket::from_payload(&parse(&response.eap, EapCode::SUCCESS)?);
        let identity = self.identity.clone().ok_or(EapFault::OutOfState)?;
        let (msk, addrs) = (response.msk.clone(), response.addrs.clone());
        let user_name = response.user_name.clone().unwrap_or_else(|| identity.clone());
        let mut done = Authenticated::by_server(self.method, identity, msk, addrs)?;
        done.is_identity_proven &= !self.has_other_aka_identity && self.other_identities.is_empty();
        done.user = response.user_name.clone().filter(|name| self.is_user(name, &done));
        done.groups = self.link.groups_of(&response);
        self.link.report(Report::Accepted { ike: self.ike, user_name, path: self.path, response });
        self.stage = Stage::Ended;
        Ok(AuthenticatorStep::Succeeded(packet, done))
    }

    /// Whether the User-Name of the server is the user whom it has authenticated, and cannot be a copy of an
    /// EAP identity that is not proven.
    fn is_user(&self, name: &[u8], done: &Authenticated) -> bool {
        let mut claimed = self.identity.iter().chain(&self.other_identities);
        self.link.trusts_user_name
            || done.is_identity_proven
            || !claimed.any(|identity| is_copy(name, identity))
    }

    /// Ends the conversation after a fault.
    fn finish(&mut self, step: Result<AuthenticatorStep, EapFault>) -> AuthenticatorStep {
        step.unwrap_or_else(|fault| {
            self.stage = Stage::Ended;
            AuthenticatorStep::Failed(EapPacket::failure(self.identifier), fault)
        })
    }
}

impl Authenticator for RelayAuthenticator {
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.begin(context);
        self.finish(step)
    }

    fn receive(&mut self, response: &Eap<'_>, _: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.on_response(response);
        self.finish(step)
    }

    fn poll(&mut self, _: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.on_answer();
        self.finish(step)
    }

    fn identity(&self) -> Option<&[u8]> {
        self.identity.as_deref()
    }
}

impl Drop for RelayAuthenticator {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::AskedServer(_)) {
            self.link.forget(self.ike);
        }
    }
}

/// The EAP identity in the response to an identity request, or the text in the request. It ends at the first
/// zero byte (RFC 3748 section 5.1).
fn eap_identity(data: &[u8]) -> Option<&[u8]> {
    match data {
        [IDENTITY, identity @ ..] | [EXPANDED, 0, 0, 0, 0, 0, 0, IDENTITY, identity @ ..] => {
            identity.split(|byte| *byte == 0).next()
        }
        _ => None,
    }
}

fn is_aka(method: u8) -> bool {
    method == Method::Aka.id() || method == Method::AkaPrime.id()
}

/// Whether a name may be made from an EAP identity without more knowledge. The comparison ignores case, the
/// realm (`user@realm`, RFC 7542) and the Windows domain (`DOMAIN\user`).
fn is_copy(name: &[u8], identity: &[u8]) -> bool {
    let user = |name: &[u8]| {
        let without_realm = name.split(|byte| b"@%".contains(byte)).next().unwrap_or_default();
        let user = without_realm.rsplit(|byte| b"\\/".contains(byte)).next().unwrap_or_default();
        user.to_ascii_lowercase()
    };
    user(name) == user(identity)
}

/// The packet as RADIUS carries it.
fn encode(packet: &Eap<'_>) -> Result<Vec<u8>, EapFault> {
    let len = u16::try_from(packet.data.len().saturating_add(4)).map_err(|_| EapFault::Malformed)?;
    let [hi, lo] = len.to_be_bytes();
    Ok([&[packet.code.0, packet.identifier, hi, lo], packet.data].concat())
}

/// A packet of the server, which must have this code.
fn parse(bytes: &[u8], code: EapCode) -> Result<Eap<'_>, EapFault> {
    Eap::parse(bytes).ok().filter(|packet| packet.code == code).ok_or(EapFault::BadServerPacket)
}

#[cfg(test)]
mod tests;
