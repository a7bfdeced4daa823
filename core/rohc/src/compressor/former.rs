//! Feedback that may be about another header than it seems: of a flow that had the CID before, or with an
//! MSN that the flow has used more than once.

/// MSNs of the headers of a flow. Once they do not grow, any number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MsnRange {
    first: u16,
    /// 1 for the first header only.
    len: u32,
}

impl MsnRange {
    /// One header.
    pub(super) const fn new(first: u16) -> Self {
        Self { first, len: 1 }
    }

    /// Adds a header that is this step behind the one before it; `None` if its MSN is smaller.
    pub(super) const fn extend(&mut self, step: Option<u32>) {
        let step = match step {
            None | Some(0) => u32::MAX,
            Some(step) => step,
        };
        self.len = self.len.saturating_add(step);
    }

    /// Whether no two of the headers have the same low bits of their MSNs.
    pub(super) const fn are_unique(&self, bits: u32) -> bool {
        self.len <= 1 << bits
    }

    /// Whether a number with these low bits is one of them.
    const fn has(&self, msn: u16, bits: u32) -> bool {
        let mask = (1u32 << bits).wrapping_sub(1);
        (msn.wrapping_sub(self.first) as u32 & mask) < self.len
    }
}

/// MSNs of all flows that had the CID before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormerMsns {
    /// There was no other flow.
    None,
    One(MsnRange),
    /// More than one flow.
    Any,
}

impl FormerMsns {
    /// Adds those of one more flow.
    pub(super) const fn with(self, msns: Option<MsnRange>) -> Self {
        match (self, msns) {
            (former, None) => former,
            (Self::None, Some(msns)) => Self::One(msns),
            _ => Self::Any,
        }
    }

    /// Whether feedback with these low bits of an MSN may be about a former flow.
    pub(super) const fn may_have(self, msn: u16, bits: u32) -> bool {
        match self {
            Self::None => false,
            Self::One(msns) => msns.has(msn, bits),
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feedback_of_former_flows_is_recognised() {
        let mut msns = MsnRange::new(65_530);
        msns.extend(Some(5));
        msns.extend(Some(4));
        let former = FormerMsns::None.with(Some(msns));
        let expected = |msn: u16| (65_530..=65_535).contains(&msn) || msn <= 3;
        for msn in 0..=u16::MAX {
            assert_eq!(former.may_have(msn, 16), expected(msn), "{msn}");
            let low = (0..4).any(|high| expected(msn & 0x3fff | high << 14));
            assert_eq!(former.may_have(msn & 0x3fff, 14), low, "{msn}");
            assert!(!FormerMsns::None.may_have(msn, 14));
            assert!(former.with(Some(MsnRange::new(9))).may_have(msn, 14));
        }
        assert_eq!(former.with(None), former);
        assert!(msns.are_unique(14) && !msns.are_unique(3));
        // The sender has started again.
        msns.extend(None);
        assert!(!msns.are_unique(14));
        assert!((0..1 << 14).all(|msn| FormerMsns::None.with(Some(msns)).may_have(msn, 14)));
    }
}
