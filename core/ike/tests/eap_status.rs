//! The wait for the status of certificates in EAP-TLS, between complete engines. A session without
//! cryptography is in place of TLS.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_eap::{
    CertificateStatus, EapCredentials, EapFault, Method, NoCredentials, TlsEstablished, TlsRole, TlsSession,
    TlsVersion,
};
use casemate_ike::config::{
    Connection, EapIdentity, Identity, LocalEap, LocalMethod, RemoteEap, RemoteMethod,
};
use casemate_ike::{Credentials, DownReason, EapTls, IkeSaId, PeerFault, SharedKeys, StateFault};
use pair::{IkePeer, Pair, connection, key, without_certificates};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zeroize::Zeroizing;

/// The status of the other certificate, and the IKE SAs for which it was asked.
#[derive(Clone)]
struct Status(Arc<Mutex<(CertificateStatus, Vec<IkeSaId>)>>);

impl Status {
    fn new(answer: CertificateStatus) -> Self {
        Self(Arc::new(Mutex::new((answer, Vec::new()))))
    }

    fn set(&self, answer: CertificateStatus) {
        self.0.lock().unwrap().0 = answer;
    }

    fn asked(&self) -> Vec<IkeSaId> {
        self.0.lock().unwrap().1.clone()
    }
}

/// A handshake of one message of each side, the client's first.
struct Session {
    ike: IkeSaId,
    output: Vec<u8>,
    is_established: bool,
    is_server: bool,
    status: Status,
}

impl TlsSession for Session {
    fn receive(&mut self, _: &[u8]) -> Result<(), EapFault> {
        self.is_established = true;
        if self.is_server {
            self.output = b"server".into();
        }
        Ok(())
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    fn established(&self) -> Option<TlsEstablished> {
        let established = TlsEstablished { version: TlsVersion::V12, is_peer_certified: true };
        self.is_established.then_some(established)
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        assert!(self.is_established, "the other side has proved nothing");
        let mut known = self.status.0.lock().unwrap();
        known.1.push(self.ike);
        known.0
    }

    fn export(&self, _: &str, _: Option<&[u8]>, out: &mut [u8]) -> Result<(), EapFault> {
        out.fill(7);
        Ok(())
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
    status: Status,
}

impl EapCredentials for Keys {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        None
    }

    fn password(&self, _: &[u8]) -> Option<&SecretBytes> {
        None
    }
}

impl Credentials for Keys {
    fn shared_key(&self, on: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        self.shared.shared_key(on, local, remote)
    }

    without_certificates!();

    fn eap(&self) -> &dyn EapCredentials {
        &NoCredentials
    }

    fn eap_tls(&self, _: &Connection, session: &EapTls<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        let is_server = matches!(session.role, TlsRole::Server { .. });
        let output = if is_server { Vec::new() } else { b"client".into() };
        let (ike, status) = (session.ike, self.status.clone());
        Ok(Box::new(Session { ike, output, is_established: false, is_server, status }))
    }
}

/// A pair of which one side waits for the status of the other, and that status.
fn waiting_pair(waits_left: bool) -> (Pair, Status) {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    let methods = vec![Method::Tls];
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: methods.clone() });
    right.remote.method =
        RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, methods, groups: Vec::new() });
    let [waiting, other] = [CertificateStatus::Pending, CertificateStatus::Accepted].map(Status::new);
    let mut pair = Pair::new(left, right);
    let keys =
        |status: &Status| Box::new(Keys { shared: key(b"a key that both have"), status: status.clone() });
    let (of_left, of_right) = if waits_left { (&waiting, &other) } else { (&other, &waiting) };
    (pair.left.keys, pair.right.keys) = (keys(of_left), keys(of_right));
    pair.left.initiate(pair.now);
    pair.run();
    (pair, waiting)
}

fn waiter(pair: &mut Pair, waits_left: bool) -> &mut IkePeer {
    if waits_left { &mut pair.left } else { &mut pair.right }
}

fn go_on(pair: &mut Pair, waits_left: bool) {
    let now = pair.now;
    let peer = waiter(pair, waits_left);
    let id = peer.ike.status().next().unwrap().id;
    peer.with_context(now, |ike, host, context| ike.continue_authentication(id, host, context));
    pair.run();
}

const FAILED: DownReason = DownReason::Fault(PeerFault::State(StateFault::EapFailed));

#[test]
fn both_roles_wait_for_the_status_of_certificates() {
    for waits_left in [true, false] {
        for answer in [CertificateStatus::Accepted, CertificateStatus::Refused] {
            let (mut pair, status) = waiting_pair(waits_left);
            // The other side repeats its message, which changes nothing.
            pair.advance(Duration::from_secs(8));
            let id = waiter(&mut pair, waits_left).ike.status().next().unwrap().id;
            assert_eq!(status.asked(), [id], "{waits_left}");
            assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
            // Continued too early: it waits again.
            go_on(&mut pair, waits_left);
            assert_eq!(status.asked(), [id, id]);
            assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
            status.set(answer);
            go_on(&mut pair, waits_left);
            match answer {
                CertificateStatus::Accepted => pair.check_children(1),
                _ => {
                    assert!(waiter(&mut pair, waits_left).down_reasons().contains(&FAILED));
                    assert_eq!((pair.left.ike.ike_sa_count(), pair.right.ike.ike_sa_count()), (0, 0));
                }
            }
            assert!(pair.left.leaked_spis().is_empty());
        }
    }
}

/// Neither role waits without end for a status that stays unknown. The responder gives up in silence, so the
/// initiator begins again twice.
#[test]
fn the_wait_ends() {
    for waits_left in [true, false] {
        let (mut pair, status) = waiting_pair(waits_left);
        for _ in 0..400 {
            pair.advance(Duration::from_secs(1));
        }
        assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
        assert_eq!((pair.left.ike.ike_sa_count(), pair.right.ike.ike_sa_count()), (0, 0), "{waits_left}");
        assert!((1..=3).contains(&status.asked().len()), "{:?}", status.asked());
    }
}
