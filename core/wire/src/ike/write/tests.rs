use super::*;
use crate::ike::tests::header;
use crate::ike::{ExchangeType, IdType, KeMethod, Message, NotifyType, ProtocolId, TransformRepr};
use std::vec;

fn writer(buf: &mut [u8]) -> Writer<'_> {
    Writer::new(buf, &header(ExchangeType::IKE_AUTH)).unwrap()
}

#[test]
fn a_buffer_that_is_too_small_is_refused_at_every_length() {
    let write = |buf: &mut [u8]| -> Result<usize, WriteError> {
        let mut writer = Writer::new(buf, &header(ExchangeType::IKE_AUTH))?;
        writer.ke(&Ke { method: KeMethod::CURVE25519, data: &[1; 32] })?;
        writer.notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[]))?;
        let mut encrypted = writer.encrypted(Layout { iv: 8, block: 4, icv: 16 })?;
        encrypted.payloads().vendor(&Vendor(b"abc"))?;
        encrypted.payloads().delete(&Delete::IKE_SA)?;
        encrypted.finish().map(|sealable| sealable.message.len())
    };
    let mut buf = [0; 200];
    let len = write(&mut buf).unwrap();
    for room in 0..200 {
        let expected = if room < len { Err(WriteError::NoRoom) } else { Ok(len) };
        assert_eq!(write(&mut buf[..room]), expected);
    }
}

#[test]
fn a_payload_that_is_refused_leaves_no_trace() {
    let mut buf = vec![0xee; 70_000];
    let mut writer = writer(&mut buf);
    let short = Ke { method: KeMethod::CURVE25519, data: &[1; 31] };
    let fault = Fault::KeLength { method: KeMethod::CURVE25519, len: 31 };
    assert_eq!(writer.ke(&short), Err(WriteError::Refused(fault)));
    writer.vendor(&Vendor(b"kept")).unwrap();
    assert_eq!(writer.vendor(&Vendor(&[0; 65_532])), Err(WriteError::TooLong));
    assert_eq!(writer.vendor(&Vendor(&[0; 70_000])), Err(WriteError::NoRoom));
    let fqdn = Id { kind: IdType::FQDN, data: b"a\0b" };
    assert_eq!(writer.id_i(&fqdn), Err(WriteError::Refused(Fault::IdText { id: IdType::FQDN, at: 1 })));
    let bytes = writer.finish().unwrap();
    assert_eq!(bytes[28..], *b"\0\0\0\x08kept");
    let message = Message::parse(bytes).unwrap();
    assert_eq!(
        message.payloads().map(|payload| payload.unwrap().kind).collect::<vec::Vec<_>>(),
        [PayloadType::VENDOR]
    );
}

#[test]
fn what_a_reader_refuses_is_not_written() {
    let mut buf = [0; 2_000];
    let mut writer = writer(&mut buf);
    assert_eq!(writer.sa(&[]), Err(WriteError::Refused(Fault::NoProposal {})));
    let none = ProposalRepr { number: 1, protocol: ProtocolId::ESP, spi: &[1; 4], transforms: &[] };
    let count = Fault::TransformCount { at: 0, claimed: 0, found: 0 };
    assert_eq!(writer.sa(&[none]), Err(WriteError::Refused(count)));
    let transforms = [TransformRepr::ke(KeMethod::CURVE25519)];
    let first = ProposalRepr { transforms: &transforms, ..none };
    let number = Fault::ProposalNumber { at: 20, found: 1, expected: 2 };
    assert_eq!(writer.sa(&[first, first]), Err(WriteError::Refused(number)));
    assert_eq!(writer.sa(&[ProposalRepr { spi: &[1; 256], ..first }]), Err(WriteError::TooLong));
    assert_eq!(writer.ts_i(&[]), Err(WriteError::Refused(Fault::SelectorCount { claimed: 0, found: 0 })));
    let rekey = Notify::new(NotifyType::REKEY_SA, &[]);
    assert!(matches!(writer.notify(&rekey), Err(WriteError::Refused(Fault::NotifySpi { .. }))));
    assert_eq!(writer.finish().unwrap().len(), HEADER_LEN);
}

#[test]
fn only_the_encrypted_writer_ends_a_message_with_an_encrypted_payload() {
    let mut buf = [0; 200];
    let mut writer = writer(&mut buf);
    for kind in [PayloadType::SK, PayloadType::SKF] {
        let nested = Fault::EncryptedNested { at: 28, payload: kind };
        assert_eq!(writer.other(kind, false, &[0; 40]), Err(WriteError::Refused(nested)));
    }
    let behind = Fault::BytesBehindPayloads { at: 28, len: 4 };
    assert_eq!(writer.other(PayloadType::NONE, false, &[]), Err(WriteError::Refused(behind)));
}

#[test]
fn no_more_payloads_than_a_reader_takes() {
    let mut buf = [0; 2_000];
    let mut writer = writer(&mut buf);
    for _ in 0..MAX_PAYLOADS {
        writer.other(PayloadType(200), true, &[]).unwrap();
    }
    let many = Err(WriteError::Refused(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
    assert_eq!(writer.other(PayloadType(200), true, &[]), many);
    let message = writer.finish().unwrap();
    assert_eq!(message.len(), HEADER_LEN + 4 * MAX_PAYLOADS);
    assert_eq!(
        Message::parse(message).unwrap().payloads().filter(|payload| payload.unwrap().critical).count(),
        128
    );
}

#[test]
fn a_block_that_padding_cannot_fill_is_refused() {
    let mut buf = [0; 2_000];
    let encrypted = writer(&mut buf).encrypted(Layout { iv: 0, block: 600, icv: 0 }).unwrap();
    assert_eq!(encrypted.finish().map(|_| ()).unwrap_err(), WriteError::TooLong);
    let huge = Layout { iv: usize::MAX, block: 1, icv: usize::MAX };
    assert_eq!(writer(&mut buf).encrypted(huge).map(|_| ()).unwrap_err(), WriteError::NoRoom);
}
