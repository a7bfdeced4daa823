//! NIST vectors: CAVP for GCM, CCM, CBC and 3DES, OpenSSL's for Camellia, SP 800-38B for CMAC, and RFC
//! vectors in the same format. The files have the format `.rsp`: paragraphs of `Name = hex` lines, `[Name =
//! value]` headings, `#` comments.

use crate::check::{self, AeadCase, CipherCase, MacCase};
use crate::report::{Family, Report};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind, Provider};

macro_rules! data {
    ($name:literal) => {
        ($name, include_str!(concat!("../data/cavp/", $name)))
    };
}

type File = (&'static str, &'static str);

const GCM: [File; 6] = [
    data!("gcmEncryptExtIV128.iv96.rsp"),
    data!("gcmEncryptExtIV192.iv96.rsp"),
    data!("gcmEncryptExtIV256.iv96.rsp"),
    data!("gcmDecrypt128.iv96.rsp"),
    data!("gcmDecrypt192.iv96.rsp"),
    data!("gcmDecrypt256.iv96.rsp"),
];
const CCM: [File; 3] = [data!("VNT128.rsp"), data!("VNT192.rsp"), data!("VNT256.rsp")];
const CBC: [File; 9] = [
    data!("CBCKeySbox128.rsp"),
    data!("CBCKeySbox192.rsp"),
    data!("CBCKeySbox256.rsp"),
    data!("CBCMMT128.rsp"),
    data!("CBCMMT192.rsp"),
    data!("CBCMMT256.rsp"),
    data!("CBCVarKey128.rsp"),
    data!("CBCVarKey192.rsp"),
    data!("CBCVarKey256.rsp"),
];
const CTR: [File; 3] = [data!("aes-128-ctr.txt"), data!("aes-192-ctr.txt"), data!("aes-256-ctr.txt")];
const CAMELLIA: File = data!("camellia-cbc.txt");
const TRIPLE_DES: File = data!("TCBCMMT3.rsp");
const CMAC: File = data!("nist-800-38b-aes128.txt");
const HMAC: [(File, MacKind); 5] = [
    (data!("rfc-2202-md5.txt"), MacKind::HmacMd5),
    (data!("rfc-2202-sha1.txt"), MacKind::HmacSha1),
    (data!("rfc-4231-sha256.txt"), MacKind::HmacSha256),
    (data!("rfc-4231-sha384.txt"), MacKind::HmacSha384),
    (data!("rfc-4231-sha512.txt"), MacKind::HmacSha512),
];

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend(GCM.map(|file| gcm(provider, file)));
    report.families.extend(CCM.map(|file| ccm(provider, file)));
    report.families.extend(CBC.map(|file| cipher(provider, file, CipherAlg::AesCbc)));
    report.families.extend(CTR.map(|file| cipher(provider, file, CipherAlg::AesCtr)));
    report.families.push(cipher(provider, CAMELLIA, CipherAlg::CamelliaCbc));
    report.families.push(triple_des(provider));
    report.families.push(cmac(provider));
    report.families.extend(HMAC.map(|(file, kind)| hmac(provider, file, kind)));
}

/// Runs one or a few files of each algorithm, without the long files.
pub(crate) fn run_brief(provider: &dyn Provider, report: &mut Report) {
    let messages = CBC.into_iter().filter(|(name, _)| name.contains("MMT"));
    report.families.extend(CCM.map(|file| ccm(provider, file)));
    report.families.extend(messages.map(|file| cipher(provider, file, CipherAlg::AesCbc)));
    report.families.extend(CTR.map(|file| cipher(provider, file, CipherAlg::AesCtr)));
    report.families.push(cmac(provider));
}

fn family(name: &str) -> Family {
    Family::new(&format!("cavp/{name}"))
}

fn id(record: &Record) -> String {
    format!("line {}", record.line)
}

fn aes_bits(key: &[u8]) -> AesBits {
    AesBits::from_bytes(key.len()).unwrap()
}

fn gcm(provider: &dyn Provider, (name, text): File) -> Family {
    let mut family = family(name);
    for record in records(text, "Count") {
        let valid = !record.has("FAIL");
        let key = record.bytes("Key");
        let tag = record.bytes("Tag");
        let case = AeadCase {
            id: id(&record),
            key: &key,
            nonce: &record.bytes("IV"),
            aad: &record.bytes("AAD"),
            plain: &if valid { record.bytes("PT") } else { Vec::new() },
            cipher: &record.bytes("CT"),
            tag: &tag,
            valid,
        };
        check::aead(&mut family, provider, AeadAlg::aes_gcm(aes_bits(&key), tag.len()), &case);
    }
    family
}

/// The files contain all nonce lengths; ESP uses 11 bytes.
fn ccm(provider: &dyn Provider, (name, text): File) -> Family {
    let mut family = family(name);
    for record in records(text, "Count") {
        let key = record.bytes("Key");
        let sealed = record.bytes("CT");
        let (cipher, tag) = sealed.split_at(record.number("Plen"));
        let case = AeadCase {
            id: id(&record),
            key: &key,
            nonce: &record.bytes("Nonce"),
            aad: &record.bytes("Adata"),
            plain: &record.bytes("Payload"),
            cipher,
            tag,
            valid: true,
        };
        check::aead(&mut family, provider, AeadAlg::aes_ccm(aes_bits(&key), tag.len()), &case);
    }
    family
}

fn cipher(provider: &dyn Provider, (name, text): File, alg: fn(AesBits) -> CipherAlg) -> Family {
    let mut family = family(name);
    for record in records(text, "Count") {
        let key = record.bytes("Key");
        cipher_case(&mut family, provider, alg(aes_bits(&key)), &key, &record);
    }
    family
}

fn triple_des(provider: &dyn Provider) -> Family {
    let (name, text) = TRIPLE_DES;
    let mut family = family(name);
    for record in records(text, "Count") {
        let key = ["Key1", "Key2", "Key3"].map(|part| record.bytes(part)).concat();
        cipher_case(&mut family, provider, CipherAlg::TripleDesCbc, &key, &record);
    }
    family
}

/// Runs a record in the format of the cipher files.
pub(crate) fn cipher_case(
    family: &mut Family,
    provider: &dyn Provider,
    alg: CipherAlg,
    key: &[u8],
    record: &Record,
) {
    let case = CipherCase {
        id: id(record),
        key,
        iv: &record.bytes("IV"),
        plain: &record.bytes("Plaintext"),
        cipher: &record.bytes("Ciphertext"),
    };
    check::cipher(family, provider, alg, &case);
}

fn cmac(provider: &dyn Provider) -> Family {
    let (name, text) = CMAC;
    let mut family = family(name);
    for record in records(text, "Count") {
        mac_case(
            &mut family,
            provider,
            MacKind::AesCmac,
            MacFields { message: "Message", tag: "Output" },
            &record,
        );
    }
    family
}

/// Runs each vector with the full tag, and with the tag truncated as in the RFCs.
fn hmac(provider: &dyn Provider, (name, text): File, kind: MacKind) -> Family {
    let mut family = family(name);
    for record in records(text, "Msg") {
        mac_case(&mut family, provider, kind, MacFields { message: "Msg", tag: "MD" }, &record);
        let key = record.bytes("Key");
        let cut = &record.bytes("MD")[..kind.standard_tag_len()];
        let case = MacCase {
            id: format!("{}, cut", id(&record)),
            key: &key,
            nonce: &[],
            data: &record.bytes("Msg"),
            tag: cut,
            valid: true,
        };
        check::mac(&mut family, provider, Ok(MacAlg::standard(kind)), &case);
    }
    family
}

/// Names of the fields of a MAC vector.
#[derive(Clone, Copy)]
pub(crate) struct MacFields {
    pub(crate) message: &'static str,
    pub(crate) tag: &'static str,
}

/// Runs a record with these names of message and tag.
pub(crate) fn mac_case(
    family: &mut Family,
    provider: &dyn Provider,
    kind: MacKind,
    fields: MacFields,
    record: &Record,
) {
    let tag = record.bytes(fields.tag);
    let case = MacCase {
        id: id(record),
        key: &record.bytes("Key"),
        nonce: &[],
        data: &record.bytes(fields.message),
        tag: &tag,
        valid: true,
    };
    check::mac(family, provider, MacAlg::truncated(kind, tag.len()), &case);
}

/// A paragraph. Names that it lacks are looked up in previous paragraphs and headings.
pub(crate) struct Record {
    /// Line number of the start of the paragraph, to identify the case.
    pub(crate) line: usize,
    own: BTreeMap<String, String>,
    inherited: BTreeMap<String, String>,
}

/// Returns the paragraphs that contain `key`; names are not case-sensitive.
pub(crate) fn records(text: &str, key: &str) -> Vec<Record> {
    let mut before = BTreeMap::new();
    let mut records = Vec::new();
    for (line, own) in paragraphs(text) {
        if own.contains_key(&key.to_lowercase()) {
            records.push(Record { line, own: own.clone(), inherited: before.clone() });
        }
        before.extend(own);
    }
    records
}

fn paragraphs(text: &str) -> Vec<(usize, BTreeMap<String, String>)> {
    let mut paragraphs = vec![(1, BTreeMap::new())];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            paragraphs.push((number + 2, BTreeMap::new()));
        } else if !line.starts_with('#') {
            let line = line.trim_start_matches('[').trim_end_matches(']');
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let fields = &mut paragraphs.last_mut().unwrap().1;
            fields.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    paragraphs
}

impl Record {
    /// Whether the paragraph itself contains the name, e.g. a `FAIL` line.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.own.contains_key(&name.to_lowercase())
    }

    /// Value as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        let name = name.to_lowercase();
        let value = self.own.get(&name).or_else(|| self.inherited.get(&name));
        value.unwrap_or_else(|| panic!("the record at line {} has no {name}", self.line))
    }

    /// Value as a decimal number.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.text(name).parse().unwrap()
    }

    /// Value as a byte string in hex.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        hex(self.text(name))
    }
}

/// Decodes hex.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii(), "not hex: {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_inherits_missing_names() {
        let text = "# c\n[Len = 8]\n\nKey = 0A\n\nCount = 0\nMsg =\n\nCount = 1\nMsg = ff\nFAIL\n";
        let records = records(text, "count");
        assert_eq!(records.len(), 2);
        assert_eq!((records[1].line, records[1].number("LEN"), records[1].bytes("key")), (9, 8, vec![10]));
        assert_eq!((records[0].bytes("Msg"), records[1].bytes("Msg")), (vec![], vec![255]));
        assert_eq!((records[0].has("fail"), records[1].has("fail")), (false, true));
    }
}
