//! One policy: a selector, and the action for the packets that match it (RFC 4301 section 4.4.1.2).
//!
//! Plain data. A [`Template`] describes the SAs that a policy accepts, as in `ip xfrm policy ... tmpl`.
//! Several protections of one packet, such as AH over ESP, are a [`Bundle`] of at most [`MAX_BUNDLE`]
//! templates.

use arrayvec::ArrayVec;
use casemate_sa::{Mode, Protocol, Selector, SpdId};
use core::fmt;
use core::net::IpAddr;

/// Maximum number of SAs that one policy applies to a packet.
pub const MAX_BUNDLE: usize = 2;

/// One entry of an SPD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The SPD that the policy belongs to.
    pub spd: SpdId,
    /// The packets that the policy applies to.
    pub selector: Selector,
    /// What happens to these packets.
    pub action: Action,
    /// The lowest value takes precedence. Among policies of equal priority, the one inserted first does.
    pub priority: u32,
}

/// The three processing choices (RFC 4301 section 4.4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The packet may not cross the IPsec boundary.
    Discard,
    /// The packet crosses without protection.
    Bypass,
    /// The packet crosses with exactly this protection.
    Protect(Bundle),
}

/// The protections of one packet, innermost first; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    templates: ArrayVec<Template, MAX_BUNDLE>,
    accepts_equal: bool,
}

/// The templates do not form a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleError {
    /// There is no template.
    Empty,
    /// There are more than [`MAX_BUNDLE`] templates.
    TooLong,
}

impl Bundle {
    /// A bundle of these protections, innermost first.
    pub fn new(templates: &[Template]) -> Result<Self, BundleError> {
        if templates.is_empty() {
            return Err(BundleError::Empty);
        }
        let templates = ArrayVec::try_from(templates).map_err(|_| BundleError::TooLong)?;
        Ok(Self { templates, accepts_equal: false })
    }

    /// A bundle of one protection.
    pub fn single(template: Template) -> Self {
        Self { templates: ArrayVec::from_iter([template]), accepts_equal: false }
    }

    /// The templates, innermost first.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Accepts inbound packets through the SAs of another policy, too, if that has the same selector and
    /// priority and accepts equal ones as well. Only for traffic that the administrator has assigned to both
    /// policies: either peer can send it.
    #[must_use]
    pub fn accepting_equal(self, accepts_equal: bool) -> Self {
        Self { accepts_equal, ..self }
    }

    /// Whether [`accepting_equal`](Self::accepting_equal) was called with `true`.
    pub(crate) const fn accepts_equal(&self) -> bool {
        self.accepts_equal
    }
}

/// The properties of an SA that may serve a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// ESP or AH.
    pub protocol: Protocol,
    /// Transport or tunnel.
    pub mode: Mode,
    /// Source address of the SA; `None` is any. In transport mode `None` means the packet's own address.
    pub src: Option<IpAddr>,
    /// Destination address, likewise.
    pub dst: Option<IpAddr>,
    /// Reqid of the SA; 0 is any.
    pub reqid: u32,
}

impl Template {
    /// Whether an SA with these values matches. As in Linux, an SA with `reqid` 0 does not match a template
    /// with another reqid.
    pub fn accepts(&self, protocol: Protocol, mode: Mode, src: IpAddr, dst: IpAddr, reqid: u32) -> bool {
        self.protocol == protocol
            && self.mode == mode
            && self.src.is_none_or(|wanted| wanted == src)
            && self.dst.is_none_or(|wanted| wanted == dst)
            && (self.reqid == 0 || self.reqid == reqid)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} priority {}: {}", self.selector, self.priority, self.action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discard => f.write_str("discard"),
            Self::Bypass => f.write_str("bypass"),
            Self::Protect(bundle) => write!(f, "protect {bundle}"),
        }
    }
}

impl fmt::Display for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, template) in self.templates().iter().enumerate() {
            write!(f, "{}{template}", if n == 0 { "" } else { ", then " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.protocol, self.mode)?;
        match (self.src, self.dst) {
            (None, None) => {}
            (Some(src), None) => write!(f, " {src} -> any")?,
            (None, Some(dst)) => write!(f, " any -> {dst}")?,
            (Some(src), Some(dst)) => write!(f, " {src} -> {dst}")?,
        }
        if self.reqid != 0 {
            write!(f, " reqid {}", self.reqid)?;
        }
        Ok(())
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no template: a protecting policy needs at least one"),
            Self::TooLong => write!(f, "too many templates: a policy has at most {MAX_BUNDLE}"),
        }
    }
}

impl core::error::Error for BundleError {}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::AddrRange;
    use std::string::ToString;

    const LEFT: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
    const RIGHT: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 2));
    const ANY: Template =
        Template { protocol: Protocol::Esp, mode: Mode::Transport, src: None, dst: None, reqid: 0 };
    const EXACT: Template =
        Template { protocol: Protocol::Ah, mode: Mode::Tunnel, src: Some(LEFT), dst: Some(RIGHT), reqid: 7 };

    #[test]
    fn template_matches_by_its_fields() {
        assert!(ANY.accepts(Protocol::Esp, Mode::Transport, RIGHT, LEFT, 9));
        assert!(!ANY.accepts(Protocol::Ah, Mode::Transport, RIGHT, LEFT, 9));
        assert!(!ANY.accepts(Protocol::Esp, Mode::Tunnel, RIGHT, LEFT, 9));
        assert!(EXACT.accepts(Protocol::Ah, Mode::Tunnel, LEFT, RIGHT, 7));
        assert!(!EXACT.accepts(Protocol::Ah, Mode::Tunnel, RIGHT, RIGHT, 7));
        assert!(!EXACT.accepts(Protocol::Ah, Mode::Tunnel, LEFT, LEFT, 7));
        assert!(!EXACT.accepts(Protocol::Ah, Mode::Tunnel, LEFT, RIGHT, 0));
    }

    #[test]
    fn bundle_has_one_or_two_templates() {
        assert_eq!(Bundle::new(&[]), Err(BundleError::Empty));
        assert_eq!(Bundle::new(&[ANY; 3]), Err(BundleError::TooLong));
        assert_eq!(Bundle::new(&[ANY]), Ok(Bundle::single(ANY)));
        assert_eq!(Bundle::new(&[ANY, EXACT]).unwrap().templates(), [ANY, EXACT]);
    }

    #[test]
    fn shown() {
        let selector = Selector::between(AddrRange::single(LEFT), AddrRange::ANY_V4);
        let show = |action| Policy { spd: SpdId::MAIN, selector, action, priority: 5 }.to_string();
        assert_eq!(show(Action::Discard), "192.0.2.1/32 -> 0.0.0.0/0 priority 5: discard");
        assert_eq!(show(Action::Bypass), "192.0.2.1/32 -> 0.0.0.0/0 priority 5: bypass");
        assert_eq!(
            show(Action::Protect(Bundle::new(&[ANY, EXACT]).unwrap())),
            "192.0.2.1/32 -> 0.0.0.0/0 priority 5: \
             protect esp transport, then ah tunnel 192.0.2.1 -> 192.0.2.2 reqid 7"
        );
        let half = Template { src: None, reqid: 0, ..EXACT };
        assert_eq!(half.to_string(), "ah tunnel any -> 192.0.2.2");
    }
}
