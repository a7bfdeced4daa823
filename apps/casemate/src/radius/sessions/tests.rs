//! Sessions follow their IKE SAs, also when both hosts rekey at once.

use super::*;
use crate::radius::Order;
use crate::swanctl::{Accounting, GroupSources};
use crate::xfrm::XfrmFile;
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Direction};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{Path, UserIdentity};
use casemate_radius::{
    AccountingStatus, DisconnectRequest, Retransmission, TerminationAction, Usage, Verdict,
};
use casemate_rustcrypto::RUSTCRYPTO;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ORIGIN: IkeSaId = IkeSaId::for_tests(1);
const OURS: IkeSaId = IkeSaId::for_tests(2);
const PEERS: IkeSaId = IkeSaId::for_tests(3);

struct Setup {
    sessions: Sessions,
    link: RadiusLink,
    config: RadiusConfig,
    orders: Receiver<Order>,
    /// Keeps the waker open.
    _woken: UnixStream,
}

impl Setup {
    /// A session that was recorded.
    fn new() -> Self {
        let accounting = Accounting { interval: None, requires_vip: false, sends_class: true };
        let config = RadiusConfig {
            servers: Vec::new(),
            retransmission: Retransmission::DEFAULT,
            ids_have_port: false,
            groups: GroupSources::default(),
            trusts_user_name: false,
            accounting: Some(accounting),
            dae: None,
        };
        let (to_thread, orders) = channel();
        let (waker, woken) = UnixStream::pair().unwrap();
        let link = RadiusLink::new(to_thread, waker, channel().0, &config);
        let mut setup = Self { sessions: Sessions::new(7), link, config, orders, _woken: woken };
        setup.accept(ORIGIN, "eve", path());
        assert!(setup.up(ORIGIN));
        setup.sessions.active.get_mut(ORIGIN).unwrap().is_recorded = true;
        setup
    }

    /// A server has accepted the peer of a half-open IKE SA.
    fn accept(&mut self, ike: IkeSaId, user_name: &str, path: Path) {
        self.sessions.accept(ike, user_name.into(), path, Box::new(accepted()));
    }

    /// An IKE SA is established.
    fn up(&mut self, ike: IkeSaId) -> bool {
        self.note(Event::IkeUp {
            ike,
            connection: connection(),
            peer: Identity::Fqdn("eve".into()),
            eap_identity: Some(UserIdentity::Proven(b"eve".to_vec())),
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
            is_restored: false,
        })
    }

    fn note(&mut self, event: Event) -> bool {
        self.sessions.on_notice(&Notice::Ike(event))
    }

    fn ended(&mut self, ike: IkeSaId, reason: DownReason) {
        let (connection, path) = (connection(), path());
        self.note(Event::IkeDown { ike, connection, reason, half_open: false, path });
    }

    /// What was recorded since the last call.
    fn records(&mut self) -> Vec<AccountingStatus> {
        self.sessions.record_ends(Instant::from_secs(1), |_| None, &self.link, &self.config);
        let of = |order| if let Order::Record(record) = order { Some(record.status) } else { None };
        self.orders.try_iter().filter_map(of).collect()
    }
}

fn connection() -> Arc<Connection> {
    let id = |name: &str| Identity::Fqdn(name.into());
    Arc::new(Connection::with_shared_key("home", id("gateway"), id("eve")))
}

fn path() -> Path {
    path_from("192.0.2.2:500")
}

fn path_from(remote: &str) -> Path {
    Path { local: "192.0.2.1:500".parse().unwrap(), remote: remote.parse().unwrap() }
}

fn accepted() -> AccessResponse {
    AccessResponse {
        verdict: Verdict::Accept,
        eap: Vec::new(),
        state: None,
        classes: Vec::new(),
        filter_id: None,
        user_name: None,
        msk: None,
        addrs: Vec::new(),
        session_timeout: None,
        termination: TerminationAction::End,
        interim_interval: None,
    }
}

#[test]
fn a_session_outlives_a_collision_of_rekeyings() {
    // The peer closes the redundant successor before or after ours exists, and before or after the old one.
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
        let mut setup = Setup::new();
        setup.note(Event::IkeRekeyed { old: ORIGIN, new: PEERS });
        for step in order {
            match step {
                0 => setup.ended(PEERS, DownReason::Peer),
                1 => drop(setup.note(Event::IkeRekeyed { old: ORIGIN, new: OURS })),
                _ => setup.ended(ORIGIN, DownReason::Replaced),
            }
        }
        assert_eq!(setup.records(), [], "{order:?}");
        assert_eq!(setup.sessions.active.members(OURS), [OURS], "{order:?}");
        assert!(setup.sessions.on_tick(&setup.config), "{order:?}");
        setup.ended(OURS, DownReason::Expired);
        let stop = AccountingStatus::Stop(TerminateCause::SessionTimeout);
        assert_eq!(setup.records(), [stop], "{order:?}");
    }
}

#[test]
fn a_replaced_ike_sa_that_ends_last_does_not_hide_why_the_session_ended() {
    let mut setup = Setup::new();
    setup.note(Event::IkeRekeyed { old: ORIGIN, new: OURS });
    setup.ended(OURS, DownReason::DeadPeer);
    setup.ended(ORIGIN, DownReason::Replaced);
    assert_eq!(setup.records(), [AccountingStatus::Stop(TerminateCause::LostCarrier)]);
    assert!(setup.sessions.authorization_of(OURS).is_some(), "its ticket is still good");
}

#[test]
fn a_session_that_a_server_has_ended_cannot_be_resumed() {
    let mut setup = Setup::new();
    setup.sessions.active.get_mut(ORIGIN).unwrap().cause = Some(TerminateCause::AdminReset);
    setup.ended(ORIGIN, DownReason::DeadPeer);
    assert_eq!(setup.records(), [AccountingStatus::Stop(TerminateCause::AdminReset)]);
    assert!(setup.sessions.authorization_of(ORIGIN).is_none());
}

/// Three SAs of a data path: inbound, inbound and outbound.
fn sas() -> [SaId; 3] {
    let mut datapath = Datapath::new(Config::server(1));
    let directions =
        [("0x1000", Direction::Inbound), ("0x1001", Direction::Inbound), ("0x1002", Direction::Outbound)];
    directions.map(|(spi, direction)| {
        let line = format!(
            "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi {spi} mode tunnel \
             aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128"
        );
        let params = XfrmFile::parse(line.as_bytes()).unwrap().states.remove(0).value;
        let now = Instant::from_secs(1);
        datapath.add_sa(&params, direction, &Providers(&[&RUSTCRYPTO]), now).unwrap()
    })
}

fn counters(packets: u64) -> SaCounters {
    SaCounters { packets, bytes: 10 * packets, ..SaCounters::default() }
}

#[test]
fn the_record_of_the_end_counts_every_packet_of_every_sa() {
    let mut setup = Setup::new();
    let [known, lingering, unknown] = sas();
    let mut note = |sa, packets, is_removed| {
        let counters = counters(packets);
        setup.sessions.on_notice(&Notice::SaCounters { origin: ORIGIN, sa, counters, is_removed });
    };
    // One SA was read earlier, and two have come and gone between two readings.
    note(known, 1, false);
    note(known, 5, true);
    note(unknown, 3, true);
    note(lingering, 7, false);
    let session = setup.sessions.active.get_mut(ORIGIN).unwrap();
    assert_eq!(session.sas.len(), 1, "SAs that are removed need no room");
    setup.ended(ORIGIN, DownReason::Peer);
    // The inbound SA has received two more packets.
    let read = |sa| (sa == lingering).then(|| counters(9));
    setup.sessions.record_ends(Instant::from_secs(1), read, &setup.link, &setup.config);
    let Ok(Order::Record(record)) = setup.orders.try_recv() else { panic!("no record") };
    let usage = Usage { input_bytes: 140, input_packets: 14, output_bytes: 30, output_packets: 3 };
    assert_eq!(record.usage, usage);
    assert_eq!(record.status, AccountingStatus::Stop(TerminateCause::UserRequest));
}

/// A request with these attributes.
fn wanted(
    user: Option<&str>,
    id: Option<&str>,
    addr: Option<&str>,
    calling: Option<&str>,
) -> DisconnectRequest {
    DisconnectRequest {
        user_name: user.map(Into::into),
        session_id: id.map(Into::into),
        addr: addr.map(|addr| addr.parse().unwrap()),
        calling_id: calling.map(Into::into),
    }
}

/// A client may withhold its last AUTH payload for as long as an IKE SA may be half-open.
#[test]
fn a_login_that_was_accepted_is_ended_as_well() {
    let path = path_from("192.0.2.3:4500");
    for (wanted, is_named) in [
        (wanted(Some("eve"), None, None, None), true),
        (wanted(Some("eve"), None, Some("10.9.0.7"), Some("192.0.2.3[4500]")), true),
        (wanted(None, None, None, Some("192.0.2.3")), true),
        (wanted(None, None, Some("10.9.0.7"), None), true),
        (wanted(Some("alice"), None, None, None), false),
        (wanted(Some("eve"), None, Some("10.9.0.8"), None), false),
        (wanted(Some("eve"), None, None, Some("192.0.2.2")), false),
        // No session has begun, so the request is about another one.
        (wanted(Some("eve"), Some("0000000000000007-1"), None, None), false),
    ] {
        let mut setup = Setup::new();
        let response = AccessResponse { addrs: vec!["10.9.0.7".parse().unwrap()], ..accepted() };
        setup.sessions.accept(OURS, b"eve".to_vec(), path, Box::new(response));
        let ended = setup.sessions.end_logins(&wanted, "10.1.0.2".parse().unwrap());
        assert_eq!(ended, if is_named { vec![OURS] } else { Vec::new() }, "{wanted:?}");
        assert_eq!(setup.sessions.take_lines().len(), ended.len(), "{wanted:?}");
        assert_eq!(setup.up(OURS), !is_named, "{wanted:?}: no session without a decision");
    }
}

#[test]
fn a_session_has_each_name_under_which_a_server_knows_it() {
    let mut setup = Setup::new();
    setup.accept(OURS, "alice", path_from("192.0.2.3:500"));
    // The client has changed to the port for NAT in the middle of its login.
    setup.up(OURS);
    let moved = |setup: &mut Setup, remote: &str| {
        setup.note(Event::PathChanged {
            ike: OURS,
            children: Vec::new(),
            path: path_from(remote),
            udp_encap: true,
        });
    };
    let named = |setup: &mut Setup, calling: &str| {
        let session = setup.sessions.active.get_mut(OURS).unwrap();
        session.is_named_by(&wanted(Some("alice"), None, None, Some(calling)))
    };
    let report = |setup: &mut Setup, at| {
        let session = setup.sessions.active.get_mut(OURS).unwrap();
        session.report_due(Instant::from_secs(at), &setup.link, &setup.config);
    };
    moved(&mut setup, "192.0.2.4:4500");
    report(&mut setup, 1);
    moved(&mut setup, "192.0.2.5:4500");
    moved(&mut setup, "192.0.2.6:4500");
    for (calling, expected) in [
        ("192.0.2.3", true),
        ("192.0.2.3[500]", true),
        ("192.0.2.4[4500]", true),
        ("192.0.2.6[4500]", true),
        ("192.0.2.6", true),
        ("192.0.2.4[500]", false),
        ("192.0.2.5", false),
        ("192.0.2.9", false),
    ] {
        assert_eq!(named(&mut setup, calling), expected, "{calling}");
    }
    // A client that moves on and on needs no more memory, and keeps the names that count.
    setup.config.accounting.as_mut().unwrap().interval = Some(Duration::from_secs(60));
    setup.sessions.active.get_mut(OURS).unwrap().is_recorded = false;
    for port in 5_000..5_100 {
        moved(&mut setup, &format!("192.0.2.7:{port}"));
        report(&mut setup, 60 * port);
    }
    moved(&mut setup, "192.0.2.8:4500");
    for (calling, expected) in [
        ("192.0.2.3[500]", true),
        ("192.0.2.4[4500]", false),
        ("192.0.2.7[5000]", false),
        ("192.0.2.7[5098]", true),
        ("192.0.2.7[5099]", true),
        ("192.0.2.8[4500]", true),
    ] {
        assert_eq!(named(&mut setup, calling), expected, "{calling}");
    }
}
