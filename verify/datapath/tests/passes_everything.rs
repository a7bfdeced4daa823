//! A data path that nobody told anything lets every packet pass, and says so.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_datapath::{Config, Datapath, Direction, Unmatched};
use casemate_datapath_tests::{Ends, LinkSpec, PROVIDERS, suites};
use casemate_sa::Mode;

#[test]
fn until_there_is_an_sa_or_a_policy() {
    let config = Config::server(1);
    assert!(!Datapath::new(config).passes_everything(), "what no policy names is dropped");
    let mut datapath = Datapath::new(Config { unmatched: Unmatched::PassClear, ..config });
    assert!(datapath.passes_everything());
    let spec = LinkSpec::single(Ends::transport(4), Mode::Transport, suites::esp(suites::gcm(), 1));
    let peer = spec.build().a.dp;
    for direction in [Direction::Outbound, Direction::Inbound] {
        let (_, policy) = peer.policies(direction).next().unwrap();
        let id = datapath.add_policy(direction, policy.clone()).unwrap();
        assert!(!datapath.passes_everything());
        datapath.remove_policy(direction, id).unwrap();
        assert!(datapath.passes_everything());
    }
    for direction in [Direction::Outbound, Direction::Inbound] {
        let sa = spec.params(0, true);
        let now = casemate_sa::Instant::ZERO;
        let id = datapath.add_sa(&sa, direction, &PROVIDERS, now).unwrap();
        assert!(!datapath.passes_everything());
        datapath.remove_sa(id);
        assert!(datapath.passes_everything());
    }
}
