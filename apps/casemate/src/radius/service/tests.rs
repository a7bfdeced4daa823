//! The order of what the thread reports.

use super::*;
use crate::swanctl::{DynamicAuthorization, GroupSources};
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_radius::{AccessRequest, Packet, Retransmission, Server};

const SECRET: &[u8] = b"a secret of gateway and server";

fn config(server: SocketAddr) -> RadiusConfig {
    let secret = SecretBytes::new(SECRET);
    let one = Server {
        name: "one".into(),
        auth: server,
        acct: server,
        secret,
        nas_identifier: b"gateway".to_vec(),
    };
    RadiusConfig {
        servers: vec![one],
        retransmission: Retransmission::DEFAULT,
        ids_have_port: true,
        groups: GroupSources::default(),
        trusts_user_name: false,
        accounting: None,
        dae: None,
    }
}

fn hmac(message: &[u8]) -> [u8; 16] {
    let pad = |with: u8| -> Vec<u8> {
        (0..64).map(|at| SECRET.get(at).copied().unwrap_or_default() ^ with).collect()
    };
    LEGACY.md5(&[&pad(0x5C), &LEGACY.md5(&[&pad(0x36), message])])
}

/// Access-Reject for a request.
fn reject(request: &[u8]) -> Vec<u8> {
    let request = Packet::parse(request).unwrap();
    let head = [3, request.identifier, 0, 20 + 18];
    let message = [&[80, 18][..], &[0; 16]].concat();
    let mac = hmac(&[&head, &request.authenticator[..], &message].concat());
    let attributes = [&[80, 18][..], &mac].concat();
    let digest = LEGACY.md5(&[&head, &request.authenticator, &attributes, SECRET]);
    [&head, &digest[..], &attributes].concat()
}

/// Disconnect-Request for a user.
fn disconnect(user_name: &[u8]) -> Vec<u8> {
    let len = u8::try_from(user_name.len()).unwrap();
    let head = [40, 1, 0, 22 + len];
    let attributes = [&[1, 2 + len], user_name].concat();
    let digest = LEGACY.md5(&[&head, &[0; 16], &attributes, SECRET]);
    [&head, &digest[..], &attributes].concat()
}

/// A server accepts a user, and locks the user out before this host has looked at the answer.
#[test]
fn an_answer_precedes_a_request_that_came_after_it() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = UdpSocket::bind(any).unwrap();
    let config = config(server.local_addr().unwrap());
    let settings = DynamicAuthorization { listen: any, secret: SecretBytes::new(SECRET) };
    let dae = DaeSocket::open(settings, None).unwrap();
    let listen = dae.socket.local_addr().unwrap();
    let ((orders, from_loop), (reports, reported)) = (channel(), channel());
    let ((wake, _wakes_thread), (waker, _woken)) =
        (crate::control::pair().unwrap(), crate::control::pair().unwrap());
    let mut thread = ServiceThread {
        client: Client::new(config.servers.clone(), config.retransmission),
        sockets: open_sockets(&config).unwrap(),
        dae: Some(dae),
        rng: SystemRng::new().unwrap(),
        orders: from_loop,
        wake,
        reports,
        waker: Waker(waker),
        awaited: HashMap::new(),
        started: Instant::now(),
        last_report: None,
        lost_records: 0,
        end: None,
    };
    let request = AccessRequest {
        user_name: b"carol".to_vec(),
        eap: vec![2, 1, 0, 5, 1],
        state: None,
        nas_addr: [192, 0, 2, 9].into(),
        called_id: "192.0.2.9[500]".into(),
        calling_id: "192.0.2.1[500]".into(),
    };
    let (reply, answer) = channel();
    let ike = IkeSaId::for_tests(1);
    orders.send(Order::Access { request: Box::new(request), server: None, ike, reply }).unwrap();
    thread.proceed();
    let mut buffer = [0; MAX_PACKET];
    let (len, client) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&reject(buffer.get(..len).unwrap()), client).unwrap();
    server.send_to(&disconnect(b"carol"), listen).unwrap();
    thread.proceed();
    assert!(answer.try_recv().is_ok());
    assert!(matches!(reported.try_recv(), Ok(Report::Answered(_))));
    assert!(matches!(reported.try_recv(), Ok(Report::Dynamic(..))));
}
