//! The authenticator of EAP-AKA and EAP-AKA', which is also the home network.

use super::attribute::{Message, Packet, Writer};
use super::keys::{Keys, Secrets, bind_to_network};
use super::milenage::{BLOCK, MAC_LEN, Milenage};
use super::{Flavour, IdentityMessages, KDF_DEFAULT, NETWORK, Subtype, notification};
use crate::method::{Finished, MethodRequest, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::EapCode;
use core::mem;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The authenticator.
pub(in crate::method) struct AkaServer {
    flavour: Flavour,
    /// Identity of the peer, with which it proves itself.
    identity: Vec<u8>,
    /// Whether the peer has sent the identity in this method.
    is_identity_asked: bool,
    /// Whether EAP-AKA' would be accepted as well, and is preferred.
    accepts_aka_prime: bool,
    identities: IdentityMessages,
    has_resynchronised: bool,
    state: State,
}

enum State {
    Begin,
    /// The request for the permanent identity is sent.
    AskedIdentity(TypeData),
    Challenged(Vector),
    /// RES was right, and the notification of success is sent.
    Accepted(Keys),
    /// The notification of failure is sent.
    Rejected(EapFault),
    Ended,
}

/// An authentication vector.
struct Vector {
    rand: [u8; BLOCK],
    expected: Zeroizing<[u8; MAC_LEN]>,
    keys: Keys,
}

impl AkaServer {
    pub(in crate::method) fn new(flavour: Flavour, identity: &[u8], accepts_aka_prime: bool) -> Self {
        Self {
            flavour,
            identity: identity.into(),
            is_identity_asked: false,
            accepts_aka_prime,
            identities: IdentityMessages::default(),
            has_resynchronised: false,
            state: State::Begin,
        }
    }

    fn packet<'a>(&self, code: EapCode, identifier: u8, data: &'a [u8]) -> Packet<'a> {
        Packet { code, identifier, flavour: self.flavour, data }
    }

    /// Returns a challenge that has this identifier.
    fn challenge(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let subscriber = context.credentials.subscriber(&self.identity).ok_or(EapFault::NoPassword)?;
        let mut rand = [0; BLOCK];
        context.rng.public(&mut rand);
        let numbers = context.credentials.sequence_numbers().ok_or(EapFault::Unsupported)?;
        let mut sqn = None;
        numbers.change_network(&self.identity, &mut |network| sqn = network.advance());
        let sqn = sqn.ok_or(EapFault::SequenceNumber)?;
        let milenage = Milenage::new(subscriber, &rand, context.providers)?;
        let derived = milenage.derive()?;
        let amf = match self.flavour {
            Flavour::Aka => subscriber.amf(),
            Flavour::AkaPrime => subscriber.amf().separated(),
        };
        let autn = milenage.autn(sqn, amf, &derived)?;
        let writer = Writer::new(Subtype::CHALLENGE).rand(&rand).autn(&autn);
        let (writer, keys) = match self.flavour {
            Flavour::Aka => {
                let writer = if self.accepts_aka_prime { writer.bidding() } else { writer };
                let secrets = Secrets { ck: &derived.ck, ik: &derived.ik, identity: &self.identity };
                (writer, Keys::aka(&secrets, context)?)
            }
            Flavour::AkaPrime => {
                let hidden = autn.first_chunk().ok_or(EapFault::Malformed)?;
                let (ck, ik) = bind_to_network(&derived, hidden, NETWORK, context)?;
                let secrets = Secrets { ck: &ck, ik: &ik, identity: &self.identity };
                (writer.kdf(KDF_DEFAULT).network(NETWORK), Keys::aka_prime(&secrets, context)?)
            }
        };
        let writer = writer.checkcode(&self.identities.checkcode(self.flavour, context)?).result_ind();
        let request = writer.mac(EapCode::REQUEST, identifier, &keys, context)?;
        self.state = State::Challenged(Vector { rand, expected: derived.res, keys });
        Ok(request)
    }

    /// Asks for the permanent identity.
    fn ask(&mut self) -> TypeData {
        let request = Writer::new(Subtype::IDENTITY).request_permanent_id().finish();
        self.state = State::AskedIdentity(request.clone());
        request
    }

    fn on_identity(
        &mut self,
        request: &TypeData,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let message = Message::parse(response.data)?;
        refusal(&message)?;
        if message.subtype != Subtype::IDENTITY {
            return Err(EapFault::OutOfState);
        }
        self.identity = message.identity.ok_or(EapFault::Malformed)?.into();
        self.is_identity_asked = true;
        self.identities.add(self.packet(EapCode::REQUEST, response.identifier, request))?;
        self.identities.add(self.packet(EapCode::RESPONSE, response.identifier, response.data))?;
        match self.challenge(response.next_identifier(), context) {
            Err(EapFault::NoPassword) => Ok(self.reject(EapFault::NoPassword)),
            challenge => challenge,
        }
    }

    /// Notifies the peer of its failure.
    fn reject(&mut self, fault: EapFault) -> TypeData {
        self.state = State::Rejected(fault);
        Writer::new(Subtype::NOTIFICATION).notification(notification::GENERAL_FAILURE).finish()
    }

    fn on_response(
        &mut self,
        vector: Vector,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let message = Message::parse(response.data)?;
        refusal(&message)?;
        match message.subtype {
            Subtype::SYNCHRONIZATION_FAILURE => {
                self.on_synchronization_failure(&vector, &message, response, context).map(ServerStep::Request)
            }
            Subtype::CHALLENGE => match self.verify(&vector, &message, response, context) {
                Ok(()) if message.has_result_ind => {
                    let request = self.notify_success(&vector.keys, response, context)?;
                    self.state = State::Accepted(vector.keys);
                    Ok(ServerStep::Request(request))
                }
                Ok(()) => Ok(finished(vector.keys.msk)),
                Err(EapFault::WrongPassword) => Ok(ServerStep::Request(self.reject(EapFault::WrongPassword))),
                Err(fault) => Err(fault),
            },
            _ => Err(EapFault::OutOfState),
        }
    }

    fn verify(
        &self,
        vector: &Vector,
        message: &Message<'_>,
        response: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<(), EapFault> {
        // RFC 9048 section 3.2: no other key derivation function was offered.
        if !message.kdfs.is_empty() {
            return Err(EapFault::WrongPassword);
        }
        let packet = self.packet(EapCode::RESPONSE, response.identifier, response.data);
        message.verify_mac(&packet, &vector.keys, EapFault::WrongPassword, context)?;
        let checkcode = self.identities.checkcode(self.flavour, context)?;
        let is_unchanged = message.checkcode.is_none_or(|received| *received == *checkcode);
        let res = message.res.ok_or(EapFault::Malformed)?;
        if bool::from(vector.expected.ct_eq(res)) && is_unchanged {
            Ok(())
        } else {
            Err(EapFault::WrongPassword)
        }
    }

    fn notify_success(
        &self,
        keys: &Keys,
        response: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let writer = Writer::new(Subtype::NOTIFICATION).notification(notification::SUCCESS);
        writer.mac(EapCode::REQUEST, response.next_identifier(), keys, context)
    }

    /// Continues behind the sequence number of the USIM, once in a conversation.
    fn on_synchronization_failure(
        &mut self,
        vector: &Vector,
        message: &Message<'_>,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let kdfs: &[u16] = match self.flavour {
            Flavour::Aka => &[],
            Flavour::AkaPrime => &[KDF_DEFAULT],
        };
        if mem::replace(&mut self.has_resynchronised, true) {
            return Err(EapFault::SequenceNumber);
        }
        if message.kdfs != kdfs {
            return Ok(self.reject(EapFault::WrongPassword));
        }
        let auts = message.auts.ok_or(EapFault::Malformed)?;
        let subscriber = context.credentials.subscriber(&self.identity).ok_or(EapFault::NoPassword)?;
        let sqn = match Milenage::new(subscriber, &vector.rand, context.providers)?.open_auts(auts) {
            Err(EapFault::WrongPassword) => return Ok(self.reject(EapFault::WrongPassword)),
            sqn => sqn?,
        };
        let numbers = context.credentials.sequence_numbers().ok_or(EapFault::Unsupported)?;
        numbers.change_network(&self.identity, &mut |network| network.resynchronise(sqn));
        self.challenge(response.next_identifier(), context)
    }

    fn on_notified(
        &self,
        keys: Keys,
        response: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let message = Message::parse(response.data)?;
        refusal(&message)?;
        if message.subtype != Subtype::NOTIFICATION {
            return Err(EapFault::OutOfState);
        }
        let packet = self.packet(EapCode::RESPONSE, response.identifier, response.data);
        message.verify_mac(&packet, &keys, EapFault::WrongPassword, context)?;
        Ok(finished(keys.msk))
    }
}

/// The result with this key.
const fn finished(msk: SecretBytes) -> ServerStep {
    ServerStep::Finished(Finished { msk: Some(msk) })
}

/// Fails if the peer ends the conversation.
fn refusal(message: &Message<'_>) -> Result<(), EapFault> {
    match message.subtype {
        Subtype::AUTHENTICATION_REJECT | Subtype::CLIENT_ERROR => Err(EapFault::Refused),
        _ => Ok(()),
    }
}

impl ServerMethod for AkaServer {
    fn method(&self) -> Method {
        self.flavour.method()
    }

    fn begin(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        match context.credentials.subscriber(&self.identity) {
            Some(_) => self.challenge(identifier, context),
            // Perhaps a pseudonym that another server has assigned.
            None => Ok(self.ask()),
        }
    }

    fn fault(&self) -> Option<EapFault> {
        match self.state {
            State::Rejected(fault) => Some(fault),
            State::Begin
            | State::AskedIdentity(_)
            | State::Challenged(_)
            | State::Accepted(_)
            | State::Ended => None,
        }
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match mem::replace(&mut self.state, State::Ended) {
            State::AskedIdentity(request) => {
                self.on_identity(&request, response, context).map(ServerStep::Request)
            }
            State::Challenged(vector) => self.on_response(vector, response, context),
            State::Accepted(keys) => self.on_notified(keys, response, context),
            State::Rejected(fault) => Err(fault),
            State::Begin | State::Ended => Err(EapFault::OutOfState),
        }
    }

    fn proven_identity(&self) -> Option<&[u8]> {
        self.is_identity_asked.then_some(&*self.identity)
    }
}
