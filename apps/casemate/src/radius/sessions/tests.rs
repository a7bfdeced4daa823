//! Sessions follow their IKE SAs, also when both hosts rekey at once.

use super::*;
use crate::radius::Order;
use crate::swanctl::{Accounting, GroupSources};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{ChildId, Path};
use casemate_radius::{AccountingStatus, Retransmission, TerminationAction, Usage, Verdict};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

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
            accounting: Some(accounting),
            dae: None,
        };
        let (to_thread, orders) = channel();
        let (waker, woken) = UnixStream::pair().unwrap();
        let link = RadiusLink::new(to_thread, waker, channel().0, &config);
        let mut setup = Self { sessions: Sessions::new(7), link, config, orders, _woken: woken };
        setup.sessions.accept(ORIGIN, Box::new(accepted()));
        let up = Event::IkeUp {
            ike: ORIGIN,
            connection: connection(),
            peer: Identity::Fqdn("eve".into()),
            eap_identity: Some(b"eve".to_vec()),
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
        };
        assert!(setup.note(up));
        setup.sessions.active.get_mut(ORIGIN).unwrap().is_recorded = true;
        setup
    }

    fn note(&mut self, event: Event) -> bool {
        self.sessions.on_notice(&Notice::Ike(event), &self.link, &self.config)
    }

    fn ended(&mut self, ike: IkeSaId, reason: DownReason) {
        self.note(Event::IkeDown { ike, connection: connection(), reason, half_open: false });
    }

    /// What was recorded since the last call.
    fn records(&self) -> Vec<AccountingStatus> {
        let of = |order| if let Order::Record(record) = order { Some(record.status) } else { None };
        self.orders.try_iter().filter_map(of).collect()
    }
}

fn connection() -> Arc<Connection> {
    let id = |name: &str| Identity::Fqdn(name.into());
    Arc::new(Connection::with_shared_key("home", id("gateway"), id("eve")))
}

fn path() -> Path {
    Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() }
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

#[test]
fn usage_of_ended_child_sas_is_kept_in_one_sum() {
    let mut setup = Setup::new();
    let session = setup.sessions.active.get_mut(ORIGIN).unwrap();
    for number in 1..=3 {
        let usage = Usage { input_bytes: 10, output_packets: number, ..Usage::default() };
        session.usage.insert(ChildId::for_tests(number), usage);
    }
    for number in 1..=2 {
        let id = ChildId::for_tests(number);
        setup.note(Event::ChildDown { id, reason: DownReason::Replaced, origin: ORIGIN });
    }
    let session = setup.sessions.active.get_mut(ORIGIN).unwrap();
    assert_eq!(session.usage.len(), 1);
    let total = Usage { input_bytes: 30, output_packets: 6, ..Usage::default() };
    assert_eq!(session.usage(), total);
}
