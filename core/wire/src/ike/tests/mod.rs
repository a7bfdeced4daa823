//! Tests with whole messages.

mod hostile;
mod rfc_figures;
mod round_trip;

use super::*;

/// The header of the first message of an initiator.
pub(super) fn header(exchange: ExchangeType) -> Header {
    Header {
        spi_i: IkeSpi(0x0102_0304_0506_0708),
        spi_r: IkeSpi::NONE,
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange,
        flags: Flags { initiator: true, ..Flags::default() },
        message_id: 0,
        length: 0,
    }
}

/// Builds an IKE_AUTH message with `payloads`, each given as type, critical flag and body.
pub(super) fn message(payloads: &[(u8, bool, &[u8])]) -> std::vec::Vec<u8> {
    let mut bytes = std::vec![0; HEADER_LEN];
    let mut next = payloads.iter().map(|payload| payload.0).skip(1);
    for (_, critical, body) in payloads {
        let length = u16::try_from(body.len() + 4).unwrap().to_be_bytes();
        bytes.extend([next.next().unwrap_or(0), u8::from(*critical) << 7, length[0], length[1]]);
        bytes.extend(*body);
    }
    let length = u32::try_from(bytes.len()).unwrap();
    let next_payload = PayloadType(payloads.first().map_or(0, |payload| payload.0));
    let header = Header { length, next_payload, ..header(ExchangeType::IKE_AUTH) };
    header.emit(bytes.first_chunk_mut().unwrap());
    bytes
}

/// Returns the first fault of a message, in its payload chain or in a body.
pub(super) fn fault(bytes: &[u8]) -> Option<Fault> {
    match Message::parse(bytes) {
        Ok(message) => {
            message.payloads().find_map(|payload| payload.and_then(|payload| Body::parse(&payload)).err())
        }
        Err(fault) => Some(fault),
    }
}
