//! `casemate run --xfrm`: manual keys. Linux learns the direction of an SA when packets use it;
//! Casemate needs the direction when it adds an SA, and determines it here.

use super::RunArgs;
use super::datapath_builder::DatapathBuilder;
use super::plan::PlanParts;
use super::start::{LIMITS, ModeState, Prepared, Start};
use crate::config_source::key_file_warning;
use crate::failure::Failure;
use crate::log::Log;
use crate::output;
use crate::status::InstanceIdentity;
use crate::xfrm::{self, Located, XfrmFile};
use casemate::Endpoint;
use casemate_crypto::EspSuite;
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Policy, Template};
use casemate_ike::IkeSettings;
use casemate_linux::counters::{CounterFile, CounterStoreBuilder};
use casemate_linux::{DummyTraffic, EngineParts, ManualSa};
use casemate_sa::{SaParams, Transform};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The SAs and policies of an xfrm file.
pub(super) struct ManualKeys {
    path: PathBuf,
    file: XfrmFile,
}

impl ManualKeys {
    /// Reads and validates the file.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let file = XfrmFile::load(path).map_err(Failure::bad_input)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let empty = self.file.policies.is_empty().then(|| {
            format!("{}: no traffic is protected: `ip xfrm policy add ...` was expected", self.path.display())
        });
        self.file.warnings_at(&self.path).chain(key_file_warning(&self.path)).chain(empty).collect()
    }

    /// Claims the instance and makes the data path with all SAs and policies.
    pub(super) fn prepare(self, start: &mut Start<'_>) -> Result<Prepared, Failure> {
        let Self { path, file } = &self;
        let args = start.args;
        let addresses = start.netlink.addresses().map_err(Failure::failed)?;
        let mut sas = directed_sas(file, &addresses);
        check_counters(&sas, path, args)?;
        let mut counters = match &args.counters {
            Some(counters) if !args.dry_run => Some(open_counters(counters, &mut start.log)?),
            _ => None,
        };
        let instance = start.claim(None)?;
        let mut builder = DatapathBuilder::new(LIMITS, start.rng.secret_u64(), start.clock.now());
        builder.add_sas(&mut sas, path, counters.as_mut(), &mut start.log)?;
        builder.add_policies(file, path)?;
        let tun_mtu = builder.learn_links(&mut start.netlink, instance.numbers.mark, &mut start.log);
        let plan = PlanParts {
            tun_mtu,
            policies: builder.policies(),
            encap_ports: builder.encap_ports(),
            cell_addresses: Vec::new(),
            peers: builder.peers(),
            // With manual keys, the file is the complete list of protected traffic.
            former_protected: Vec::new(),
        };
        let dummy_traffic = args.dummy_packets.map(|per_second| builder.dummy_traffic(per_second, tun_mtu));
        Ok(Prepared {
            instance,
            plan,
            summary: format!(
                "{} out, {} in",
                output::counted(builder.outbound_count, "SA", "SAs"),
                builder.inbound_count
            ),
            notes: String::new(),
            identity: InstanceIdentity::of_xfrm(args, path, builder.provider_names),
            endpoint: Endpoint::new(builder.datapath, IkeSettings::SERVER),
            state: ModeState::Manual(ManualState { sas: builder.sas, dummy_traffic, counters }),
        })
    }
}

/// What the engine needs besides the data path.
pub(super) struct ManualState {
    sas: Vec<ManualSa>,
    dummy_traffic: Option<DummyTraffic>,
    counters: Option<CounterStoreBuilder>,
}

impl ManualState {
    /// Adds the SAs to the parts of the engine, and starts to write their counters.
    pub(super) fn add_to(self, parts: &mut EngineParts) -> Result<(), Failure> {
        let counters = self.counters.map(|counters| counters.start(parts.endpoint.datapath_mut()));
        parts.counters = counters.transpose().map_err(Failure::failed)?;
        parts.manual_sas = self.sas;
        parts.dummy_traffic = self.dummy_traffic;
        Ok(())
    }
}

fn open_counters(path: &Path, log: &mut Log) -> Result<CounterStoreBuilder, Failure> {
    let file = CounterFile::open(path).map_err(|error| {
        Failure::failed(format!("{error}: --counters with a file in an existing directory was expected"))
    })?;
    if file.is_new() {
        log.info(&format!(
            "{} is new: it records sequence numbers from now on only, so the keys must be unused",
            path.display()
        ));
    }
    Ok(CounterStoreBuilder::new(file))
}

/// An SA of the file with its direction.
pub(super) struct DirectedSa {
    pub(super) direction: Direction,
    pub(super) sa: Located<SaParams>,
}

/// Determines the direction of each SA of the file.
///
/// If exactly one of its addresses is local, the address decides. Otherwise (addresses that are added
/// later, or a test with both ends on one host) the policies decide: an SA that an outbound policy
/// requires is outbound. All other SAs are inbound.
pub(super) fn directed_sas(file: &XfrmFile, addresses: &[IpAddr]) -> Vec<DirectedSa> {
    let ours: HashSet<IpAddr> = addresses.iter().copied().collect();
    let policies = file.policies.iter().map(|policy| &policy.value);
    let outbound: Vec<&Policy> =
        policies.filter(|p| p.direction == xfrm::Direction::Out).map(|p| &p.policy).collect();
    let direction_of = |sa: &SaParams| match (ours.contains(&sa.src), ours.contains(&sa.dst)) {
        (true, false) => Direction::Outbound,
        (false, true) => Direction::Inbound,
        _ if outbound.iter().any(|policy| requires(policy, sa)) => Direction::Outbound,
        _ => Direction::Inbound,
    };
    let directed =
        |state: &Located<SaParams>| DirectedSa { direction: direction_of(&state.value), sa: state.clone() };
    file.states.iter().map(directed).collect()
}

fn requires(policy: &Policy, sa: &SaParams) -> bool {
    let Action::Protect(bundle) = &policy.action else { return false };
    let selector = &policy.selector;
    // A template without addresses uses those of the packet.
    let accepts = |template: &Template| {
        template.accepts(sa.transform.protocol(), sa.mode, sa.src, sa.dst, sa.reqid)
            && (template.src.is_some() || selector.src.contains(sa.src))
            && (template.dst.is_some() || selector.dst.contains(sa.dst))
    };
    bundle.templates().iter().any(accepts)
}

/// Refuses SAs that would use an IV twice: after a restart without a counter file, or because another SA
/// has the same key (RFC 4106 section 2, RFC 3686 section 2.1, RFC 8750 section 7).
pub(super) fn check_counters(sas: &[DirectedSa], path: &Path, args: &RunArgs) -> Result<(), Failure> {
    let mut text = String::new();
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    for DirectedSa { sa, .. } in sas.iter().filter(|sa| sa.direction == Direction::Outbound) {
        let Some(key) = sa.value.transform.counter_key() else { continue };
        let (location, spi) = (format!("{}:{}", path.display(), sa.line), sa.value.spi);
        if args.counters.is_none() {
            let _ = writeln!(
                text,
                "{location}: spi {spi} has a counter-mode cipher, whose IVs would repeat after a restart: \
                 `--counters FILE` was expected, with a file on persistent storage such as \
                 /var/lib/casemate/counters"
            );
        }
        // Two senders with one key would count independently in the same number space.
        let first = *seen.entry(key.expose()).or_insert(sa.line);
        if first != sa.line {
            let _ = writeln!(
                text,
                "{location}: spi {spi} sends with the counter-mode key of line {first}, so both would use \
                 the same IVs: a separate key was expected"
            );
        }
    }
    text.push_str(&shared_implicit_ivs(sas, path));
    if text.is_empty() { Ok(()) } else { Err(Failure::bad_input(text.trim_end())) }
}

/// Reports inbound SAs that share a key with an outbound one if either IV is implicit. An IV in the packet
/// differs between the two directions, because its upper half depends on the SA; a sequence number does not.
fn shared_implicit_ivs(sas: &[DirectedSa], path: &Path) -> String {
    let is_implicit =
        |sa: &SaParams| matches!(sa.transform, Transform::Esp { suite: EspSuite::ImplicitIv(_), .. });
    let side = |wanted: Direction| sas.iter().filter(move |sa| sa.direction == wanted).map(|sa| &sa.sa);
    let mut text = String::new();
    for inbound in side(Direction::Inbound) {
        let shares = |outbound: &&Located<SaParams>| {
            let key = outbound.value.transform.counter_key();
            key.is_some() && key == inbound.value.transform.counter_key()
        };
        let implicit =
            |outbound: &&Located<SaParams>| is_implicit(&outbound.value) || is_implicit(&inbound.value);
        if let Some(outbound) = side(Direction::Outbound).filter(shares).find(implicit) {
            let _ = writeln!(
                text,
                "{}:{}: spi {} receives with the key of line {}, and an implicit IV is the sequence number, \
                 so both directions would use the same IVs: a separate key was expected",
                path.display(),
                inbound.line,
                inbound.value.spi,
                outbound.line
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: &str = "\
        xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n\
        xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x1002 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x1102030405060708090a0b0c0d0e0f1011121314 128\n";
    const OUT: &str = "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out \
                       tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel\n";

    fn directions(text: &str, addresses: &[&str]) -> Vec<Direction> {
        let file = XfrmFile::parse(text.as_bytes()).unwrap();
        let addresses: Vec<IpAddr> = addresses.iter().map(|addr| addr.parse().unwrap()).collect();
        directed_sas(&file, &addresses).iter().map(|sa| sa.direction).collect()
    }

    #[test]
    fn addresses_decide_the_direction_or_else_policies() {
        let (out, inn) = (Direction::Outbound, Direction::Inbound);
        assert_eq!(directions(STATES, &["192.0.2.1"]), [out, inn]);
        assert_eq!(directions(STATES, &["192.0.2.2"]), [inn, out]);
        assert_eq!(directions(STATES, &[]), [inn, inn]);
        let with_policy = format!("{STATES}{OUT}");
        assert_eq!(directions(&with_policy, &[]), [out, inn]);
        assert_eq!(directions(&with_policy, &["192.0.2.1", "192.0.2.2"]), [out, inn]);
    }

    #[test]
    fn template_without_addresses_uses_those_of_the_packet() {
        let text = "\
            xfrm state add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x1001 auth sha1 0123456789abcdefghij\n\
            xfrm state add src 192.0.2.2 dst 192.0.2.1 proto ah spi 0x1002 auth sha1 0123456789abcdefghij\n\
            xfrm policy add src 192.0.2.1 dst 192.0.2.2 dir out tmpl proto ah\n";
        assert_eq!(directions(text, &[]), [Direction::Outbound, Direction::Inbound]);
    }

    fn args(counters: Option<&str>) -> RunArgs {
        RunArgs {
            config: None,
            vici: None,
            metrics: None,
            xfrm: Some(PathBuf::from("a.xfrm")),
            save_keys: None,
            aka_numbers: None,
            store: None,
            store_key: None,
            second_store_key: None,
            store_key_token: None,
            second_store_key_token: None,
            counters: counters.map(PathBuf::from),
            dry_run: false,
            dummy_packets: None,
            tun: "t".into(),
            threads: None,
            log: crate::log::LogOptions::default(),
        }
    }

    /// The result for a file with these states on the host with this address.
    fn check(states: &str, address: &str, counters: Option<&str>) -> Result<(), Failure> {
        let file = XfrmFile::parse(states.as_bytes()).unwrap();
        let sas = directed_sas(&file, &[address.parse().unwrap()]);
        check_counters(&sas, Path::new("a.xfrm"), &args(counters))
    }

    #[test]
    fn counter_modes_require_a_counter_file() {
        let failure = check(STATES, "192.0.2.2", None).unwrap_err();
        let text = failure.to_string();
        assert!(text.starts_with("casemate: a.xfrm:2: spi 0x00001002 has a counter-mode cipher"), "{text}");
        assert_eq!(text.lines().count(), 1, "an inbound SA uses no IV of this host: {text}");
        assert!(matches!(failure, Failure::BadInput(_)));
        assert_eq!(check(STATES, "192.0.2.2", Some("c")), Ok(()));
    }

    #[test]
    fn implicit_ivs_require_a_key_for_each_direction() {
        let out = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
                   aead 'iiv(rfc4106(gcm(aes)))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n";
        let back = "xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x1002 mode tunnel \
                    aead 'iiv(rfc4106(gcm(aes)))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n";
        let both = format!("{out}{back}");
        let text = check(&both, "192.0.2.1", Some("c")).unwrap_err().to_string();
        let expected =
            "casemate: a.xfrm:2: spi 0x00001002 receives with the key of line 1, and an implicit IV";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(
            check(&both.replace("iiv(rfc4106(gcm(aes)))", "rfc4106(gcm(aes))"), "192.0.2.1", Some("c")),
            Ok(())
        );
        let own = back.replace("0x0102", "0x0103");
        assert_eq!(check(&format!("{out}{own}"), "192.0.2.1", Some("c")), Ok(()));
        let text = check(&format!("{out}{own}"), "192.0.2.1", None).unwrap_err().to_string();
        assert!(text.contains("`--counters FILE` was expected"), "{text}");
    }

    #[test]
    fn outbound_sas_with_a_shared_counter_key_are_refused() {
        let first = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
                     aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128\n";
        // The SPI, the address and the ICV length differ, but the key stream is the same.
        let second = first.replace("192.0.2.2", "192.0.2.3").replace("0x1001", "0x1003").replace("128", "96");
        let text = check(&format!("{first}{second}"), "192.0.2.1", Some("c")).unwrap_err().to_string();
        let expected = "casemate: a.xfrm:2: spi 0x00001003 sends with the counter-mode key of line 1";
        assert!(text.starts_with(expected), "{text}");
        // Two inbound SAs with this key use no IV of this host.
        assert_eq!(check(&format!("{first}{second}"), "192.0.2.2", Some("c")), Ok(()));
        let own = second.replace("0x0102", "0x0103");
        assert_eq!(check(&format!("{first}{own}"), "192.0.2.1", Some("c")), Ok(()));
    }
}
