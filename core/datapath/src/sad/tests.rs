//! Outbound SAs compared with a naive model. The value ranges are so small that peers share addresses, ports,
//! SPIs and reqids.

use super::*;
use crate::SaPath;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, CipherKey, EspSuite, KeyError, MacAlg, MacKey, Provider,
    Providers, SecretBytes,
};
use casemate_sa::{DscpSet, SaParams, Transform, UdpEncap};
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::FlowPorts;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

#[test]
fn index_entry_is_half_a_cache_line() {
    assert_eq!(size_of::<IndexEntry>(), 32);
}

/// Number of cache lines that an SA costs, and that a packet may touch.
#[test]
fn inbound_sa_fills_four_cache_lines() {
    assert_eq!(size_of::<SaIn>(), 256);
}

/// A packet gets the SA for its DSCP, else an SA for any DSCP, else an SA for other DSCPs; of several the
/// oldest.
#[test]
fn dscps_choose_among_matching_sas() {
    let [plain, ef, _] = POINTS;
    let only = |dscp| DscpSet::from_iter([dscp]);
    let template = templates()[0];
    let path = AddrPair { src: addr(9), dst: addr(0) };
    let flow = |dscp| {
        FlowKey::v4([192, 0, 2, 9].into(), [192, 0, 2, 0].into(), 17, FlowPorts::new(1, 2)).with_dscp(dscp)
    };
    let mut sad = Sad::new(10, 7);
    let mut add = |spi, dscp| {
        let params = params(0, None, spi, 0, Mode::Tunnel, dscp);
        sad.add_outbound(SaOut::new(&params, &Providers(&[&Idle]), Instant::ZERO).unwrap()).unwrap()
    };
    let [voice, younger, any, other] =
        [(1, only(ef)), (2, only(ef)), (3, DscpSet::NONE), (4, only(Dscp::MAX))]
            .map(|(spi, dscp)| add(spi, dscp));
    let expect = |sad: &Sad, for_ef: SaId, for_plain: SaId| {
        let found = [ef, plain].map(|dscp| sad.resolve(&template, path, Some(&flow(dscp))));
        assert_eq!(found, [for_ef, for_plain].map(|id| Some(id.slot())));
    };
    expect(&sad, voice, any);
    assert!(sad.remove(voice));
    expect(&sad, younger, any);
    assert!(sad.remove(younger));
    expect(&sad, any, any);
    assert!(sad.remove(any));
    expect(&sad, other, other);
}

/// A key that is never used.
struct Idle;

impl AeadKey for Idle {
    fn seal(&self, _: &mut [AeadJob<'_>]) {}
    fn open(&self, _: &mut [AeadJob<'_>]) {}
}

impl Provider for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Ok(Box::new(Self))
    }

    fn cipher(&self, _: CipherAlg, _: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Err(KeyError::Unsupported)
    }
}

fn addr(host: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, host).into()
}

const POINTS: [Dscp; 3] = [Dscp::DEFAULT, Dscp::from_tos(0xb8), Dscp::MAX];

/// One flow for each DSCP, and `None`.
fn flows(path: AddrPair) -> impl Iterator<Item = Option<FlowKey>> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (path.src, path.dst) else {
        unreachable!("all of them are of IPv4")
    };
    let flow = FlowKey::v4(src, dst, 17, FlowPorts::new(1, 2));
    POINTS.into_iter().map(move |dscp| Some(flow.with_dscp(dscp))).chain([None])
}

#[derive(Debug, Clone)]
enum Step {
    Add { dst: u8, port: Option<u16>, spi: u32, reqid: u32, mode: Mode, dscp: DscpSet },
    Remove(usize),
    Move { which: usize, dst: u8, port: Option<u16> },
}

fn port() -> impl Strategy<Value = Option<u16>> {
    prop_oneof![Just(None), Just(Some(4500)), Just(Some(1024))]
}

/// The empty set, or some of the DSCPs of [`flows`].
fn dscp() -> impl Strategy<Value = DscpSet> {
    proptest::collection::vec(0..3usize, 0..3)
        .prop_map(|points| points.into_iter().map(|at| POINTS[at]).collect())
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(Mode::Tunnel), Just(Mode::Transport)];
    prop_oneof![
        4 => (0u8..2, port(), 1u32..5, 0u32..3, mode, dscp())
            .prop_map(|(dst, port, spi, reqid, mode, dscp)| Step::Add { dst, port, spi, reqid, mode, dscp }),
        1 => (0usize..20).prop_map(Step::Remove),
        1 => (0usize..20, 0u8..2, port()).prop_map(|(which, dst, port)| Step::Move { which, dst, port }),
    ]
}

fn params(dst: u8, port: Option<u16>, spi: u32, reqid: u32, mode: Mode, dscp: DscpSet) -> SaParams {
    let alg = AeadAlg::aes_gcm(AesBits::B128, 16).unwrap();
    let (encr, integ) = (SecretBytes::new(&[1; 20]), SecretBytes::new(&[]));
    let transform = Transform::Esp { suite: EspSuite::Combined(alg), encr, integ };
    SaParams {
        encap: port.map(|dst_port| UdpEncap { src_port: 4500, dst_port }),
        reqid,
        dscp,
        ..SaParams::new(Spi::new(spi).unwrap(), addr(9), addr(dst), mode, transform)
    }
}

/// The oldest SA that a packet between `path` may take: of those for its DSCP, else of those for any DSCP,
/// else of all.
fn naive(sad: &Sad, template: &Template, path: AddrPair, flow: Option<&FlowKey>) -> Option<u32> {
    let is_usable = |sa: &SaOut| match template.mode {
        Mode::Tunnel => sa.matches_template(template),
        Mode::Transport => {
            let path =
                AddrPair { src: template.src.unwrap_or(path.src), dst: template.dst.unwrap_or(path.dst) };
            sa.matches_template(template) && sa.path() == path
        }
    };
    let oldest = |may: &dyn Fn(&SaOut) -> bool| {
        let usable = sad.iter_outbound().filter(|(_, sa)| is_usable(sa) && may(sa));
        usable.min_by_key(|(_, sa)| sa.serial).map(|(id, _)| id.slot())
    };
    let is_for_it = |sa: &SaOut| flow.is_some_and(|flow| sa.dscp.contains(flow.dscp()));
    oldest(&is_for_it).or_else(|| oldest(&|sa| sa.dscp.is_empty())).or_else(|| oldest(&|_| true))
}

fn templates() -> Vec<Template> {
    let mut templates = Vec::new();
    for mode in [Mode::Tunnel, Mode::Transport] {
        for reqid in 0..3 {
            for (src, dst) in [(None, None), (Some(9), Some(0)), (Some(9), Some(1)), (None, Some(1))] {
                let (src, dst) = (src.map(addr), dst.map(addr));
                templates.push(Template { protocol: Protocol::Esp, mode, src, dst, reqid });
            }
        }
    }
    templates
}

proptest! {
    #[test]
    fn all_indexes_find_the_same_outbound_sa(steps in proptest::collection::vec(step(), 0..40)) {
        let mut sad = Sad::new(100, 7);
        let mut ids = Vec::new();
        for step in steps {
            match step {
                Step::Add { dst, port, spi, reqid, mode, dscp } => {
                    let params = params(dst, port, spi, reqid, mode, dscp);
                    let sa = SaOut::new(&params, &Providers(&[&Idle]), Instant::ZERO).unwrap();
                    let same = |sa: &SaOut| {
                        (sa.dst, sa.spi, sa.encapsulation.encap) == (params.dst, params.spi, params.encap)
                    };
                    let is_there = sad.iter_outbound().any(|(_, sa)| same(sa));
                    let added = sad.add_outbound(sa);
                    prop_assert_eq!(added.err(), is_there.then_some(SadError::Duplicate));
                    ids.extend(added);
                }
                Step::Remove(which) if which < ids.len() => {
                    let id = ids.swap_remove(which);
                    prop_assert!(sad.remove(id) && !sad.remove(id));
                }
                Step::Move { which, dst, port } if which < ids.len() => {
                    let encap = port.map(|dst_port| UdpEncap { src_port: 4500, dst_port });
                    sad.move_sa(ids[which], SaPath { src: addr(9), dst: addr(dst), encap });
                }
                Step::Remove(_) | Step::Move { .. } => {}
            }
        }
        for (template, dst) in templates().iter().flat_map(|template| [(template, 0), (template, 1)]) {
            let path = AddrPair { src: addr(9), dst: addr(dst) };
            for flow in flows(path) {
                let flow = flow.as_ref();
                let found = sad.resolve(template, path, flow);
                let expected = naive(&sad, template, path, flow);
                prop_assert_eq!(found, expected, "{} {:?}", template, flow);
            }
        }
        for (id, sa) in sad.iter_outbound() {
            let port = sa.encapsulation.encap.map(|encap| encap.dst_port);
            let found = sad.find_outbound(sa.path(), port, sa.protocol, sa.spi).unwrap();
            let found = sad.outbound_ref(found).unwrap();
            let key = |sa: &SaOut| (sa.path(), sa.spi, sa.encapsulation.encap);
            prop_assert_eq!(key(found), key(sa));
            prop_assert!(sad.outbound.get(id.slot(), id.generation).is_some());
        }
        for id in ids {
            prop_assert!(sad.remove(id));
        }
        prop_assert!(sad.outbound_index.is_empty());
    }
}
