//! The side that proves its identity.

use crate::method::{IDENTITY, MethodRequest, NAK, NOTIFICATION, PeerMethod};
use crate::{Authenticated, CertificateStatus, EapContext, EapFault, EapPacket, MAX_PACKETS, Method};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Eap, EapCode};

/// Next step of a peer.
#[derive(Debug)]
pub enum PeerStep {
    /// Send this response.
    Respond(EapPacket),
    /// The authenticator has accepted the proof.
    Succeeded(Authenticated),
    /// The status of the authenticator's certificates is being looked up. The caller sends nothing, passes no
    /// further packet on, and asks again with [`Peer::poll`].
    Pending,
    /// The conversation has failed.
    Failed(EapFault),
}

/// One conversation as the peer. After [`PeerStep::Succeeded`] or [`PeerStep::Failed`] it has ended.
pub struct Peer {
    identity: Vec<u8>,
    methods: Vec<Method>,
    stage: Stage,
    /// The response that waits for the status of the authenticator's certificates.
    held: Option<EapPacket>,
    packets: u32,
}

enum Stage {
    /// No method has begun.
    Begin,
    Method(Box<dyn PeerMethod>),
    Ended,
}

impl Peer {
    /// Creates a peer that proves `identity` with one of `methods`, in order of preference.
    pub const fn new(identity: Vec<u8>, methods: Vec<Method>) -> Self {
        Self { identity, methods, stage: Stage::Begin, held: None, packets: 0 }
    }

    /// EAP identity that this peer proves.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Handles a packet of the authenticator.
    pub fn receive(&mut self, packet: &Eap<'_>, context: &mut EapContext<'_>) -> PeerStep {
        let step = self.step(packet, context);
        self.end_step(step)
    }

    /// Whether the last step was [`PeerStep::Pending`].
    pub const fn is_pending(&self) -> bool {
        self.held.is_some()
    }

    /// Asks for the step that follows [`PeerStep::Pending`].
    pub fn poll(&mut self) -> PeerStep {
        let step = self.held.take().ok_or(EapFault::OutOfState).and_then(|held| self.release(held));
        self.end_step(step)
    }

    fn end_step(&mut self, step: Result<PeerStep, EapFault>) -> PeerStep {
        let step = step.unwrap_or_else(PeerStep::Failed);
        if matches!(step, PeerStep::Succeeded(_) | PeerStep::Failed(_)) {
            self.stage = Stage::Ended;
        }
        step
    }

    fn step(&mut self, packet: &Eap<'_>, context: &mut EapContext<'_>) -> Result<PeerStep, EapFault> {
        self.packets = self.packets.saturating_add(1);
        if self.packets > MAX_PACKETS {
            return Err(EapFault::TooManyPackets);
        }
        if matches!(self.stage, Stage::Ended) || self.is_pending() {
            return Err(EapFault::OutOfState);
        }
        match packet.code {
            EapCode::REQUEST => {
                let response = self.respond(packet, context)?;
                self.release(response)
            }
            EapCode::SUCCESS => self.on_success().map(PeerStep::Succeeded),
            EapCode::FAILURE => Err(self.known_fault().unwrap_or(EapFault::Refused)),
            _ => Err(EapFault::OutOfState),
        }
    }

    /// Sends a response, unless the status of the authenticator's certificates forbids it. Nothing about the
    /// user leaves this host before it is accepted.
    fn release(&mut self, response: EapPacket) -> Result<PeerStep, EapFault> {
        let status = match &mut self.stage {
            Stage::Method(method) => method.certificate_status(),
            Stage::Begin | Stage::Ended => CertificateStatus::Accepted,
        };
        match status {
            CertificateStatus::Accepted => Ok(PeerStep::Respond(response)),
            CertificateStatus::Pending => {
                self.held = Some(response);
                Ok(PeerStep::Pending)
            }
            CertificateStatus::Refused => Err(EapFault::PeerCertificate),
        }
    }

    fn respond(&mut self, packet: &Eap<'_>, context: &mut EapContext<'_>) -> Result<EapPacket, EapFault> {
        let (&kind, data) = packet.data.split_first().ok_or(EapFault::Malformed)?;
        let response = |kind, data: &[u8]| EapPacket::response(packet.identifier, kind, data);
        match (kind, &self.stage) {
            (IDENTITY, Stage::Begin) => return Ok(response(IDENTITY, &self.identity)),
            // RFC 3748 section 5.2: a notification is acknowledged and changes nothing.
            (NOTIFICATION, _) => return Ok(response(NOTIFICATION, &[])),
            (_, Stage::Begin) => {
                let Some(method) = Method::from_id(kind).filter(|method| self.methods.contains(method))
                else {
                    return self.acceptable_types(kind).map(|types| response(NAK, &types));
                };
                self.stage = Stage::Method(method.peer(&self.identity, &self.methods));
            }
            (_, Stage::Method(_) | Stage::Ended) => {}
        }
        match &mut self.stage {
            Stage::Method(method) if method.method().id() == kind => {
                let request = MethodRequest { identifier: packet.identifier, data };
                Ok(response(kind, &method.respond(&request, context)?))
            }
            _ => Err(EapFault::OutOfState),
        }
    }

    /// The types of our methods, which a Nak proposes instead of the type `kind` (RFC 3748 section 5.3.1).
    /// That may be an expanded type (254): a peer without support for these refuses them in the same way.
    fn acceptable_types(&self, kind: u8) -> Result<Vec<u8>, EapFault> {
        // RFC 3748 section 5: the types up to NAK are no methods, and NAK is a response only.
        if self.methods.is_empty() || kind <= NAK {
            return Err(EapFault::NoMethod);
        }
        Ok(self.methods.iter().map(|method| method.id()).collect())
    }

    /// Why the authenticator reports failure, if the method knows it.
    fn known_fault(&self) -> Option<EapFault> {
        match &self.stage {
            Stage::Method(method) => method.fault(),
            Stage::Begin | Stage::Ended => None,
        }
    }

    /// Ends a conversation in a tunnel whose success is announced outside of it.
    pub(crate) fn end_with_success(&mut self) -> Result<Authenticated, EapFault> {
        let done = self.on_success();
        self.stage = Stage::Ended;
        done
    }

    /// A success that the method does not expect is a forgery (RFC 3748 section 7.16). Its identifier proves
    /// nothing, and some servers send another one than that of the last response.
    fn on_success(&mut self) -> Result<Authenticated, EapFault> {
        let Stage::Method(method) = &mut self.stage else { return Err(EapFault::EarlySuccess) };
        let done = method.finish().ok_or(EapFault::EarlySuccess)?;
        Authenticated::new(method.method(), self.identity.clone(), done.msk)
    }
}
