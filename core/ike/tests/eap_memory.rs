//! Memory of half-open IKE SAs whose peers hold EAP conversations with TLS open: what these hold is counted
//! and limited before a peer is authenticated. A session without cryptography is in place of TLS.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[path = "hostile/forge.rs"]
mod forge;
mod pair;

use casemate_crypto::SecretBytes;
use casemate_eap::{EapCredentials, EapFault, Method, NoCredentials, TlsEstablished, TlsSession};
use casemate_ike::config::{
    AddrPattern, Connection, EapIdentity, Identity, LocalEap, LocalMethod, RemoteEap, RemoteMethod,
};
use casemate_ike::{Credentials, EapTls, Event, IkeSettings, Path, SharedKeys, StateFault};
use casemate_test_support::allocator::{TestAllocator, bytes_in_use};
use casemate_wire::ike::{ExchangeType, Header, IkeSpi, NotifyType, PayloadType};
use forge::{Attack, MessageForger, Raw, give_on, notifies, plain, read_plain};
use pair::{IkePeer, Pair, RIGHT, connection, key, without_certificates};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zeroize::Zeroizing;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

/// Bytes of a half-open IKE SA, its conversation, its indexes and its allocator overhead besides what is
/// counted.
const FIXED: usize = 4_000;
/// Bytes of tables and of what the test records.
const ONCE: usize = 8_000;
/// Bytes that a session holds.
const SESSION: usize = 3_000;
/// Bytes of an EAP fragment.
const PIECE: usize = 5_000;

/// A session that answers each message with one byte.
struct Session {
    buffer: Vec<u8>,
    has_answer: bool,
    /// Length of the last message.
    received: Arc<AtomicUsize>,
}

impl TlsSession for Session {
    fn receive(&mut self, records: &[u8]) -> Result<(), EapFault> {
        self.received.store(records.len(), Ordering::Relaxed);
        self.has_answer = true;
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn take_output(&mut self) -> Vec<u8> {
        vec![7; usize::from(std::mem::take(&mut self.has_answer))]
    }

    fn established(&self) -> Option<TlsEstablished> {
        None
    }

    fn export(&self, _: &str, _: Option<&[u8]>, _: &mut [u8]) -> Result<(), EapFault> {
        Err(EapFault::MissingKey)
    }

    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        Zeroizing::default()
    }

    fn write(&mut self, _: &[u8]) -> Result<(), EapFault> {
        Ok(())
    }
}

struct Keys {
    shared: SharedKeys,
    received: Arc<AtomicUsize>,
}

impl Credentials for Keys {
    fn shared_key(&self, on: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        self.shared.shared_key(on, local, remote)
    }

    without_certificates!();

    fn eap(&self) -> &dyn EapCredentials {
        &NoCredentials
    }

    fn eap_tls(&self, _: &Connection, _: &EapTls<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        let received = self.received.clone();
        Ok(Box::new(Session { buffer: vec![1; SESSION], has_answer: false, received }))
    }
}

/// A gateway, the first request of a client, and the payloads of its first IKE_AUTH request.
struct Flood {
    pair: Pair,
    header: Header,
    first: Vec<Raw>,
    auth: Vec<Raw>,
    last: u64,
    received: Arc<AtomicUsize>,
}

/// A client in the middle of EAP-TTLS.
struct Client {
    forger: MessageForger,
    remote: String,
    message_id: u32,
    /// Identifier of the last EAP request.
    identifier: u8,
}

impl Flood {
    fn new(settings: IkeSettings) -> Self {
        let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
        let methods = vec![Method::Ttls];
        left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: methods.clone() });
        right.remote.method =
            RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, methods, groups: Vec::new() });
        right.remote_addrs = vec![AddrPattern::Any];
        let received = Arc::new(AtomicUsize::new(0));
        let mut pair = Pair::new(left, right.clone());
        let mut request = Pair::new((*pair.left.ike.connections()[0]).clone(), right.clone());
        let (header, first) = read_plain(&forge::first_request(&mut request));
        pair.right.ike.report_keys(true);
        let (_, auth) =
            Attack::half_open(Pair::new((*pair.left.ike.connections()[0]).clone(), right.clone()));
        pair.right = IkePeer::with(settings, RIGHT, 2, right);
        pair.right.keys = Box::new(Keys { shared: key(b"a key that both have"), received: received.clone() });
        pair.right.ike.report_keys(true);
        // Measured is the engine, and not the record of the test.
        pair.right.events.reserve(10_000);
        Self { pair, header, first, auth, last: 0, received }
    }

    fn path(&self, remote: &str) -> Path {
        Path { local: (self.pair.right.addr, 500).into(), remote: remote.parse().unwrap() }
    }

    /// Begins an IKE SA from `remote`, unless the request is dropped.
    fn begin(&mut self, remote: &str) -> Option<Client> {
        self.last += 1;
        let header = Header { spi_i: IkeSpi(self.last), ..self.header };
        let (mut payloads, path) = (self.first.clone(), self.path(remote));
        for _ in 0..2 {
            let known = self.pair.right.events.len();
            let answers = give_on(&mut self.pair, &plain(&header, &payloads), path);
            let answered = answers.first().map(|answer| notifies(&read_plain(answer).1));
            if let Some([(NotifyType::COOKIE, cookie)]) = answered.as_deref() {
                payloads.insert(0, Raw::notify(NotifyType::COOKIE, cookie));
                continue;
            }
            let keys = self.pair.right.events.drain(known..).find_map(|event| match event {
                Event::Keys(keys) => Some(*keys),
                _ => None,
            });
            let forger = MessageForger::new(keys?, true);
            return Some(Client { forger, remote: remote.into(), message_id: 1, identifier: 0 });
        }
        panic!("the cookie is not accepted");
    }

    /// Sends an IKE_AUTH request. Returns the code of the EAP packet in the response.
    fn ask(&mut self, client: &mut Client, inside: &[Raw]) -> Option<u8> {
        let header = client.forger.header(ExchangeType::IKE_AUTH, client.message_id, false);
        client.message_id += 1;
        let message = client.forger.seal(&header, inside);
        let path = self.path(&client.remote);
        let known = self.pair.right.events.len();
        let answers = give_on(&mut self.pair, &message, path);
        self.pair.right.events.truncate(known);
        // A host that has closed the IKE SA says so in clear.
        let (_, payloads) = client.forger.try_open(answers.first()?)?;
        let eap = payloads.iter().find(|payload| payload.kind == PayloadType::EAP)?;
        client.identifier = eap.body[1];
        Some(eap.body[0])
    }

    /// Begins EAP.
    fn authenticate(&mut self, client: &mut Client) -> Option<u8> {
        let auth = self.auth.clone();
        self.ask(client, &auth)
    }

    /// Sends a fragment of a TLS message of `total` bytes. `flags` are those of EAP-TTLS.
    fn send(&mut self, client: &mut Client, flags: u8, total: usize, len: usize) -> Option<u8> {
        let total = u32::try_from(total).unwrap().to_be_bytes();
        let data = [&[21, flags][..], if flags & 0x80 == 0 { &[] } else { &total }, &vec![9; len]].concat();
        let eap_len = u16::try_from(4 + data.len()).unwrap().to_be_bytes();
        let packet = [&[2, client.identifier][..], &eap_len, &data].concat();
        self.ask(client, &[Raw::new(PayloadType::EAP, &packet)])
    }

    fn check_limit(&self, settings: &IkeSettings, what: &str) {
        let held = self.pair.right.ike.half_open_bytes();
        assert!(held <= settings.max_half_open_bytes, "{what}: {held} bytes");
    }

    fn check_heap(&self, base: i64, what: &str) {
        let ike = &self.pair.right.ike;
        let (count, held) = (ike.half_open_count(), ike.half_open_bytes());
        let used = usize::try_from(bytes_in_use() - base).unwrap();
        let most = held + FIXED * count + ONCE;
        assert!(used <= most, "{what}: {used} bytes on the heap for {count} IKE SAs with {held} bytes");
    }
}

/// EAP codes (RFC 3748 section 4).
const REQUEST: Option<u8> = Some(1);
const FAILURE: Option<u8> = Some(4);
/// Flags: the length is included, and more fragments follow.
const FIRST: u8 = 0xC0;
const MORE: u8 = 0x40;

/// Each source sends all fragments of a message but the last one.
#[test]
fn the_bytes_of_conversations_are_limited() {
    let settings = IkeSettings { max_half_open_bytes: 500_000, ..IkeSettings::SERVER };
    let mut flood = Flood::new(settings);
    let base = bytes_in_use();
    let (mut clients, mut refused) = (Vec::with_capacity(200), 0);
    for host in 1..=200 {
        let remote = format!("192.0.2.{host}:500");
        let Some(mut client) = flood.begin(&remote) else {
            refused += 1;
            continue;
        };
        let mut step = flood.authenticate(&mut client);
        for piece in 0..3 {
            if step == REQUEST {
                step = flood.send(&mut client, if piece == 0 { FIRST } else { MORE }, 20_000, PIECE);
            }
            flood.check_limit(&settings, &remote);
            flood.check_heap(base, &remote);
        }
        if step != REQUEST {
            refused += 1;
        }
        clients.push(client.message_id);
    }
    let ike = &flood.pair.right.ike;
    assert!(ike.half_open_bytes() > settings.max_half_open_bytes * 6 / 10, "{}", ike.half_open_bytes());
    assert!(refused > 100, "{refused}");
    assert!(ike.faults().state(StateFault::SourceLimit) > 50, "{:?}", ike.faults());
    assert!(flood.begin("198.51.100.1:500").is_some(), "another source is still served");
}

/// All have begun before any of them sends more: there is room for none of them.
#[test]
fn a_conversation_that_has_begun_does_not_exceed_the_limit() {
    let settings = IkeSettings { max_half_open_bytes: 200_000, ..IkeSettings::SERVER };
    let mut flood = Flood::new(settings);
    let hosts = (1..=60).map(|host| format!("192.0.2.{host}:500"));
    let mut clients: Vec<Client> = hosts.filter_map(|remote| flood.begin(&remote)).collect();
    assert_eq!(clients.len(), 60);
    let mut begun = 0;
    for client in &mut clients {
        begun += usize::from(flood.authenticate(client) == REQUEST);
        flood.check_limit(&settings, &client.remote);
    }
    for client in &mut clients {
        flood.send(client, FIRST, 20_000, PIECE);
        flood.check_limit(&settings, &client.remote);
    }
    assert!((20..60).contains(&begun), "{begun}");
}

/// The chain of certificates of a client has to fit, and not more.
#[test]
fn a_message_before_authentication_is_as_long_as_a_chain_of_certificates() {
    let settings = IkeSettings::SERVER;
    let most = settings.max_unauthenticated_bytes;
    let mut flood = Flood::new(settings);
    let mut client = flood.begin("192.0.2.1:500").unwrap();
    assert_eq!(flood.authenticate(&mut client), REQUEST);
    for sent in (0..most).step_by(PIECE) {
        let len = PIECE.min(most - sent);
        let is_last = sent + len == most;
        let flags = if sent == 0 { FIRST } else { u8::from(!is_last) * MORE };
        assert_eq!(flood.send(&mut client, flags, most, len), REQUEST, "{sent}");
    }
    assert_eq!(flood.received.load(Ordering::Relaxed), most);

    let mut client = flood.begin("192.0.2.2:500").unwrap();
    assert_eq!(flood.authenticate(&mut client), REQUEST);
    let before = flood.pair.right.ike.half_open_count();
    assert_eq!(flood.send(&mut client, FIRST, most + 1, PIECE), FAILURE);
    assert_eq!(flood.pair.right.ike.half_open_count(), before - 1);
    assert_eq!(flood.pair.right.ike.faults().state(StateFault::EapFailed), 1);
}
