//! `xfrm policy add ...`: one entry of the SPD.

use super::cursor::{Cursor, once};
use super::problem::Problem;
use super::selector::SelectorWords;
use casemate_datapath::spd::{Action, Bundle, MAX_BUNDLE, Policy, Template};
use casemate_sa::{Mode, Protocol, Selector};
use std::net::IpAddr;

const EXPECTED: &str =
    "src, dst, proto, sport, dport, type, code, dir, action, priority, index, ptype, flag or tmpl";

/// Where a policy applies, as `dir` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To packets that leave.
    Out,
    /// To packets that come in for this host.
    In,
    /// To packets that come in and are routed on; they pass the same inbound SPD as those of [`In`](Self::In).
    Forward,
}

/// A policy and where it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectedPolicy {
    /// Where.
    pub direction: Direction,
    /// What.
    pub policy: Policy,
}

/// Takes the words after `policy add`.
pub(super) fn take_policy(
    cursor: &mut Cursor<'_>,
    warnings: &mut Vec<Problem>,
) -> Result<DirectedPolicy, Problem> {
    let mut words = PolicyWords::default();
    while let Some(key) = cursor.peek() {
        if SelectorWords::starts_with(key) {
            if words.selector.is_some() {
                return Err(cursor.wrong_next(format!(
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

/// A template, and the IP version that its addresses name even where they are 0.
struct TemplateWords {
    template: Template,
    is_ipv4: Option<bool>,
}

impl PolicyWords {
    fn take_word(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_>,
        warnings: &mut Vec<Problem>,
    ) -> Result<(), Problem> {
        match key {
            "dir" => once(&mut self.direction, take_direction(cursor)?, key, cursor)?,
            "action" => self.block = take_block(cursor)?,
            "priority" => self.priority = cursor.number()?,
            // The kernel's own number for the entry; policies are not addressed by number here.
            "index" => drop(cursor.number::<u32>()?),
            "ptype" => {
                if cursor.value("main")? != "main" {
                    return Err(cursor.bad("main"));
                }
            }
            "flag" => take_flags(cursor, warnings)?,
            "tmpl" => self.templates.push(take_template(cursor)?),
            "limit" => {
                return Err(cursor.wrong("`limit` is not supported in a policy: it was expected in a state"));
            }
            "mark" | "if_id" | "ctx" | "offload" => {
                return Err(
                    cursor.wrong(format!("`{key}` is not supported in a policy: {EXPECTED} was expected"))
                );
            }
            "prio" => {
                return Err(
                    cursor.wrong("`prio` is no word of a policy, for ip(8) neither: `priority` was expected")
                );
            }
            _ => {
                return Err(cursor
                    .wrong(format!("{} is no word of a policy: {EXPECTED} was expected", cursor.shown())));
            }
        }
        Ok(())
    }

    fn finish(self, cursor: &Cursor<'_>) -> Result<DirectedPolicy, Problem> {
        let Some(direction) = self.direction else {
            return Err(cursor.wrong("the policy has no dir: dir in, dir out or dir fwd was expected"));
        };
        // Without any address ip(8) means IPv4.
        let selector = self.selector.unwrap_or_default().finish(true);
        check_templates(&selector, &self.templates, cursor)?;
        let action = match (self.block, self.templates.as_slice()) {
            (true, _) => Action::Discard,
            (false, []) => Action::Bypass,
            (false, templates) => {
                let templates: Vec<Template> = templates.iter().map(|words| words.template).collect();
                Action::Protect(Bundle::new(&templates).map_err(|_| {
                    cursor.wrong(format!("{} templates: at most {MAX_BUNDLE} were expected", templates.len()))
                })?)
            }
        };
        Ok(DirectedPolicy { direction, policy: Policy { selector, action, priority: self.priority } })
    }
}

/// A tunnel may change the IP version; transport mode keeps the packet's own addresses.
fn check_templates(
    selector: &Selector,
    templates: &[TemplateWords],
    cursor: &Cursor<'_>,
) -> Result<(), Problem> {
    let mut ipv4 = selector.src.is_ipv4();
    for template in templates {
        let template_ipv4 = template.is_ipv4.unwrap_or(ipv4);
        match template.template.mode {
            Mode::Tunnel => ipv4 = template_ipv4,
            Mode::Transport if template_ipv4 != ipv4 => {
                return Err(cursor.wrong(
                    "a transport-mode `tmpl` of another IP version than its packets: addresses of the selector's version \
                     were expected",
                ));
            }
            Mode::Transport => {}
        }
    }
    Ok(())
}

fn take_direction(cursor: &mut Cursor<'_>) -> Result<Direction, Problem> {
    match cursor.value("in, out or fwd")? {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        "fwd" => Ok(Direction::Forward),
        _ => Err(cursor.bad("in, out or fwd")),
    }
}

fn take_block(cursor: &mut Cursor<'_>) -> Result<bool, Problem> {
    match cursor.value("allow or block")? {
        "allow" => Ok(false),
        "block" => Ok(true),
        _ => Err(cursor.bad("allow or block")),
    }
}

/// `localok` lets sockets have policies of their own, which there are none of; `icmp` is about errors quoting a packet.
fn take_flags(cursor: &mut Cursor<'_>, warnings: &mut Vec<Problem>) -> Result<(), Problem> {
    let mut flag = cursor.value("localok or icmp")?;
    loop {
        match flag {
            "localok" => {}
            "icmp" => warnings
                .push(cursor.wrong("`flag icmp` is ignored: ICMP errors are checked like other packets")),
            _ => return Err(cursor.bad("localok or icmp")),
        }
        match cursor.take_if(|word| matches!(word, "localok" | "icmp")) {
            Some(next) => flag = next,
            None => return Ok(()),
        }
    }
}

fn take_template(cursor: &mut Cursor<'_>) -> Result<TemplateWords, Problem> {
    let mut identity = None;
    let (mut mode, mut reqid) = (Mode::Transport, 0);
    while let Some(key) = cursor.peek() {
        match key {
            // As in iproute2 these stand together once; what comes later is the policy's selector again.
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
    let (src, dst, protocol) = identity.unwrap_or_default();
    let Some(protocol) = protocol else {
        return Err(cursor.wrong("the tmpl has no protocol: proto esp or proto ah was expected"));
    };
    if let (Some(src), Some(dst)) = (src, dst)
        && src.is_ipv4() != dst.is_ipv4()
    {
        return Err(cursor
            .wrong(format!("`tmpl src {src} dst {dst}`: two addresses of one IP version were expected")));
    }
    let known = |addr: &IpAddr| !addr.is_unspecified();
    Ok(TemplateWords {
        template: Template { protocol, mode, src: src.filter(known), dst: dst.filter(known), reqid },
        is_ipv4: src.or(dst).map(|addr| addr.is_ipv4()),
    })
}

/// Source, destination and protocol of the states that serve.
type TemplateIdentity = (Option<IpAddr>, Option<IpAddr>, Option<Protocol>);

fn take_template_identity(cursor: &mut Cursor<'_>) -> Result<TemplateIdentity, Problem> {
    let (mut src, mut dst, mut protocol) = (None, None, None);
    while let Some(key) = cursor.take_if(|word| matches!(word, "src" | "dst" | "proto" | "spi")) {
        match key {
            "src" => src = Some(cursor.addr()?),
            "dst" => dst = Some(cursor.addr()?),
            "proto" => protocol = Some(cursor.ipsec_protocol()?),
            _ => {
                if cursor.number::<u32>()? != 0 {
                    return Err(cursor.wrong(
                        "`spi` in a `tmpl` is not supported: `reqid` was expected, to name the state",
                    ));
                }
            }
        }
    }
    Ok((src, dst, protocol))
}

fn take_level(cursor: &mut Cursor<'_>) -> Result<(), Problem> {
    match cursor.value("required")? {
        "required" => Ok(()),
        "use" => Err(cursor.wrong(
            "`level use` is not supported, since it lets a packet pass unprotected (RFC 4301 section 4.4.1 has no such \
             choice): level required was expected",
        )),
        _ => Err(cursor.bad("required")),
    }
}
