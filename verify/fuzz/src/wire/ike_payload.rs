//! Contents of all IKEv2 payloads.

use crate::Target;
use casemate_wire::ike::sk::unpad;
use casemate_wire::ike::{
    Attribute, Auth, Body, Cert, CertReq, Cp, CpAttribute, Delete, DigitalSignature, Eap, Encrypted,
    ExchangeType, Fault, FaultResponse, Flags, HEADER_LEN, Header, Id, IkeSpi, Ke, Nonce, Notify, Payload,
    PayloadType, Proposal, ProposalRepr, RohcSupported, Sa, Selector, SkLayout, TransformRepr, Ts, Vendor,
    Version, WriteError, Writer,
};

pub(crate) const TARGET: Target = Target {
    name: "ike-payload",
    about: "IKEv2 payloads: a parsed payload is written back unchanged, except for reserved fields",
    max_len: 600,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let Some((&[kind, flags], body)) = bytes.split_first_chunk() else { return };
    let payload = Payload {
        kind: PayloadType(kind),
        critical: flags & 1 != 0,
        next: PayloadType(flags >> 1),
        body,
        at: HEADER_LEN,
    };
    check(&payload);
}

/// Parses the payload, walks its contents, and writes it back.
pub(super) fn check(payload: &Payload<'_>) {
    let body = match Body::parse(payload) {
        Ok(body) => body,
        Err(fault) => return check_fault(fault, payload),
    };
    check_type(&body, payload);
    match body {
        Body::Encrypted(encrypted) => check_encrypted(&encrypted, payload),
        Body::Cp(cp) => cp.attributes().for_each(check_cp_attribute),
        Body::Auth(auth) => {
            let signature = auth.signature();
            assert_eq!(signature.is_some(), auth.method.0 == 14);
            assert!(signature.is_none_or(|it| DigitalSignature::parse(auth.data) == Ok(it)));
        }
        Body::Notify(notify) => {
            assert!(notify.hash_algorithms().count() <= notify.data.len() / 2);
            check_rohc(notify.data);
        }
        Body::Cert(cert) => assert!(cert.hash_and_url().is_none_or(|(_, url)| !url.is_empty())),
        Body::CertReq(request) => assert!(request.hashes().len() * 20 <= request.authorities.len()),
        _ => {}
    }
    // Encrypted payloads are written in parts, and type 0 means "no payload".
    if payload.kind.is_encrypted() || payload.kind == PayloadType::NONE {
        return;
    }
    let mut buf = vec![0xee; payload.body.len() + 64];
    let written = written(&mut buf, payload.kind, &body).expect("a parsed payload can be written");
    assert_eq!(written, canonical(payload));
}

/// Every fault has a description. Only the critical bit of an unknown type results in
/// `UnsupportedCriticalPayload`.
fn check_fault(fault: Fault, payload: &Payload<'_>) {
    assert!(!fault.to_string().is_empty() && !fault.kind().source().is_empty());
    let is_critical = matches!(fault, Fault::UnsupportedCriticalPayload { .. });
    assert_eq!(is_critical, payload.critical && !matches!(payload.kind.0, 33..=48 | 53));
    assert!(payload.kind.is_encrypted() || fault.response() != FaultResponse::Silence);
}

/// The type of the payload determines its parser.
fn check_type(read: &Body<'_>, payload: &Payload<'_>) {
    let (kind, body) = (payload.kind, payload.body);
    let expected = match kind.0 {
        33 => Sa::parse(body).map(Body::Sa),
        34 => Ke::parse(body).map(Body::Ke),
        35 => Id::parse(kind, body).map(Body::IdI),
        36 => Id::parse(kind, body).map(Body::IdR),
        37 => Cert::parse(body).map(Body::Cert),
        38 => CertReq::parse(body).map(Body::CertReq),
        39 => Auth::parse(body).map(Body::Auth),
        40 => Nonce::parse(body).map(Body::Nonce),
        41 => Notify::parse(body).map(Body::Notify),
        42 => Delete::parse(body).map(Body::Delete),
        43 => Ok(Body::Vendor(Vendor(body))),
        44 => Ts::parse(kind, body).map(Body::TsI),
        45 => Ts::parse(kind, body).map(Body::TsR),
        46 | 53 => return assert!(matches!(read, Body::Encrypted(_))),
        47 => Cp::parse(body).map(Body::Cp),
        48 => Eap::parse(body).map(Body::Eap),
        _ => Ok(Body::Unknown(body)),
    };
    assert_eq!(Ok(*read), expected);
}

/// The data of ROHC_SUPPORTED has all mandatory attributes.
fn check_rohc(data: &[u8]) {
    let Some(rohc) = RohcSupported::parse(data) else { return };
    let (profiles, integrity) = (rohc.profiles().count(), rohc.integrity().count());
    assert!(rohc.max_cid < 1 << 14 && profiles > 0 && integrity > 0);
    assert!((profiles + integrity + 1) * 4 <= data.len());
}

fn check_cp_attribute(attribute: CpAttribute<'_>) {
    let read = [
        attribute.v4().is_some(),
        attribute.v6().is_some(),
        attribute.v4_subnet().is_some(),
        attribute.v6_prefix().is_some(),
    ];
    assert!(read.iter().filter(|is_read| **is_read).count() <= 1);
    assert!(attribute.v6_prefix().is_none_or(|(_, len)| len <= 128));
}

/// The parts follow each other in the payload.
fn check_encrypted(encrypted: &Encrypted<'_>, payload: &Payload<'_>) {
    let end = payload.at + 4 + payload.body.len();
    assert_eq!(encrypted.at + encrypted.content.len(), end);
    let fragment = encrypted.fragment.map(|fragment| (fragment.number(), fragment.total()));
    assert_eq!(fragment.is_some(), payload.kind.0 == 53);
    assert!(fragment.is_none_or(|(number, total)| 0 < number && number <= total));
    for layout in [(8, 1, 16), (16, 16, 12), (0, 0, 0), (usize::MAX, 7, usize::MAX)] {
        let layout = SkLayout { iv: layout.0, block: layout.1, icv: layout.2 };
        let Ok(parts) = encrypted.parts(&layout) else { continue };
        assert_eq!((parts.iv.start, parts.iv.len()), (encrypted.at, layout.iv));
        assert_eq!((parts.ciphertext.start, parts.icv.start), (parts.iv.end, parts.ciphertext.end));
        assert_eq!((parts.icv.len(), parts.icv.end), (layout.icv, end));
        assert!(!parts.ciphertext.is_empty() && parts.ciphertext.len().is_multiple_of(layout.block.max(1)));
    }
    if let Ok(payloads) = unpad(encrypted.content) {
        let pad = usize::from(*encrypted.content.last().unwrap());
        assert_eq!(payloads.len() + pad + 1, encrypted.content.len());
    }
}

/// Writes a payload of this type and returns its body.
fn written<'b>(buf: &'b mut [u8], kind: PayloadType, body: &Body<'_>) -> Result<&'b [u8], WriteError> {
    let header = Header {
        spi_i: IkeSpi(1),
        spi_r: IkeSpi::NONE,
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange: ExchangeType::IKE_AUTH,
        flags: Flags::default(),
        message_id: 0,
        length: 0,
    };
    let mut writer = Writer::new(buf, &header)?;
    match body {
        Body::Sa(sa) => write_sa(&mut writer, sa)?,
        Body::Ke(ke) => writer.ke(ke)?,
        Body::IdI(id) => writer.id_i(id)?,
        Body::IdR(id) => writer.id_r(id)?,
        Body::Cert(cert) => writer.cert(cert)?,
        Body::CertReq(request) => writer.certreq(request)?,
        Body::Auth(auth) => match auth.signature() {
            Some(signature) => writer.auth_signature(&signature)?,
            None => writer.auth(auth)?,
        },
        Body::Nonce(nonce) => writer.nonce(nonce)?,
        Body::Notify(notify) => writer.notify(notify)?,
        Body::Delete(delete) => writer.delete(delete)?,
        Body::Vendor(vendor) => writer.vendor(vendor)?,
        Body::TsI(ts) => writer.ts_i(&ts.selectors().collect::<Vec<Selector<'_>>>())?,
        Body::TsR(ts) => writer.ts_r(&ts.selectors().collect::<Vec<Selector<'_>>>())?,
        Body::Cp(cp) => writer.cp(cp.kind, &cp.attributes().collect::<Vec<_>>())?,
        Body::Eap(eap) => writer.eap(eap)?,
        Body::Unknown(bytes) => writer.other(kind, false, bytes)?,
        Body::Encrypted(_) => unreachable!("encrypted payloads are not written this way"),
    }
    Ok(&writer.finish()?[HEADER_LEN + 4..])
}

fn write_sa(writer: &mut Writer<'_>, sa: &Sa<'_>) -> Result<(), WriteError> {
    let proposals: Vec<Proposal<'_>> = sa.proposals().collect();
    let attributes: Vec<Vec<Vec<Attribute<'_>>>> = proposals
        .iter()
        .map(|proposal| proposal.transforms().map(|transform| transform.attributes().collect()).collect())
        .collect();
    let transforms: Vec<Vec<TransformRepr<'_>>> = proposals
        .iter()
        .zip(&attributes)
        .map(|(proposal, attributes)| {
            proposal
                .transforms()
                .zip(attributes)
                .map(|(transform, attributes)| TransformRepr {
                    kind: transform.kind,
                    id: transform.id,
                    attributes,
                })
                .collect()
        })
        .collect();
    let reprs: Vec<ProposalRepr<'_>> = proposals
        .iter()
        .zip(&transforms)
        .map(|(proposal, transforms)| {
            let Proposal { number, protocol, spi, .. } = *proposal;
            ProposalRepr { number, protocol, spi, transforms }
        })
        .collect();
    writer.sa(&reprs)
}

/// Body of a valid payload with zeros in reserved fields (RFC 7296 section 2.5).
fn canonical(payload: &Payload<'_>) -> Vec<u8> {
    let mut body = payload.body.to_vec();
    match payload.kind.0 {
        33 => canonical_sa(&mut body),
        34 => body[2..4].fill(0),
        35 | 36 | 39 | 44 | 45 => body[1..4].fill(0),
        // Section 3.10: the protocol ID is significant only with an SPI.
        41 if body[1] == 0 => body[0] = 0,
        47 => {
            body[1..4].fill(0);
            let mut at = 4;
            while at < body.len() {
                body[at] &= 0x7f;
                at += 4 + usize::from(u16::from_be_bytes([body[at + 2], body[at + 3]]));
            }
        }
        _ => {}
    }
    body
}

fn canonical_sa(body: &mut [u8]) {
    let len = |body: &[u8], at: usize| usize::from(u16::from_be_bytes([body[at + 2], body[at + 3]]));
    let mut proposal = 0;
    while proposal < body.len() {
        body[proposal + 1] = 0;
        let end = proposal + len(body, proposal);
        let mut transform = proposal + 8 + usize::from(body[proposal + 6]);
        while transform < end {
            body[transform + 1] = 0;
            body[transform + 5] = 0;
            transform += len(body, transform);
        }
        proposal = end;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    bodies().into_iter().map(|(kind, body)| [&[kind, 0], &body[..]].concat()).collect()
}

/// A valid payload of each type.
pub(super) fn bodies() -> Vec<(u8, Vec<u8>)> {
    let transforms = [
        &[3, 0, 0, 16, 1, 0, 0, 20, 0x80, 14, 1, 0, 0x40, 1, 0, 0][..],
        &[3, 0, 0, 8, 4, 0, 0, 31, 0, 0, 0, 8, 5, 0, 0, 1],
    ]
    .concat();
    let first = [&[2, 0, 0, 44, 1, 3, 4, 3, 9, 9, 9, 9][..], &transforms].concat();
    let sa = [&first[..], &[0, 0, 0, 16, 2, 1, 0, 1, 0, 0, 0, 8, 2, 0, 0, 5]].concat();
    let v4 = [7, 17, 0, 16, 0, 1, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2];
    let v6 = [&[8, 0, 0, 40, 0, 0, 0xff, 0xff][..], &[1; 16], &[2; 16]].concat();
    vec![
        (33, sa),
        (34, [&[0, 31, 0, 0][..], &[7; 32]].concat()),
        (35, b"\x02\0\0\0example.com".to_vec()),
        (36, vec![1, 0, 0, 0, 192, 0, 2, 1]),
        (37, [&[12][..], &[1; 20], b"http://example.com"].concat()),
        (38, [&[4][..], &[2; 40]].concat()),
        (39, [&[14, 0, 0, 0, 2, 0x30, 0][..], &[3; 64]].concat()),
        (40, vec![4; 32]),
        (41, [&[0, 0, 0x40, 4][..], &[5; 20]].concat()),
        (41, vec![3, 4, 0x40, 9, 1, 2, 3, 4]),
        (41, vec![0, 0, 0x40, 0x2f, 0, 2, 0, 4]),
        (
            41,
            [&[0, 0, 0x40, 0x20, 0x80, 1, 0, 15, 0x80, 2, 1, 1][..], &[0x80, 3, 0, 12, 0x80, 4, 0, 4]]
                .concat(),
        ),
        (42, vec![3, 4, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]),
        (43, b"vendor".to_vec()),
        (44, [&[2, 0, 0, 0], &v4[..], &v6].concat()),
        (45, [&[1, 0, 0, 0], &v6[..]].concat()),
        (47, [&[1, 0, 0, 0, 0, 1, 0, 0, 0, 15, 0, 17][..], &[8; 17]].concat()),
        (48, vec![1, 1, 0, 6, 1, 2]),
        (200, vec![9; 3]),
        (53, [&[0, 1, 0, 2][..], &[10; 48], &[3]].concat()),
        (46, [&[10; 48][..], &[3]].concat()),
    ]
}
