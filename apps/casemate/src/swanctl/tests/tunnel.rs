//! Route-based tunnels and marks.

use super::super::tunnel::{mark_of, unique_interface};
use super::{ok, only};
use casemate_linux::TunnelSpec;
use casemate_sa::{OwnSpd, SpdId, SpdNumbers, SpdOwner, SpdPair, SpdRule, SpdRules};

/// A connection with these keys, and two children with theirs.
fn connection(keys: &str, one: &str, two: &str) -> String {
    format!(
        "connections {{ gw {{\n {keys}\n local {{\n auth = psk\n }}\n remote {{\n auth = psk\n }}\n \
         children {{ one {{\n {one}\n }}\n two {{\n {two}\n }} }} }} }}"
    )
}

fn spds(out: u32, inn: u32) -> SpdRules {
    SpdRules::fixed(SpdPair { outbound: SpdId::new(out), inbound: SpdId::new(inn) })
}

fn own(owner: SpdOwner, per_direction: bool, bit: u32) -> SpdRule {
    let numbers = SpdNumbers::new(bit | 900_001, bit | 901_024).unwrap();
    SpdRule::Own(OwnSpd { owner, per_direction, numbers })
}

#[test]
fn unique_ids_belong_to_the_child_sa_or_the_ike_sa() {
    use SpdOwner::{ChildSa, IkeSa};
    let keys = "if_id_in = %unique\n if_id_out = %unique";
    let config = ok(&connection(keys, "", "if_id_in = 7\n if_id_out = %unique-dir"));
    let children = &config.connections[0].children;
    let of_ike = own(IkeSa, false, 0);
    assert_eq!(children[0].spds, SpdRules { outbound: of_ike, inbound: of_ike });
    let fixed = SpdRule::Fixed(SpdId::new(7));
    assert_eq!(children[1].spds, SpdRules { outbound: own(ChildSa, true, 0), inbound: fixed });
    // The other interfaces are made with the Child SAs.
    let names = |specs: Vec<TunnelSpec>| specs.into_iter().map(|spec| spec.name).collect::<Vec<_>>();
    assert_eq!(names(config.interfaces().unwrap()), ["ipsec7"]);
    // One `%unique-dir` is enough for both directions.
    let config = ok(&connection("", "mark_in = %unique\n mark_out = %unique-dir", "mark_in = %unique"));
    let (dir, both) = (own(ChildSa, true, 1 << 30), own(ChildSa, false, 1 << 30));
    let spds = [0, 1].map(|child: usize| config.connections[0].children[child].spds);
    assert_eq!(spds[0], SpdRules { outbound: dir, inbound: dir });
    assert_eq!(spds[1], SpdRules { outbound: SpdRule::default(), inbound: both });
}

#[test]
fn unique_numbers_have_interfaces_with_names() {
    let spec = |number| unique_interface(SpdId::new(number)).map(|spec| (spec.name, spec.mark));
    assert_eq!(spec(900_001), Some(("ipsec900001".into(), None)));
    assert_eq!(spec(1 << 30 | 901_024), Some(("vti901024".into(), Some(901_024))));
    assert_eq!([spec(900_000), spec(901_025), spec(1)], [None, None, None]);
}

#[test]
fn children_inherit_interface_ids() {
    let config = ok(&connection("if_id_in = 1\n if_id_out = 0x2", "", "if_id_out = 3\n interface = blue"));
    let children = &config.connections[0].children;
    assert_eq!([children[0].spds, children[1].spds], [spds(2, 1), spds(3, 1)]);
    let names: Vec<_> = config.interfaces().unwrap().into_iter().map(|spec| (spec.name, spec.spd)).collect();
    let expected = [("blue", 3), ("ipsec1", 1), ("ipsec2", 2)];
    assert_eq!(names, expected.map(|(name, number)| (name.to_owned(), SpdId::new(number))));
}

#[test]
fn marks_have_interfaces() {
    let config =
        ok(&connection("", "mark_in = 10/0xffffffff\n mark_out = 11\n set_mark_in = %same", "mark_out = 0"));
    assert_eq!(config.connections[0].children[1].spds, SpdRules::MAIN);
    let specs = config.interfaces().unwrap();
    let shown = |spec: &TunnelSpec| (spec.name.clone(), spec.mark, spec.set_mark);
    let specs: Vec<_> = specs.iter().map(shown).collect();
    assert_eq!(specs, [("vti11".into(), Some(11), Some(10))]);
}

#[test]
fn two_marks_have_one_interface_if_no_child_has_only_one_of_them() {
    let shown = |one: &str, two: &str| {
        let specs = ok(&connection("", one, two)).interfaces().unwrap();
        let inbound = |spec: &TunnelSpec| spec.inbound.and_then(mark_of);
        specs.iter().map(|spec| (spec.name.clone(), inbound(spec))).collect::<Vec<_>>()
    };
    let both = "mark_in = 8\n mark_out = 4";
    assert_eq!(shown(both, both), [("vti4".into(), Some(8))]);
    let named = "mark_in = 8\n mark_out = 4\n interface = a";
    assert_eq!(shown(named, "mark_in = 9\n mark_out = 9"), [("a".into(), Some(8)), ("vti9".into(), None)]);
    for other in ["mark_in = 8", "mark_out = 8", "mark_in = 4", "mark_in = 4\n mark_out = 8"] {
        assert_eq!(shown(both, other), [("vti4".into(), None), ("vti8".into(), None)], "{other}");
    }
    let third = [("vti4".into(), None), ("vti5".into(), None), ("vti8".into(), None)];
    assert_eq!(shown(both, "mark_in = 8\n mark_out = 5"), third);
    assert_eq!(shown("mark_in = 8\n mark_out = %unique", ""), [("vti8".into(), None)]);
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (keys, why) in [
        ("if_id_in = %other", "a number, %unique or %unique-dir was expected"),
        ("if_id_in = 900001", "900001 to 901024 are for %unique"),
        ("mark_out = 901024", "900001 to 901024 are for %unique"),
        ("if_id_out = 1\n interface = ipsec900001", "900001 to 901024 are for %unique"),
        ("mark_in = %unique/0xff", "the mask 0xffffffff was expected"),
        ("mark_in = %unique\n set_mark_in = %same", "0 was expected"),
        ("mark_in = 1\n set_mark_in = %unique", "a number or %same was expected"),
        ("if_id_out = %unique\n interface = a", "no name was expected"),
        ("if_id_out = %unique\n reqid = 5", "no reqid was expected"),
        ("mark_out = %unique\n mode = transport", "tunnel was expected"),
        ("mark_in = %unique\n close_action = trap", "another action than trap was expected"),
        ("if_id_in = %unique\n dpd_action = trap", "another action than trap was expected"),
        ("mode = drop\n start_action = trap\n mark_in = %unique", "no interface was expected"),
        ("if_id_out = 1073741824", "a number up to 1073741823 was expected"),
        ("mark_in = 1/0xff", "the mask 0xffffffff was expected"),
        ("mark_out = 50510", "packets of Casemate itself"),
        ("set_mark_in = %same", "there is no mark_in"),
        ("set_mark_in = 7", "mark_in or if_id_in was expected"),
        ("set_mark_out = 7", "only 0 or 0/0x00000000 is accepted"),
        ("mark_in_sa = yes", "only no is accepted"),
        ("interface = eth0", "if_id_out or mark_out was expected"),
        ("if_id_out = 1\n interface = a/b", "the name of an interface was expected"),
        ("if_id_out = 1\n mark_out = 1", "no mark was expected"),
        ("if_id_out = 1\n mode = transport", "tunnel was expected"),
        ("mode = pass\n start_action = trap\n mark_in = 1", "no interface was expected"),
    ] {
        let error = only(&connection("", keys, ""));
        assert!(error.contains(why), "{keys}: {error}");
    }
}

#[test]
fn children_may_not_contradict_each_other() {
    for (one, two, why) in [
        ("if_id_out = 1\n interface = a", "if_id_out = 1\n interface = b", "is named a and is named b"),
        ("if_id_out = 1\n interface = a", "if_id_out = 2\n interface = a", "a name for each was expected"),
        (
            "if_id_in = 1\n set_mark_in = 1",
            "if_id_in = 1\n set_mark_in = 2",
            "sets the mark 1 and sets the mark 2",
        ),
    ] {
        let error = ok(&connection("", one, two)).interfaces().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_pool_in_a_network_behind_this_host_is_noticed() {
    let warnings = |local_ts: &str| {
        let pool = "pools { staff {\n addrs = 10.1.3.0/24\n } }";
        let office = format!("local_ts = {local_ts}");
        let away = "mode = drop\n start_action = trap\n remote_ts = 10.1.3.0/24";
        let config = ok(&format!("{}\n{pool}", connection("pools = staff", &office, away)));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = warnings("10.2.0.0/16, 10.1.0.0/16");
    let words = ":2: connections.gw.pools: the addresses of staff, 10.1.3.1-10.1.3.254, lie in local_ts = ";
    assert!(matches!(&found[..], [warning] if warning.contains(words)), "{found:?}");
    for harmless in ["0.0.0.0/0", "10.2.0.0/16", "10.1.3.0/25", "dynamic"] {
        assert_eq!(warnings(harmless), [""; 0], "{harmless}");
    }
}

/// No policy is left when the Child SA of a client ends, unless one of these is configured.
#[test]
fn a_pool_without_a_policy_for_absent_clients_is_noticed() {
    let warnings = |keys: &str, child: &str| {
        let pool = "pools { staff {\n addrs = 10.9.0.0/24\n } }";
        let config = ok(&format!("{}\n{pool}", connection(keys, "local_ts = 10.1.0.0/16", child)));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let missing = warnings("pools = staff", "local_ts = 10.2.0.0/16");
    let words = ":2: connections.gw.pools: packets to an address of staff leave in clear while its client is";
    assert!(matches!(&missing[..], [one] if one.contains(words)), "{missing:?}");
    let trap = "local_ts = 10.2.0.0/16\n start_action = trap\n remote_ts = 10.9.0.0/24";
    assert_eq!(warnings("pools = staff\n remote_addrs = 192.0.2.2", trap), [""; 0]);
    // This host assigns no address, or the interface of a tunnel keeps packets from leaving.
    assert_eq!(warnings("", "local_ts = 10.2.0.0/16"), [""; 0]);
    let routed = "pools = staff\n if_id_in = 42\n if_id_out = 42";
    assert_eq!(warnings(routed, "local_ts = 10.2.0.0/16"), [""; 0]);
}

/// The gateway of docs/manual/remote-access.md with mistakes.
#[test]
fn pools_that_do_not_fit_the_children_are_noticed() {
    let warnings = |away: &str, dns: &str| {
        let pool = format!("pools {{ staff {{\n addrs = 10.9.0.0/24\n dns = {dns}\n }} }}");
        let drops =
            format!("mode = drop\n start_action = trap\n local_ts = 10.1.0.0/16\n remote_ts = {away}");
        let config =
            ok(&format!("{}\n{pool}", connection("pools = staff", "local_ts = 10.1.0.0/16", &drops)));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("10.9.0.0/24", "10.1.0.53"), [""; 0]);
    let drops = warnings("10.8.0.0/24", "10.1.0.53");
    assert!(matches!(&drops[..], [one] if one.contains("drops packets to 10.8.0.")), "{drops:?}");
    let expected = "packets to an address of staff leave in clear while its client is not connected";
    let half = warnings("10.9.0.0/25", "10.1.0.53");
    assert!(matches!(&half[..], [one] if one.contains(expected)), "{half:?}");
    for whole in ["10.9.0.0/25, 10.9.0.128/25", "10.9.0.128/25, 10.9.0.0/25", "0.0.0.0/0"] {
        assert_eq!(warnings(whole, "10.1.0.53"), [""; 0], "{whole}");
    }
    let server = warnings("10.9.0.0/24", "10.2.0.53");
    assert!(matches!(&server[..], [one] if one.contains("the name server 10.2.0.53 of staff")), "{server:?}");
}
