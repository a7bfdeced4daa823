//! Messages of etcd's JSON gateway (etcd 3.4 and 3.5, `rpc.proto` in the JSON mapping of proto3): numbers of
//! 64 bits are strings, bytes are base64, and members with the value zero are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casemate_store::{Comparison, Entry, Key, Lease, Range, Revision, Transaction, Write};
use serde_json::{Value, json};
use std::str::FromStr;

/// First bytes of the keys of a cell. Not empty, and all bytes are below 0xFF.
#[derive(Debug, Clone)]
pub(crate) struct Namespace(Vec<u8>);

impl Namespace {
    /// `prefix` is checked by the configuration: printable ASCII.
    pub(crate) fn new(prefix: &str) -> Self {
        Self(prefix.as_bytes().to_vec())
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.0, key].concat()
    }

    fn encoded(&self, key: &[u8]) -> String {
        STANDARD.encode(self.key(key))
    }

    /// The first key after all keys that begin with a prefix.
    fn end_of(&self, prefix: &[u8]) -> String {
        let mut end = self.key(prefix);
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        STANDARD.encode(end)
    }

    /// The first key of a range.
    fn start_of(&self, range: &Range) -> String {
        match &range.after {
            Some(after) if *after >= range.prefix => self.encoded(&[after.as_slice(), &[0]].concat()),
            _ => self.encoded(&range.prefix),
        }
    }

    /// Body of `/v3/kv/txn`.
    ///
    /// etcd executes a transaction without operations on one member, which may be behind the others. A range
    /// among the operations of the other branch makes it linearizable.
    pub(crate) fn transaction(&self, transaction: &Transaction) -> Value {
        let comparisons: Vec<Value> = transaction.comparisons.iter().map(|c| self.comparison(c)).collect();
        let writes: Vec<Value> = transaction.writes.iter().map(|write| self.write(write)).collect();
        let read = json!([{ "request_range": { "key": self.encoded(&[0]), "count_only": true } }]);
        let is_read_only = writes.is_empty();
        let success = if is_read_only { read.clone() } else { Value::Array(writes) };
        let failure = if is_read_only { read } else { json!([]) };
        json!({ "compare": comparisons, "success": success, "failure": failure })
    }

    fn comparison(&self, comparison: &Comparison) -> Value {
        match comparison {
            Comparison::Created(key, revision) => json!({
                "key": self.encoded(key), "result": "EQUAL",
                "target": "CREATE", "create_revision": revision.0.to_string(),
            }),
            Comparison::Changed(key, revision) => json!({
                "key": self.encoded(key), "result": "EQUAL",
                "target": "MOD", "mod_revision": revision.0.to_string(),
            }),
        }
    }

    fn write(&self, write: &Write) -> Value {
        match write {
            Write::Put { key, value, lease } => json!({ "request_put": {
                "key": self.encoded(key), "value": STANDARD.encode(value),
                "lease": lease.map_or(0, |lease| lease.0).to_string(),
            }}),
            Write::Delete(key) => json!({ "request_delete_range": { "key": self.encoded(key) } }),
        }
    }

    /// Body of `/v3/kv/range` for at most `limit` entries.
    pub(crate) fn range(&self, range: &Range, limit: usize) -> Value {
        json!({
            "key": self.start_of(range), "range_end": self.end_of(&range.prefix),
            "limit": limit.to_string(),
        })
    }

    /// Body of `/v3/watch`.
    pub(crate) fn watch(&self, prefix: &[u8], from: Revision) -> Value {
        json!({ "create_request": {
            "fragment": true, "start_revision": from.0.max(1).to_string(),
            "key": self.encoded(prefix), "range_end": self.end_of(prefix),
        }})
    }

    /// Key of an entry below the prefix of the cell.
    fn stripped(&self, kv: &Value) -> Option<Key> {
        let key = bytes(kv, "key")?;
        key.strip_prefix(self.0.as_slice()).map(<[u8]>::to_vec)
    }

    fn entry(&self, kv: &Value) -> Option<Entry> {
        let lease = number::<i64>(kv, "lease")?;
        Some(Entry {
            key: self.stripped(kv)?,
            value: bytes(kv, "value")?,
            created: Revision(number(kv, "create_revision")?),
            changed: Revision(number(kv, "mod_revision")?),
            lease: (lease != 0).then_some(Lease(lease)),
        })
    }

    /// Entries of a response to a range, and whether there are more; `None` if it is malformed.
    pub(crate) fn entries(&self, response: &Value) -> Option<(Vec<Entry>, bool)> {
        let entries = array(response, "kvs")?.iter().map(|kv| self.entry(kv)).collect::<Option<_>>()?;
        Some((entries, flag(response, "more")))
    }

    /// An event of a watch; `None` if it is malformed.
    pub(crate) fn event(&self, event: &Value) -> Option<Event> {
        let kv = event.get("kv")?;
        match event.get("type").and_then(Value::as_str) {
            None | Some("PUT") => self.entry(kv).map(Event::Put),
            Some("DELETE") => Some(Event::Deleted(self.stripped(kv)?, Revision(number(kv, "mod_revision")?))),
            Some(_) => None,
        }
    }
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Put(Entry),
    Deleted(Key, Revision),
}

impl Event {
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.changed,
            Self::Deleted(_, revision) => *revision,
        }
    }

    /// Bytes of the key and the value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(entry) => entry.key.len().saturating_add(entry.value.len()),
            Self::Deleted(key, _) => key.len(),
        }
    }
}

/// Body of `/v3/kv/txn` that executes several transactions as one.
pub(crate) fn batch(transactions: Vec<Value>) -> Value {
    let nested: Vec<Value> =
        transactions.into_iter().map(|transaction| json!({ "request_txn": transaction })).collect();
    json!({ "compare": [], "success": nested, "failure": [] })
}

/// Whether each of `count` transactions of a [`batch`] has succeeded; `None` if the response is malformed.
pub(crate) fn batch_results(response: &Value, count: usize) -> Option<Vec<bool>> {
    let responses = array(response, "responses")?;
    let result = |response: &Value| response.get("response_txn").map(|result| flag(result, "succeeded"));
    let results: Vec<bool> = responses.iter().map(result).collect::<Option<_>>()?;
    (results.len() == count).then_some(results)
}

/// Header of a response: the state of the cluster as the member knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) cluster: u64,
    pub(crate) revision: u64,
}

/// The header of a response; `None` if it is malformed.
pub(crate) fn header(response: &Value) -> Option<Header> {
    let header = response.get("header")?;
    let cluster = number(header, "cluster_id").filter(|&cluster| cluster != 0)?;
    Some(Header { cluster, revision: number(header, "revision")? })
}

/// An error that etcd reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Status code of gRPC.
    pub(crate) code: u64,
    pub(crate) message: String,
}

/// The error in the body of a response whose status is not 200; `None` if it is not from etcd.
pub(crate) fn fault(response: &Value) -> Option<Fault> {
    let code = response.get("code").or_else(|| response.get("grpc_code"))?.as_u64()?;
    let message = response.get("message").and_then(Value::as_str).unwrap_or_default();
    Some(Fault { code, message: message.into() })
}

/// A number, which is left out if it is zero; `None` if it is malformed.
pub(crate) fn number<T: FromStr + Default>(object: &Value, name: &str) -> Option<T> {
    match object.get(name) {
        None => Some(T::default()),
        Some(value) => value.as_str()?.parse().ok(),
    }
}

/// A truth value, which is left out if it is false.
pub(crate) fn flag(object: &Value, name: &str) -> bool {
    object.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// An array, which is left out if it is empty; `None` if it is malformed.
pub(crate) fn array<'v>(object: &'v Value, name: &str) -> Option<&'v [Value]> {
    match object.get(name) {
        None => Some(&[]),
        Some(value) => value.as_array().map(Vec::as_slice),
    }
}

fn bytes(object: &Value, name: &str) -> Option<Vec<u8>> {
    match object.get(name) {
        None => Some(Vec::new()),
        Some(value) => STANDARD.decode(value.as_str()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Vec<u8> {
        STANDARD.decode(text).unwrap()
    }

    #[test]
    fn ranges_end_after_the_last_key_with_the_prefix() {
        let namespace = Namespace::new("c/");
        let end = |prefix: &[u8]| decoded(&namespace.end_of(prefix));
        assert_eq!(end(b"ab"), b"c/ac");
        assert_eq!(end(b""), b"c0");
        assert_eq!(end(&[1, 0xFF, 0xFF]), b"c/\x02");
        assert_eq!(end(&[0xFF]), b"c0");
        let start = |prefix: &[u8], after: Option<&[u8]>| {
            let after = after.map(<[u8]>::to_vec);
            decoded(&namespace.start_of(&Range { prefix: prefix.into(), after, limit: 1 }))
        };
        assert_eq!(start(b"b", None), b"c/b");
        assert_eq!(start(b"b", Some(b"b1")), b"c/b1\0");
        assert_eq!(start(b"b", Some(b"a")), b"c/b");
    }

    /// Without a range, etcd would execute the transaction on one member, which may be behind.
    #[test]
    fn transaction_without_writes_has_a_range_in_both_branches() {
        let compared = vec![Comparison::Created(b"a".to_vec(), Revision(0))];
        let body = Namespace::new("c/").transaction(&Transaction { comparisons: compared, writes: vec![] });
        for branch in ["success", "failure"] {
            assert!(body[branch][0].get("request_range").is_some(), "{body}");
        }
        assert_eq!(body["compare"][0]["create_revision"], "0");
    }

    #[test]
    fn numbers_are_strings_and_zero_is_left_out() {
        let object = json!({ "a": "12", "b": 12, "c": "x", "d": "-1" });
        assert_eq!(number::<u64>(&object, "a"), Some(12));
        assert_eq!(number::<u64>(&object, "none"), Some(0));
        assert_eq!(number::<u64>(&object, "b"), None);
        assert_eq!(number::<u64>(&object, "c"), None);
        assert_eq!(number::<u64>(&object, "d"), None);
        assert_eq!(header(&json!({ "header": { "revision": "1" } })), None, "no cluster");
    }

    #[test]
    fn results_of_a_batch_are_complete() {
        let response = json!({ "responses": [
            { "response_txn": { "succeeded": true } }, { "response_txn": { "responses": [] } },
        ]});
        assert_eq!(batch_results(&response, 2), Some(vec![true, false]));
        assert_eq!(batch_results(&response, 3), None);
        assert_eq!(batch_results(&json!({ "responses": [{ "response_put": {} }] }), 1), None);
    }
}
