//! The peer of EAP-AKA and EAP-AKA'.

use super::attribute::{Message, Packet, Writer};
use super::keys::{Keys, Secrets, bind_to_network};
use super::milenage::{Autn, BLOCK, Derived, Milenage, Sqn};
use super::{Flavour, IdRequest, IdentityMessages, KDF_DEFAULT, Subtype, notification};
use crate::method::{Finished, MethodRequest, PeerMethod};
use crate::packet::TypeData;
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_wire::ike::EapCode;
use core::mem;

/// The peer.
pub(in crate::method) struct AkaPeer {
    flavour: Flavour,
    identity: Vec<u8>,
    /// Whether EAP-AKA' would be accepted as well.
    accepts_aka_prime: bool,
    identities: IdentityMessages,
    state: State,
}

enum State {
    /// No challenge was answered.
    Begin(Begun),
    /// RES is sent. With `awaits_notification`, both sides want a protected result.
    Responded { keys: Keys, awaits_notification: bool },
    /// The authenticator has notified the peer of success.
    Accepted(Keys),
    /// The authenticator knows that the conversation has failed, or is told so.
    Failed(EapFault),
}

/// What was negotiated before the challenge was answered.
#[derive(Default)]
struct Begun {
    /// The last identity that was asked for.
    asked: Option<IdRequest>,
    /// Key derivation functions that the authenticator had offered when the peer asked for another one.
    offered: Option<Vec<u16>>,
    has_resynchronised: bool,
}

/// A message that ends the conversation, with the fault of this side.
struct Rejection {
    response: TypeData,
    fault: EapFault,
}

impl Rejection {
    /// AUTN is wrong (RFC 4187 section 6.3.1).
    fn of_authenticator(fault: EapFault) -> Self {
        Self { response: Writer::new(Subtype::AUTHENTICATION_REJECT).finish(), fault }
    }
}

impl From<EapFault> for Rejection {
    /// The message cannot be processed (RFC 4187 section 6.3.1).
    fn from(fault: EapFault) -> Self {
        /// The only code that fits (RFC 4187 section 10.20).
        const UNABLE_TO_PROCESS: u16 = 0;
        let response = Writer::new(Subtype::CLIENT_ERROR).client_error(UNABLE_TO_PROCESS).finish();
        Self { response, fault }
    }
}

/// The mandatory attributes of a challenge.
struct Challenge<'a> {
    rand: &'a [u8; BLOCK],
    autn: &'a Autn,
}

impl AkaPeer {
    pub(in crate::method) fn new(flavour: Flavour, identity: &[u8], accepts_aka_prime: bool) -> Self {
        let state = State::Begin(Begun::default());
        let identities = IdentityMessages::default();
        Self { flavour, identity: identity.into(), accepts_aka_prime, identities, state }
    }

    fn handle(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, Rejection> {
        let message = Message::parse(request.data)?;
        match (mem::replace(&mut self.state, State::Failed(EapFault::OutOfState)), message.subtype) {
            (State::Begin(begun), Subtype::IDENTITY) => self.on_identity(begun, &message, request),
            (State::Begin(begun), Subtype::CHALLENGE) => self.on_challenge(begun, &message, request, context),
            (State::Begin(_), Subtype::NOTIFICATION) => {
                let code = message.notification.ok_or(EapFault::Malformed)?;
                if code & notification::IS_EARLY == 0 || code & notification::IS_SUCCESS != 0 {
                    return Err(EapFault::EarlySuccess.into());
                }
                self.state = State::Failed(EapFault::Refused);
                Ok(Writer::new(Subtype::NOTIFICATION).finish())
            }
            (State::Responded { keys, awaits_notification }, Subtype::NOTIFICATION) => {
                let code = message.notification.ok_or(EapFault::Malformed)?;
                self.on_notification(code, keys, awaits_notification, &message, request, context)
            }
            _ => Err(EapFault::OutOfState.into()),
        }
    }

    fn packet<'a>(&self, code: EapCode, identifier: u8, data: &'a [u8]) -> Packet<'a> {
        Packet { code, identifier, flavour: self.flavour, data }
    }

    /// Sends the permanent identity, as there is no other.
    fn on_identity(
        &mut self,
        begun: Begun,
        message: &Message<'_>,
        request: &MethodRequest<'_>,
    ) -> Result<TypeData, Rejection> {
        let asked = message.id_request.ok_or(EapFault::Malformed)?;
        // RFC 4187 section 4.1.6: never the same or a weaker one again.
        if begun.asked.is_some_and(|before| asked >= before) {
            return Err(EapFault::OutOfState.into());
        }
        let response = Writer::new(Subtype::IDENTITY).identity(&self.identity).finish();
        self.identities.add(self.packet(EapCode::REQUEST, request.identifier, request.data))?;
        self.identities.add(self.packet(EapCode::RESPONSE, request.identifier, &response))?;
        self.state = State::Begin(Begun { asked: Some(asked), ..begun });
        Ok(response)
    }

    fn on_challenge(
        &mut self,
        begun: Begun,
        message: &Message<'_>,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, Rejection> {
        if self.flavour == Flavour::AkaPrime && !has_agreed(&begun, &message.kdfs)? {
            self.state = State::Begin(Begun { offered: Some(message.kdfs.clone()), ..begun });
            return Ok(Writer::new(Subtype::CHALLENGE).kdf(KDF_DEFAULT).finish());
        }
        let (Some(rand), Some(autn)) = (message.rand, message.autn) else {
            return Err(EapFault::Malformed.into());
        };
        let challenge = Challenge { rand, autn };
        let (keys, derived, resynchronisation) = self.verify(&challenge, message, request, context)?;
        if let Some(sqn) = resynchronisation {
            return self.resynchronise(begun, &challenge, sqn, message, context);
        }
        let mut response = Writer::new(Subtype::CHALLENGE).res(&*derived.res);
        if message.checkcode.is_some() {
            response = response.checkcode(&self.identities.checkcode(self.flavour, context)?);
        }
        if message.has_result_ind {
            response = response.result_ind();
        }
        let response = response.mac(EapCode::RESPONSE, request.identifier, &keys, context)?;
        self.state = State::Responded { keys, awaits_notification: message.has_result_ind };
        Ok(response)
    }

    /// Verifies a challenge. Returns the keys, what the USIM has derived, and, if the sequence number was
    /// used before, that of the USIM.
    fn verify(
        &self,
        challenge: &Challenge<'_>,
        message: &Message<'_>,
        request: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<(Keys, Derived, Option<Sqn>), Rejection> {
        let subscriber = context.credentials.subscriber(&self.identity).ok_or(EapFault::NoPassword)?;
        let milenage = Milenage::new(subscriber, challenge.rand, context.providers)?;
        let derived = milenage.derive()?;
        let opened = milenage.open_autn(challenge.autn, &derived);
        let (sqn, amf) = opened.map_err(Rejection::of_authenticator)?;
        let keys = match self.flavour {
            Flavour::Aka => {
                let secrets = Secrets { ck: &derived.ck, ik: &derived.ik, identity: &self.identity };
                Keys::aka(&secrets, context)?
            }
            Flavour::AkaPrime => {
                let network = message.network.filter(|name| !name.is_empty() && amf.is_separated());
                let network =
                    network.ok_or_else(|| Rejection::of_authenticator(EapFault::WrongAuthenticator))?;
                let hidden = challenge.autn.first_chunk().ok_or(EapFault::Malformed)?;
                let (ck, ik) = bind_to_network(&derived, hidden, network, context)?;
                Keys::aka_prime(&Secrets { ck: &ck, ik: &ik, identity: &self.identity }, context)?
            }
        };
        let packet = self.packet(EapCode::REQUEST, request.identifier, request.data);
        message.verify_mac(&packet, &keys, EapFault::WrongAuthenticator, context)?;
        // RFC 9048 section 4.
        if self.flavour == Flavour::Aka && self.accepts_aka_prime && message.prefers_aka_prime {
            return Err(Rejection::of_authenticator(EapFault::BiddingDown));
        }
        let checkcode = self.identities.checkcode(self.flavour, context)?;
        if message.checkcode.is_some_and(|received| *received != *checkcode) {
            return Err(EapFault::WrongAuthenticator.into());
        }
        let numbers = context.credentials.sequence_numbers().ok_or(EapFault::Unsupported)?;
        let mut accepted = Ok(());
        numbers.change_usim(&self.identity, &mut |usim| accepted = usim.accept(sqn));
        Ok((keys, derived, accepted.err()))
    }

    fn resynchronise(
        &mut self,
        begun: Begun,
        challenge: &Challenge<'_>,
        sqn: Sqn,
        message: &Message<'_>,
        context: &EapContext<'_>,
    ) -> Result<TypeData, Rejection> {
        if begun.has_resynchronised {
            return Err(EapFault::SequenceNumber.into());
        }
        let subscriber = context.credentials.subscriber(&self.identity).ok_or(EapFault::NoPassword)?;
        let auts = Milenage::new(subscriber, challenge.rand, context.providers)?.auts(sqn)?;
        self.state = State::Begin(Begun { has_resynchronised: true, ..begun });
        Ok(Writer::new(Subtype::SYNCHRONIZATION_FAILURE).auts(&auts).kdfs(&message.kdfs).finish())
    }

    fn on_notification(
        &mut self,
        code: u16,
        keys: Keys,
        awaits_notification: bool,
        message: &Message<'_>,
        request: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<TypeData, Rejection> {
        if code & notification::IS_EARLY != 0 {
            // The authenticator has not accepted RES.
            self.state = State::Failed(EapFault::Refused);
            return Ok(Writer::new(Subtype::NOTIFICATION).finish());
        }
        let packet = self.packet(EapCode::REQUEST, request.identifier, request.data);
        message.verify_mac(&packet, &keys, EapFault::WrongAuthenticator, context)?;
        let is_success = code & notification::IS_SUCCESS != 0;
        if is_success && !awaits_notification {
            return Err(EapFault::OutOfState.into());
        }
        let writer = Writer::new(Subtype::NOTIFICATION);
        let response = writer.mac(EapCode::RESPONSE, request.identifier, &keys, context)?;
        self.state = if is_success { State::Accepted(keys) } else { State::Failed(EapFault::Refused) };
        Ok(response)
    }
}

/// Whether the key derivation function is agreed; otherwise the peer asks for another one of those that are
/// offered (RFC 9048 section 3.2).
fn has_agreed(begun: &Begun, functions: &[u16]) -> Result<bool, Rejection> {
    if let Some(offered) = &begun.offered {
        // The requested change, and only that one.
        let is_as_requested = functions.split_first() == Some((&KDF_DEFAULT, &**offered));
        return is_as_requested.then_some(true).ok_or(EapFault::WrongAuthenticator.into());
    }
    let is_repeated =
        |(at, function): (usize, &u16)| functions.iter().skip(at).skip(1).any(|f| f == function);
    if functions.iter().enumerate().any(is_repeated) || !functions.contains(&KDF_DEFAULT) {
        return Err(Rejection::of_authenticator(EapFault::WrongAuthenticator));
    }
    Ok(functions.first() == Some(&KDF_DEFAULT))
}

impl PeerMethod for AkaPeer {
    fn method(&self) -> Method {
        self.flavour.method()
    }

    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if let State::Failed(fault) = self.state {
            return Err(fault);
        }
        match self.handle(request, context) {
            Ok(response) => Ok(response),
            // A fault of this side, of which the authenticator learns nothing.
            Err(Rejection { fault: fault @ (EapFault::Unsupported | EapFault::NoPassword), .. }) => {
                Err(fault)
            }
            Err(Rejection { response, fault }) => {
                self.state = State::Failed(fault);
                Ok(response)
            }
        }
    }

    fn fault(&self) -> Option<EapFault> {
        match self.state {
            State::Failed(fault) => Some(fault),
            State::Begin(_) | State::Responded { .. } | State::Accepted(_) => None,
        }
    }

    fn finish(&mut self) -> Option<Finished> {
        match mem::replace(&mut self.state, State::Failed(EapFault::OutOfState)) {
            State::Responded { keys, awaits_notification: false } | State::Accepted(keys) => {
                Some(Finished { msk: Some(keys.msk) })
            }
            State::Responded { .. } | State::Begin(_) | State::Failed(_) => None,
        }
    }
}
