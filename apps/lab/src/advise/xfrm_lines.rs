//! `ip xfrm` lines for the best suite: states with fresh keys, and policies.

use super::Advice;
use casemate_app::failure::Failure;
use casemate_app::xfrm::state_line_with_keys;
use casemate_crypto::{EspSuite, Rng, SecretBytes};
use casemate_linux::process::SystemRng;
use casemate_sa::{Mode, SaParams, Spi, Transform, UdpEncap};
use casemate_wire::ip::IpVersion;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zeroize::Zeroizing;

const WARNING: &str = "\
# Manual keys SHOULD NOT be used (RFC 8221 section 3): they are not renewed, and anyone who learns them can decrypt
# traffic that was recorded earlier. `casemate advise --lines swanctl` prints lines for negotiated keys.
# Replace the addresses. Both hosts use both states.
";

/// Documentation addresses (RFC 5737, RFC 3849), which the user replaces.
const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)];
/// Networks behind the hosts, for tunnel mode.
const V4_NETS: [&str; 2] = ["10.1.0.0/16", "10.2.0.0/16"];
const V6_NETS: [&str; 2] = ["2001:db8:1::/48", "2001:db8:2::/48"];
/// The port of ESP in UDP (RFC 3948 section 2.1).
const NAT_PORT: u16 = 4_500;

/// The lines for both directions. They contain keys.
pub(super) fn lines(answer: &Advice) -> Result<Zeroizing<String>, Failure> {
    let suite = answer.first().ok_or_else(|| Failure::failed("the ranking is empty"))?;
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let [near, far]: [IpAddr; 2] = match answer.use_case.version {
        IpVersion::V4 => V4.map(IpAddr::from),
        IpVersion::V6 => V6.map(IpAddr::from),
    };
    let mut text = Zeroizing::new(WARNING.to_owned());
    for (src, dst) in [(near, far), (far, near)] {
        let sa = state(answer, suite, src, dst, &mut rng)
            .ok_or_else(|| Failure::failed("no SPI was generated"))?;
        text.push_str(&state_line_with_keys(&sa));
        text.push('\n');
    }
    text.push_str(&policies(answer, near, far));
    Ok(text)
}

/// The policies of the first host, and as comments those of the second.
fn policies(answer: &Advice, near: IpAddr, far: IpAddr) -> String {
    let mode = answer.settings.mode;
    let [own, peer] = match (mode, answer.use_case.version) {
        (Mode::Transport, _) => {
            [near, far].map(|host| format!("{host}/{}", if host.is_ipv4() { 32 } else { 128 }))
        }
        (Mode::Tunnel, IpVersion::V4) => V4_NETS.map(str::to_owned),
        (Mode::Tunnel, IpVersion::V6) => V6_NETS.map(str::to_owned),
    };
    let line = |direction, sends: bool| {
        let (from, to) = if sends { (&own, &peer) } else { (&peer, &own) };
        let (src, dst) = if sends { (near, far) } else { (far, near) };
        format!(
            "ip xfrm policy add src {from} dst {to} dir {direction} tmpl src {src} dst {dst} proto esp mode {mode}\n"
        )
    };
    // A tunnel also carries forwarded packets.
    let forwards = mode == Mode::Tunnel;
    let of_host = |sends: bool| {
        let forwarded = if forwards { line("fwd", !sends) } else { String::new() };
        [line("out", sends), line("in", !sends), forwarded].concat()
    };
    let second: String = of_host(false).lines().map(|line| format!("# {line}\n")).collect();
    format!("# Policies of {near}; those of {far} follow as comments.\n{}{second}", of_host(true))
}

fn state(
    answer: &Advice,
    suite: EspSuite,
    src: IpAddr,
    dst: IpAddr,
    rng: &mut SystemRng,
) -> Option<SaParams> {
    let (encr, integ) = (suite.encr_key_len(), suite.integ_key_len());
    let transform = Transform::Esp { suite, encr: key(encr, rng), integ: key(integ, rng) };
    Some(SaParams {
        encap: answer.use_case.behind_nat.then_some(UdpEncap { src_port: NAT_PORT, dst_port: NAT_PORT }),
        esn: answer.settings.esn,
        replay_window: answer.settings.replay_window,
        ..SaParams::new(spi(rng)?, src, dst, answer.settings.mode, transform)
    })
}

fn key(len: usize, rng: &mut SystemRng) -> SecretBytes {
    let mut bytes = Zeroizing::new(vec![0; len]);
    rng.secret(&mut bytes);
    SecretBytes::new(&bytes)
}

/// 1 to 255 are reserved (RFC 4303 section 2.1).
fn spi(rng: &mut SystemRng) -> Option<Spi> {
    let mut bytes = [0; 4];
    rng.public(&mut bytes);
    Spi::new(u32::from_be_bytes(bytes) | 0x100)
}
