//! `xfrm policy add ...`: one entry of the SPD.

use super::LineProblem;
use super::cursor::{Cursor, set_once};
use super::selector::SelectorWords;
use casemate_datapath::spd::{Action, Bundle, MAX_BUNDLE, Policy, Template};
use casemate_sa::{Mode, Protocol, Selector, SpdId};
use std::net::IpAddr;

const EXPECTED: &str =
    "src, dst, proto, sport, dport, type, code, dir, action, priority, index, ptype, flag or tmpl";

/// The direction of a policy: the value of `dir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that leave.
    Out,
    /// Packets that arrive for this host.
    In,
    /// Packets that arrive and are forwarded. They pass the same inbound SPD as those of
    /// [`In`](Self::In).
    Forward,
}

/// A policy and its direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectedPolicy {
    /// Direction of the packets.
    pub direction: Direction,
    /// The policy.
    pub policy: Policy,
}

/// Takes the words after `policy add`.
pub(super) fn take_policy(
    cursor: &mut Cursor<'_>,
    warnings: &mut Vec<LineProblem>,
) -> Result<DirectedPolicy, LineProblem> {
    let mut words = PolicyWords::default();
    while let Some(key) = cursor.peek() {
        if SelectorWords::starts_with(key) {
            if words.selector.is_some() {
                return Err(cursor.problem_at_next(format!(
                    "`{key}`: the words of the selector were expected to stand together"
                )));
            }
            words.selector = Some(SelectorWords::take(cursor)?);
        } else {
            cursor.take();
            words.take_word(key, cursor, warnings)?;
        }
    }
    words.finish(cursor)
}

#[derive(Default)]
struct PolicyWords {
    selector: Option<SelectorWords>,
    direction: Option<Direction>,
    block: bool,
    priority: u32,
    templates: Vec<TemplateWords>,
}

/// A template and the IP version of its addresses, which also an unspecified address has.
struct TemplateWords {
    template: Template,
    is_ipv4: Option<bool>,
}

impl PolicyWords {
    fn take_word(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_>,
        warnings: &mut Vec<LineProblem>,
    ) -> Result<(), LineProblem> {
        match key {
            "dir" => set_once(&mut self.direction, take_direction(cursor)?, key, cursor)?,
            "action" => self.block = take_block(cursor)?,
            "priority" => self.priority = cursor.number()?,
            // The kernel's number of the entry; policies have no numbers here.
            "index" => drop(cursor.number::<u32>()?),
            "ptype" => {
                if cursor.value("main")? != "main" {
                    return Err(cursor.unexpected("main"));
                }
            }
            "flag" => take_flags(cursor, warnings)?,
            "tmpl" => self.templates.push(take_template(cursor)?),
            "limit" => {
                return Err(
                    cursor.problem("`limit` is not supported in a policy: it was expected in a state")
                );
            }
            "mark" | "if_id" | "ctx" | "offload" => {
                return Err(
                    cursor.problem(format!("`{key}` is not supported in a policy: {EXPECTED} was expected"))
                );
            }
            "prio" => {
                return Err(
                    cursor.problem("`prio` is not a word of a policy, nor of ip(8): `priority` was expected")
                );
            }
            _ => {
                return Err(cursor.problem(format!(
                    "{} is not a word of a policy: {EXPECTED} was expected",
                    cursor.shown()
                )));
            }
        }
        Ok(())
    }

    fn finish(self, cursor: &Cursor<'_>) -> Result<DirectedPolicy, LineProblem> {
        let Some(direction) = self.direction else {
            return Err(cursor.problem("the policy has no dir: dir in, dir out or dir fwd was expected"));
        };
        // ip(8) assumes IPv4 if there is no address.
        let selector = self.selector.unwrap_or_default().finish(true);
        check_templates(&selector, &self.templates, cursor)?;
        let action = match (self.block, self.templates.as_slice()) {
            (true, _) => Action::Discard,
            (false, []) => Action::Bypass,
            (false, templates) => {
                let templates: Vec<Template> = templates.iter().map(|words| words.template).collect();
                Action::Protect(Bundle::new(&templates).map_err(|_| {
                    cursor
                        .problem(format!("{} templates: at most {MAX_BUNDLE} were expected", templates.len()))
                })?)
            }
        };
        Ok(DirectedPolicy {
            direction,
            policy: Policy { spd: SpdId::MAIN, selector, action, priority: self.priority },
        })
    }
}

/// Checks IP versions: a tunnel may change the version; transport mode keeps the packet's own addresses.
fn check_templates(
    selector: &Selector,
    templates: &[TemplateWords],
    cursor: &Cursor<'_>,
) -> Result<(), LineProblem> {
    let mut ipv4 = selector.src.is_ipv4();
    for template in templates {
        let template_ipv4 = template.is_ipv4.unwrap_or(ipv4);
        match template.template.mode {
            Mode::Tunnel => ipv4 = template_ipv4,
            Mode::Transport if template_ipv4 != ipv4 => {
                return Err(cursor.problem(
                    "a transport-mode `tmpl` of another IP version than its packets: addresses of the \
                     selector's version were expected",
                ));
            }
            Mode::Transport => {}
        }
    }
    Ok(())
}

fn take_direction(cursor: &mut Cursor<'_>) -> Result<Direction, LineProblem> {
    match cursor.value("in, out or fwd")? {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        "fwd" => Ok(Direction::Forward),
        _ => Err(cursor.unexpected("in, out or fwd")),
    }
}

fn take_block(cursor: &mut Cursor<'_>) -> Result<bool, LineProblem> {
    match cursor.value("allow or block")? {
        "allow" => Ok(false),
        "block" => Ok(true),
        _ => Err(cursor.unexpected("allow or block")),
    }
}

/// Takes flags. `localok` permits policies of sockets, which do not exist here; `icmp` concerns errors
/// that quote a packet.
fn take_flags(cursor: &mut Cursor<'_>, warnings: &mut Vec<LineProblem>) -> Result<(), LineProblem> {
    let mut flag = cursor.value("localok or icmp")?;
    loop {
        match flag {
            "localok" => {}
            "icmp" => warnings
                .push(cursor.problem("`flag icmp` is ignored: ICMP errors are checked like other packets")),
            _ => return Err(cursor.unexpected("localok or icmp")),
        }
        match cursor.take_if(|word| matches!(word, "localok" | "icmp")) {
            Some(next) => flag = next,
            None => return Ok(()),
        }
    }
}

fn take_template(cursor: &mut Cursor<'_>) -> Result<TemplateWords, LineProblem> {
    let mut identity = None;
    let (mut mode, mut reqid) = (Mode::Transport, 0);
    while let Some(key) = cursor.peek() {
        match key {
            // As in iproute2, these words form one group; later ones belong to the policy's selector.
            "src" | "dst" | "proto" | "spi" if identity.is_none() => {
                identity = Some(take_template_identity(cursor)?)
            }
            "mode" => {
                cursor.take();
                mode = cursor.mode()?;
            }
            "reqid" => {
                cursor.take();
                reqid = cursor.number()?;
            }
            "level" => {
                cursor.take();
                take_level(cursor)?;
            }
            _ => break,
        }
    }
    let TemplateIdentity { src, dst, protocol } = identity.unwrap_or_default();
    let Some(protocol) = protocol else {
        return Err(cursor.problem("the tmpl has no protocol: proto esp or proto ah was expected"));
    };
    if let (Some(src), Some(dst)) = (src, dst)
        && src.is_ipv4() != dst.is_ipv4()
    {
        return Err(cursor
            .problem(format!("`tmpl src {src} dst {dst}`: two addresses of one IP version were expected")));
    }
    let known = |addr: &IpAddr| !addr.is_unspecified();
    Ok(TemplateWords {
        template: Template { protocol, mode, src: src.filter(known), dst: dst.filter(known), reqid },
        is_ipv4: src.or(dst).map(|addr| addr.is_ipv4()),
    })
}

/// Addresses and protocol of the matching states.
#[derive(Default)]
struct TemplateIdentity {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    protocol: Option<Protocol>,
}

fn take_template_identity(cursor: &mut Cursor<'_>) -> Result<TemplateIdentity, LineProblem> {
    let mut identity = TemplateIdentity::default();
    while let Some(key) = cursor.take_if(|word| matches!(word, "src" | "dst" | "proto" | "spi")) {
        match key {
            "src" => identity.src = Some(cursor.addr()?),
            "dst" => identity.dst = Some(cursor.addr()?),
            "proto" => identity.protocol = Some(cursor.ipsec_protocol()?),
            _ => {
                if cursor.number::<u32>()? != 0 {
                    return Err(cursor.problem(
                        "`spi` in a `tmpl` is not supported: `reqid` was expected, to name the state",
                    ));
                }
            }
        }
    }
    Ok(identity)
}

fn take_level(cursor: &mut Cursor<'_>) -> Result<(), LineProblem> {
    match cursor.value("required")? {
        "required" => Ok(()),
        "use" => Err(cursor.problem(
            "`level use` is not supported, because it lets a packet pass unprotected (RFC 4301 section 4.4.1 \
             has no such choice): level required was expected",
        )),
        _ => Err(cursor.unexpected("required")),
    }
}
