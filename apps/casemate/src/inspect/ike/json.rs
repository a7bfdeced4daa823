//! Payloads as JSON. Field names are those of RFC 7296 section 3, values those of the IANA registries.

use casemate_wire::ike::{
    Addresses, Body, Cp, Delete, Fault, Id, IdType, Notify, NotifyType, Payload, Proposal, Sa, Selector,
    Transform, Ts,
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A payload with the fields of its body. A malformed body is shown as its fault and its bytes.
pub(super) fn payload(payload: &Payload<'_>) -> Value {
    let mut object = Map::new();
    object.insert("type".into(), payload.kind.to_string().into());
    if payload.critical {
        object.insert("critical".into(), true.into());
    }
    match Body::parse(payload) {
        Ok(body) => object.extend(fields(&body)),
        Err(fault) => {
            object.insert("fault".into(), self::fault(&fault));
            object.insert("data".into(), hex(payload.body));
        }
    }
    object.into()
}

/// A protocol error of a peer.
pub(super) fn fault(fault: &Fault) -> Value {
    json!({ "name": fault.kind().name(), "text": fault.to_string() })
}

fn fields(body: &Body<'_>) -> Map<String, Value> {
    let value = match body {
        Body::Sa(sa) => json!({ "proposals": proposals(sa) }),
        Body::Ke(ke) => json!({ "method": ke.method.to_string(), "data": hex(ke.data) }),
        Body::IdI(id) | Body::IdR(id) => self::id(id),
        Body::Cert(cert) => json!({ "encoding": cert.encoding.to_string(), "data": hex(cert.data) }),
        Body::CertReq(request) => {
            json!({ "encoding": request.encoding.to_string(), "authorities": hex(request.authorities) })
        }
        Body::Auth(auth) => json!({ "method": auth.method.to_string(), "data": hex(auth.data) }),
        Body::Nonce(nonce) => json!({ "data": hex(nonce.data()) }),
        Body::Notify(notify) => self::notify(notify),
        Body::Delete(delete) => self::delete(delete),
        Body::Vendor(vendor) => json!({ "data": hex(vendor.0) }),
        Body::TsI(ts) | Body::TsR(ts) => json!({ "selectors": selectors(ts) }),
        Body::Cp(cp) => configuration(cp),
        Body::Eap(eap) => {
            json!({ "code": eap.code.to_string(), "identifier": eap.identifier, "data": hex(eap.data) })
        }
        Body::Encrypted(encrypted) => match encrypted.fragment {
            Some(fragment) => json!({ "number": fragment.number(), "total": fragment.total() }),
            None => json!({}),
        },
        Body::Unknown(data) => json!({ "data": hex(data) }),
    };
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn proposals(sa: &Sa<'_>) -> Vec<Value> {
    let proposal = |proposal: Proposal<'_>| {
        let mut object = Map::new();
        object.insert("number".into(), proposal.number.into());
        object.insert("protocol".into(), proposal.protocol.to_string().into());
        if !proposal.spi.is_empty() {
            object.insert("spi".into(), hex(proposal.spi));
        }
        let transforms: Vec<Value> =
            proposal.transforms().map(|transform| self::transform(&transform)).collect();
        object.insert("transforms".into(), transforms.into());
        Value::Object(object)
    };
    sa.proposals().map(proposal).collect()
}

fn transform(transform: &Transform<'_>) -> Value {
    let name = transform.kind.id_name(transform.id);
    let id = name.map_or_else(|| Value::from(transform.id), Value::from);
    match transform.key_length() {
        Some(bits) => json!({ "type": transform.kind.to_string(), "id": id, "key_length": bits }),
        None => json!({ "type": transform.kind.to_string(), "id": id }),
    }
}

fn id(id: &Id<'_>) -> Value {
    json!({ "id_type": id.kind.to_string(), "value": identity(id) })
}

/// The usual notation for address and name types, hexadecimal for others.
fn identity(id: &Id<'_>) -> Value {
    let address = |bytes: &[u8]| match (bytes.first_chunk::<4>(), <[u8; 16]>::try_from(bytes)) {
        (_, Ok(v6)) => Some(Ipv6Addr::from(v6).to_string()),
        (Some(v4), _) if bytes.len() == 4 => Some(Ipv4Addr::from(*v4).to_string()),
        _ => None,
    };
    let text = match id.kind {
        IdType::IPV4_ADDR | IdType::IPV6_ADDR => address(id.data),
        IdType::FQDN | IdType::RFC822_ADDR => str::from_utf8(id.data).ok().map(str::to_owned),
        _ => None,
    };
    text.map_or_else(|| hex(id.data), Value::from)
}

fn notify(notify: &Notify<'_>) -> Value {
    let mut object = Map::new();
    object.insert("notify".into(), notify.kind.to_string().into());
    if notify.protocol.0 != 0 {
        object.insert("protocol".into(), notify.protocol.to_string().into());
    }
    for (name, bytes) in [("spi", notify.spi), ("data", notify.data)] {
        if !bytes.is_empty() {
            object.insert(name.into(), hex(bytes));
        }
    }
    if notify.kind == NotifyType::PPK_IDENTITY {
        object.extend(ppk_id(notify.data));
    }
    object.into()
}

/// Fields of PPK_IDENTITY (RFC 8784 section 5.1): the type of the PPK_ID, and the PPK_ID as text if it is
/// printable. The data of a responder's notification is empty.
fn ppk_id(data: &[u8]) -> Option<(String, Value)> {
    let (kind, id) = data.split_first()?;
    let kind = match kind {
        1 => "PPK_ID_OPAQUE".into(),
        2 => "PPK_ID_FIXED".into(),
        other => Value::from(*other),
    };
    let text = str::from_utf8(id).ok().filter(|text| !text.chars().any(char::is_control));
    Some(("ppk_id".into(), json!({ "type": kind, "value": text.map_or_else(|| hex(id), Value::from) })))
}

fn delete(delete: &Delete<'_>) -> Value {
    let spis: Vec<Value> = delete.spis().map(hex).collect();
    json!({ "protocol": delete.protocol().to_string(), "spis": spis })
}

fn selectors(ts: &Ts<'_>) -> Vec<Value> {
    let one = |selector: Selector<'_>| match selector {
        Selector::Range(range) => {
            let (first, last) = match range.addresses {
                Addresses::V4 { start, end } => (start.to_string(), end.to_string()),
                Addresses::V6 { start, end } => (start.to_string(), end.to_string()),
            };
            let ports = [range.ports.start(), range.ports.end()];
            json!({ "first": first, "last": last, "protocol": range.protocol, "ports": ports })
        }
        Selector::Other { kind, data, .. } => json!({ "type": kind.to_string(), "data": hex(data) }),
    };
    ts.selectors().map(one).collect()
}

fn configuration(cp: &Cp<'_>) -> Value {
    let attributes: Vec<Value> = cp
        .attributes()
        .map(|attribute| json!({ "attribute": attribute.kind.to_string(), "value": hex(attribute.value) }))
        .collect();
    json!({ "kind": cp.kind.to_string(), "attributes": attributes })
}

/// Formats bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> Value {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}
