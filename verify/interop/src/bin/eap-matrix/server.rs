//! A RADIUS server with one conversation of our authenticator.

use crate::party::Party;
use crate::radius::{
    ACCESS_ACCEPT, ACCESS_CHALLENGE, ACCESS_REJECT, ACCESS_REQUEST, EAP_MESSAGE, Packet, STATE, response,
};
use casemate_eap::{
    Authenticated, Authenticator as _, AuthenticatorStep, EapFault, EapPacket, LocalAuthenticator, Method,
};
use casemate_wire::ike::{Eap, EapCode};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Longest time of a conversation.
const TIMEOUT: Duration = Duration::from_secs(20);
/// State of the only conversation.
const CONVERSATION: &[u8] = b"conversation";

/// The bytes of a packet.
pub(crate) fn to_bytes(packet: &EapPacket) -> Vec<u8> {
    let Eap { code, identifier, data } = packet.as_payload();
    let len = (data.len() as u16 + 4).to_be_bytes();
    [&[code.0, identifier], &len[..], data].concat()
}

/// Serves one conversation. Returns its result.
pub(crate) fn serve(socket: &UdpSocket, method: Method, party: &Party) -> Result<Authenticated, String> {
    let end = Instant::now() + TIMEOUT;
    let mut authenticator = LocalAuthenticator::new(None, vec![method]);
    let mut buffer = [0; 4096];
    let mut answered: Option<([u8; 16], Vec<u8>)> = None;
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        let (len, from) = socket.recv_from(&mut buffer).map_err(|error| format!("no request: {error}"))?;
        let request = Packet::parse(&buffer[..len]).filter(|packet| packet.code == ACCESS_REQUEST);
        let request = request.ok_or("a malformed request")?;
        // A repeated request gets the same response.
        if let Some((_, bytes)) = answered.as_ref().filter(|(last, _)| *last == request.authenticator) {
            socket.send_to(bytes, from).map_err(|error| error.to_string())?;
            continue;
        }
        let (code, eap, result) = step(&mut authenticator, &request, party)?;
        let msk = result.as_ref().and_then(|result| result.as_ref().ok()?.msk.as_ref());
        let bytes = response(code, &request, &eap, CONVERSATION, msk.map(|msk| msk.expose()));
        socket.send_to(&bytes, from).map_err(|error| error.to_string())?;
        if let Some(result) = result {
            return result.map_err(|fault| fault.to_string());
        }
        answered = Some((request.authenticator, bytes));
    }
}

type Step = (u8, Vec<u8>, Option<Result<Authenticated, EapFault>>);

fn step(authenticator: &mut LocalAuthenticator, request: &Packet, party: &Party) -> Result<Step, String> {
    let bytes = request.joined(EAP_MESSAGE);
    let packet = Eap::parse(&bytes).map_err(|_| "a malformed EAP packet")?;
    let is_first = request.joined(STATE).is_empty();
    let step = party.context(|context| {
        if !is_first {
            return authenticator.receive(&packet, context);
        }
        // The peer was asked for its identity by the NAS, whose identifier counts.
        match authenticator.start(context) {
            AuthenticatorStep::Request(asked) => {
                let identifier = asked.as_payload().identifier;
                let packet = Eap { code: EapCode::RESPONSE, identifier, data: packet.data };
                authenticator.receive(&packet, context)
            }
            other => other,
        }
    });
    Ok(match step {
        AuthenticatorStep::Request(packet) => (ACCESS_CHALLENGE, to_bytes(&packet), None),
        AuthenticatorStep::Succeeded(packet, done) => (ACCESS_ACCEPT, to_bytes(&packet), Some(Ok(done))),
        AuthenticatorStep::Failed(packet, fault) => (ACCESS_REJECT, to_bytes(&packet), Some(Err(fault))),
        AuthenticatorStep::Pending => return Err("nothing is looked up".into()),
    })
}
