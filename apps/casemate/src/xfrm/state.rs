//! `xfrm state add ...`: one SA.
//!
//! Words come in any order, but those of the identity (src, dst, proto, spi) form one group, as in
//! iproute2. A word that asks for an unsupported feature is an error, never ignored silently.

use super::LineProblem;
use super::algorithm::{Combined, Keyed, take_aead, take_cipher, take_mac, take_mac_truncated, transform};
use super::cursor::{Cursor, set_once};
use super::selector::SelectorWords;
use casemate_crypto::{CipherAlg, MacAlg};
use casemate_sa::{
    DfPolicy, DscpPolicy, Lifetime, Mode, OuterHeader, Protocol, SaParams, Selector, Spi, UdpEncap,
};
use casemate_wire::ah::Align;
use std::net::IpAddr;
use std::time::Duration;

/// Default anti-replay window, in packets. (The kernel's default is no window.)
pub const DEFAULT_REPLAY_WINDOW: u32 = 64;

const EXPECTED: &str = "src, dst, proto, spi, mode, reqid, replay-window, replay-seq, replay-oseq, flag, \
                        extra-flag, enc, auth, auth-trunc, aead, encap, sel, limit or tfcpad";

/// Takes the words after `state add`.
pub(super) fn take_state(
    cursor: &mut Cursor<'_>,
    warnings: &mut Vec<LineProblem>,
) -> Result<SaParams, LineProblem> {
    let mut words = StateWords::default();
    while let Some(key) = cursor.peek() {
        if matches!(key, "src" | "dst" | "proto" | "spi") {
            words.take_identity(cursor)?;
        } else {
            cursor.take();
            words.take_word(key, cursor, warnings)?;
        }
    }
    words.finish(cursor, warnings)
}

/// The words of one state.
#[derive(Default)]
struct StateWords {
    identity: Option<SaIdentity>,
    mode: Option<Mode>,
    reqid: Option<u32>,
    replay_window: Option<u32>,
    seq: Sequence,
    oseq: Sequence,
    flags: Flags,
    cipher: Option<Keyed<CipherAlg>>,
    mac: Option<Keyed<MacAlg>>,
    combined: Option<Keyed<Combined>>,
    encap: Option<UdpEncap>,
    selector: Option<SelectorWords>,
    lifetime: Lifetime,
    tfc_pad_to: Option<u16>,
}

#[derive(Default, Clone, Copy)]
struct SaIdentity {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    protocol: Option<Protocol>,
    spi: Option<Spi>,
}

/// A sequence number in two halves.
#[derive(Default, Clone, Copy)]
struct Sequence {
    low: Option<u32>,
    high: Option<u32>,
}

impl Sequence {
    /// Joins the halves. An upper half without ESN is an error.
    fn number(self, esn: bool, cursor: &Cursor<'_>) -> Result<u64, LineProblem> {
        let high = self.high.unwrap_or(0);
        if high > 0 && !esn {
            return Err(cursor.problem("`replay-seq-hi` and `replay-oseq-hi`: expected only with `flag esn`"));
        }
        Ok(u64::from(high) << 32 | u64::from(self.low.unwrap_or(0)))
    }
}

#[derive(Default)]
struct Flags {
    esn: bool,
    no_ecn: bool,
    no_pmtu_discovery: bool,
    any_version: bool,
    align4: bool,
    dont_encap_dscp: bool,
}

impl StateWords {
    fn take_identity(&mut self, cursor: &mut Cursor<'_>) -> Result<(), LineProblem> {
        let mut id = SaIdentity::default();
        while let Some(key) = cursor.take_if(|word| matches!(word, "src" | "dst" | "proto" | "spi")) {
            if self.identity.is_some() {
                return Err(cursor.problem(format!(
                    "`{key}`: src, dst, proto and spi were expected to stand together, once"
                )));
            }
            match key {
                "src" => id.src = Some(cursor.addr()?),
                "dst" => id.dst = Some(cursor.addr()?),
                "proto" => id.protocol = Some(cursor.ipsec_protocol()?),
                _ => id.spi = Some(take_spi(cursor)?),
            }
        }
        self.identity = Some(id);
        Ok(())
    }

    fn take_word(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_>,
        warnings: &mut Vec<LineProblem>,
    ) -> Result<(), LineProblem> {
        match key {
            "mode" => set_once(&mut self.mode, cursor.mode()?, key, cursor),
            "reqid" => set_once(&mut self.reqid, cursor.number()?, key, cursor),
            "replay-window" => set_once(&mut self.replay_window, cursor.number()?, key, cursor),
            "replay-seq" => set_once(&mut self.seq.low, cursor.number()?, key, cursor),
            "replay-seq-hi" => set_once(&mut self.seq.high, cursor.number()?, key, cursor),
            "replay-oseq" => set_once(&mut self.oseq.low, cursor.number()?, key, cursor),
            "replay-oseq-hi" => set_once(&mut self.oseq.high, cursor.number()?, key, cursor),
            "flag" => self.flags.take(cursor, warnings),
            "extra-flag" => self.flags.take_extra(cursor),
            "enc" => set_once(&mut self.cipher, take_cipher(cursor)?, key, cursor),
            "auth" => set_once(&mut self.mac, take_mac(cursor)?, key, cursor),
            "auth-trunc" => set_once(&mut self.mac, take_mac_truncated(cursor)?, key, cursor),
            "aead" => set_once(&mut self.combined, take_aead(cursor)?, key, cursor),
            "encap" => set_once(&mut self.encap, take_encap(cursor)?, key, cursor),
            "sel" => {
                if !cursor.peek().is_some_and(SelectorWords::starts_with) {
                    return Err(cursor.problem(
                        "after `sel` one of src, dst, proto, sport, dport, type or code was expected",
                    ));
                }
                set_once(&mut self.selector, SelectorWords::take(cursor)?, key, cursor)
            }
            "limit" => take_limit(cursor, &mut self.lifetime),
            "tfcpad" => set_once(&mut self.tfc_pad_to, cursor.number()?, key, cursor),
            // A number for the key manager; it has no effect on packets.
            "seq" => cursor.number::<u32>().map(drop),
            "comp" | "mark" | "if_id" | "output-mark" | "offload" | "coa" | "ctx" | "dir" | "pcpu-num" => {
                Err(cursor.problem(format!("`{key}` is not supported in a state: {EXPECTED} was expected")))
            }
            _ => Err(cursor
                .problem(format!("{} is not a word of a state: {EXPECTED} was expected", cursor.shown()))),
        }
    }

    fn finish(self, cursor: &Cursor<'_>, warnings: &mut Vec<LineProblem>) -> Result<SaParams, LineProblem> {
        let id = self.identity.unwrap_or_default();
        let (src, dst) = (required(id.src, "src ADDRESS", cursor)?, required(id.dst, "dst ADDRESS", cursor)?);
        let protocol = required(id.protocol, "proto esp or proto ah", cursor)?;
        let spi = required(id.spi, "spi NUMBER", cursor)?;
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(cursor
                .problem(format!("`src {src} dst {dst}`: two addresses of one IP version were expected")));
        }
        if let Some(addr) = [src, dst].into_iter().find(IpAddr::is_unspecified) {
            return Err(cursor.problem(format!("`{addr}`: the address of one host was expected")));
        }
        let mode = self.mode.unwrap_or(Mode::Transport);
        let flags = self.flags;
        if flags.esn && self.replay_window.unwrap_or(0) == 0 {
            warnings.push(cursor.problem("`flag esn` without a replay-window: ip(8) refuses this line"));
        }
        let last_received = self.seq.number(flags.esn, cursor)?;
        let last_sent = self.oseq.number(flags.esn, cursor)?;
        let tfc_pad_to = self.tfc_pad_to.unwrap_or(0);
        if tfc_pad_to != 0 && (protocol, mode) != (Protocol::Esp, Mode::Tunnel) {
            return Err(cursor
                .problem("`tfcpad`: expected only with proto esp in mode tunnel (RFC 4303 section 2.7)"));
        }
        if self.encap.is_some() && protocol == Protocol::Ah {
            return Err(cursor.problem("`encap`: expected only with proto esp (RFC 3948 section 1)"));
        }
        let selector = finish_selector(self.selector, &flags, src.is_ipv4(), mode, cursor)?;
        let transform = transform(protocol, self.cipher, self.mac, self.combined, cursor)?;
        Ok(SaParams {
            encap: self.encap,
            esn: flags.esn,
            replay_window: self.replay_window.unwrap_or(DEFAULT_REPLAY_WINDOW),
            last_sent,
            last_received,
            selector,
            lifetime: self.lifetime,
            reqid: self.reqid.unwrap_or(0),
            tfc_pad_to,
            outer: flags.outer_header(),
            ah_align: if flags.align4 { Align::Four } else { Align::Eight },
            ..SaParams::new(spi, src, dst, mode, transform)
        })
    }
}

impl Flags {
    fn take(&mut self, cursor: &mut Cursor<'_>, warnings: &mut Vec<LineProblem>) -> Result<(), LineProblem> {
        const LIMITS: &str = "esn, noecn, nopmtudisc, af-unspec, align4 or icmp";
        let mut flag = cursor.value(LIMITS)?;
        loop {
            match flag {
                "esn" => self.esn = true,
                "noecn" => self.no_ecn = true,
                "nopmtudisc" => self.no_pmtu_discovery = true,
                "af-unspec" => self.any_version = true,
                "align4" => self.align4 = true,
                "icmp" => warnings
                    .push(cursor.problem("`flag icmp` is ignored: ICMP errors are checked by the policies")),
                "decap-dscp" => {
                    return Err(cursor.problem(format!(
                        "`flag decap-dscp` is not supported, the inner DSCP stays unchanged (RFC 4301 \
                         section 5.1.2): {LIMITS} was expected"
                    )));
                }
                _ => return Err(cursor.unexpected(LIMITS)),
            }
            match cursor.take_if(is_flag) {
                Some(next) => flag = next,
                None => return Ok(()),
            }
        }
    }

    fn take_extra(&mut self, cursor: &mut Cursor<'_>) -> Result<(), LineProblem> {
        const LIMITS: &str = "dont-encap-dscp";
        match cursor.value(LIMITS)? {
            "dont-encap-dscp" => self.dont_encap_dscp = true,
            "oseq-may-wrap" => {
                return Err(cursor.problem(
                    "`oseq-may-wrap` is not supported: a sequence number is never used twice (RFC 4303 \
                     section 3.3.3)",
                ));
            }
            _ => return Err(cursor.unexpected(LIMITS)),
        }
        Ok(())
    }

    fn outer_header(&self) -> OuterHeader {
        let outer = OuterHeader::default();
        OuterHeader {
            dscp: if self.dont_encap_dscp { DscpPolicy::Set(0) } else { outer.dscp },
            df: if self.no_pmtu_discovery { DfPolicy::Clear } else { outer.df },
            ecn: !self.no_ecn,
            ..outer
        }
    }
}

fn is_flag(word: &str) -> bool {
    matches!(
        word,
        "esn" | "noecn" | "nopmtudisc" | "af-unspec" | "align4" | "icmp" | "decap-dscp" | "wildrecv"
    )
}

fn required<T>(value: Option<T>, what: &str, cursor: &Cursor<'_>) -> Result<T, LineProblem> {
    value.ok_or_else(|| {
        cursor.problem(format!(
            "the state has no {}: {what} was expected",
            what.split(' ').next().unwrap_or(what)
        ))
    })
}

fn take_spi(cursor: &mut Cursor<'_>) -> Result<Spi, LineProblem> {
    Spi::new(cursor.number()?)
        .ok_or_else(|| cursor.unexpected("an SPI from 1 to 4294967295 (RFC 4303 section 2.1)"))
}

/// Takes `espinudp SPORT DPORT OADDR`. The original address is for checksum corrections that the data
/// path does not need.
fn take_encap(cursor: &mut Cursor<'_>) -> Result<UdpEncap, LineProblem> {
    match cursor.value("espinudp")? {
        "espinudp" => {}
        other @ ("espinudp-nonike" | "espintcp") => {
            return Err(cursor.problem(format!("`encap {other}` is not supported: espinudp was expected")));
        }
        _ => return Err(cursor.unexpected("espinudp")),
    }
    let (src_port, dst_port) = (cursor.number()?, cursor.number()?);
    if src_port == 0 || dst_port == 0 {
        return Err(cursor.problem("`encap espinudp`: ports from 1 to 65535 were expected"));
    }
    if cursor.value("an original address, 0.0.0.0 for none,")? != "any" {
        cursor.addr_in_last()?;
    }
    Ok(UdpEncap { src_port, dst_port })
}

fn finish_selector(
    words: Option<SelectorWords>,
    flags: &Flags,
    ipv4: bool,
    mode: Mode,
    cursor: &Cursor<'_>,
) -> Result<Option<Selector>, LineProblem> {
    let Some(words) = words else { return Ok(None) };
    if flags.any_version && !words.names_version() {
        return Err(cursor
            .problem("`sel` with `flag af-unspec`: `src` or `dst` was expected, to name the IP version"));
    }
    let selector = words.finish(ipv4);
    if mode == Mode::Transport && selector.src.is_ipv4() != ipv4 {
        return Err(cursor.problem(
            "`sel` of another IP version than the state: expected only in mode tunnel, which can change it",
        ));
    }
    Ok(Some(selector))
}

const LIMITS: &str =
    "time-soft, time-hard, time-use-soft, time-use-hard, byte-soft, byte-hard, packet-soft or packet-hard";

/// Takes one bound after `limit` and stores it in `lifetime`.
pub(super) fn take_limit(cursor: &mut Cursor<'_>, lifetime: &mut Lifetime) -> Result<(), LineProblem> {
    let key = cursor.value(LIMITS)?;
    let (bounds, kind) = match key.rsplit_once('-') {
        Some((kind, "soft")) => (&mut lifetime.soft, kind),
        Some((kind, "hard")) => (&mut lifetime.hard, kind),
        _ => return Err(cursor.unexpected(LIMITS)),
    };
    match kind {
        "time" => bounds.since_added = seconds(cursor)?,
        "time-use" => bounds.since_used = seconds(cursor)?,
        "byte" => bounds.bytes = count(cursor)?,
        "packet" => bounds.packets = count(cursor)?,
        _ => return Err(cursor.unexpected(LIMITS)),
    }
    Ok(())
}

/// Takes seconds; 0 means no bound, as in the kernel.
fn seconds(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, LineProblem> {
    let seconds = cursor.number()?;
    Ok((seconds != 0).then_some(Duration::from_secs(seconds)))
}

/// Takes bytes or packets; the largest number means no bound, as in the kernel (XFRM_INF).
fn count(cursor: &mut Cursor<'_>) -> Result<Option<u64>, LineProblem> {
    match cursor.number()? {
        0 => Err(cursor.unexpected("at least 1 (0 would end the SA before its first packet)")),
        u64::MAX => Ok(None),
        count => Ok(Some(count)),
    }
}
