//! `parse(print(sa)) == sa` for every SA that the syntax can describe.

use super::*;
use casemate_sa::{AddrRange, Selector};
use std::net::{Ipv4Addr, Ipv6Addr};

fn addr(v4: bool) -> impl Strategy<Value = IpAddr> {
    (1u128..u128::MAX).prop_map(move |bits| match v4 {
        true => Ipv4Addr::from_bits((bits as u32).max(1)).into(),
        false => Ipv6Addr::from_bits(bits).into(),
    })
}

fn secret(len: usize) -> impl Strategy<Value = SecretBytes> {
    prop::collection::vec(any::<u8>(), len).prop_map(|bytes| SecretBytes::new(&bytes))
}

fn mac() -> impl Strategy<Value = MacAlg> {
    let kinds = vec![
        MacKind::HmacMd5,
        MacKind::HmacSha1,
        MacKind::HmacSha256,
        MacKind::HmacSha384,
        MacKind::HmacSha512,
        MacKind::AesXcbc,
        MacKind::AesCmac,
    ];
    (prop::sample::select(kinds), 8usize..64)
        .prop_map(|(kind, len)| MacAlg::truncated(kind, len.min(kind.full_tag_len())).unwrap())
}

fn gmac() -> impl Strategy<Value = MacAlg> {
    prop::sample::select(AesBits::ALL.to_vec()).prop_map(|bits| MacAlg::standard(MacKind::AesGmac(bits)))
}

fn cipher() -> impl Strategy<Value = CipherAlg> {
    let aes = AesBits::ALL.into_iter().flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)]);
    let all: Vec<_> = aes.chain([CipherAlg::Null, CipherAlg::DesCbc, CipherAlg::TripleDesCbc]).collect();
    prop::sample::select(all)
}

fn aead() -> impl Strategy<Value = AeadAlg> {
    let sizes = AesBits::ALL.into_iter().flat_map(|bits| [8, 12, 16].map(|icv| (bits, icv)));
    let aes = sizes.flat_map(|(bits, icv)| [AeadAlg::aes_gcm(bits, icv), AeadAlg::aes_ccm(bits, icv)]);
    prop::sample::select(aes.map(Result::unwrap).chain([AeadAlg::ChaCha20Poly1305]).collect::<Vec<_>>())
}

fn transform() -> impl Strategy<Value = Transform> {
    let combined = aead().prop_flat_map(|aead| {
        secret(aead.key_len() + aead.salt_len()).prop_map(move |encr| Transform::Esp {
            suite: EspSuite::Combined(aead),
            encr,
            integ: SecretBytes::new(&[]),
        })
    });
    let separate =
        prop_oneof![(cipher(), mac()), (Just(CipherAlg::Null), gmac())].prop_flat_map(|(cipher, mac)| {
            (secret(cipher.key_len() + cipher.salt_len()), secret(mac.key_len() + mac.salt_len())).prop_map(
                move |(encr, integ)| Transform::Esp { suite: EspSuite::Separate(cipher, mac), encr, integ },
            )
        });
    let ah = prop_oneof![mac(), gmac()].prop_flat_map(|mac| {
        secret(mac.key_len() + mac.salt_len())
            .prop_map(move |integ| Transform::Ah { suite: AhSuite(mac), integ })
    });
    prop_oneof![combined, separate, ah]
}

fn ports(proto: Option<u8>) -> BoxedStrategy<PortRange> {
    match proto {
        None | Some(6 | 17) => {
            prop_oneof![Just(PortRange::ANY), (1u16..).prop_map(PortRange::single)].boxed()
        }
        Some(1 | 58) => prop_oneof![Just(PortRange::ANY), (0u16..256).prop_map(PortRange::single)].boxed(),
        Some(_) => Just(PortRange::ANY).boxed(),
    }
}

fn selector() -> impl Strategy<Value = Selector> {
    let proto = prop::sample::select(vec![None, Some(1), Some(6), Some(17), Some(47), Some(58)]);
    (any::<bool>(), proto).prop_flat_map(|(v4, proto)| {
        let max_len = if v4 { 32u8 } else { 128 };
        let range =
            move || (addr(v4), 0..=max_len).prop_map(|(addr, len)| AddrRange::prefix(addr, len).unwrap());
        (range(), range(), ports(proto), ports(proto))
            .prop_map(move |(src, dst, src_port, dst_port)| Selector { src, dst, proto, src_port, dst_port })
    })
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let time = || prop::option::of((1u64..u64::MAX).prop_map(Duration::from_secs));
    let count = || prop::option::of(1u64..u64::MAX);
    (time(), time(), count(), count()).prop_map(|(since_added, since_used, bytes, packets)| Bounds {
        bytes,
        packets,
        since_added,
        since_used,
    })
}

fn outer() -> impl Strategy<Value = OuterHeader> {
    let dscp = prop_oneof![Just(DscpPolicy::Copy), Just(DscpPolicy::Set(0))];
    let df = prop_oneof![Just(DfPolicy::Copy), Just(DfPolicy::Clear)];
    (dscp, df, any::<bool>()).prop_map(|(dscp, df, ecn)| OuterHeader {
        dscp,
        df,
        ecn,
        ..OuterHeader::default()
    })
}

fn sa() -> impl Strategy<Value = SaParams> {
    let tunnel = prop_oneof![Just(Mode::Transport), Just(Mode::Tunnel)];
    let names = (any::<bool>().prop_flat_map(|v4| (addr(v4), addr(v4))), 1u32.., any::<u32>(), tunnel);
    let window = (any::<u32>(), any::<[u64; 2]>(), any::<bool>());
    let encap =
        prop::option::of((1u16.., 1u16..).prop_map(|(src_port, dst_port)| UdpEncap { src_port, dst_port }));
    let rest =
        (prop::option::of(selector()), bounds(), bounds(), outer(), any::<bool>(), any::<u16>(), encap);
    (names, window, transform(), rest).prop_map(|(names, (replay_window, last, esn), transform, rest)| {
        let ((src, dst), spi, reqid, mode) = names;
        let (selector, soft, hard, outer, four, tfc_pad_to, encap) = rest;
        let esp = transform.protocol() == Protocol::Esp;
        let [last_sent, last_received] = if esn { last } else { last.map(|last| last & 0xFFFF_FFFF) };
        SaParams {
            encap: encap.filter(|_| esp),
            esn,
            replay_window,
            last_sent,
            last_received,
            selector: selector.filter(|sel| mode == Mode::Tunnel || sel.src.is_ipv4() == src.is_ipv4()),
            lifetime: Lifetime { soft, hard },
            reqid,
            tfc_pad_to: if esp && mode == Mode::Tunnel { tfc_pad_to } else { 0 },
            outer,
            ah_align: if four { Align::Four } else { Align::Eight },
            ..SaParams::new(Spi::new(spi).unwrap(), src, dst, mode, transform)
        }
    })
}

proptest! {
    #[test]
    fn printed_states_parse_to_the_same_sa(sa in sa()) {
        let line = state_line_with_keys(&sa);
        prop_assert!(line.capacity() == 2_048, "the line has moved: {} bytes", line.len());
        let file = XfrmFile::parse(line.as_bytes());
        prop_assert_eq!(&file.as_ref().map(|f| &f.states[0].value), &Ok(&sa), "{}", *line);
    }
}
