//! Certificate policies of a path (RFC 5280 section 6.1, with the policy graph of RFC 9618).
//!
//! RFC 5280 builds a tree that can grow exponentially with the length of the path (CVE-2023-0464). Here, each
//! level of the path has one node for each policy, and a node knows the policies of the root's domain from
//! which it derives. The work is bounded by the number of policies in each certificate.

mod oid;

pub use oid::PolicyOid;

use crate::CertFault;
use crate::certificate::Cert;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use casemate_crypto::der::{INTEGER, Malformed, OID, Reader, SEQUENCE};

/// anyPolicy (RFC 5280 section 4.2.1.4), as an OBJECT IDENTIFIER's content.
const ANY_POLICY: &[u8] = &[0x55, 0x1D, 0x20, 0];

/// Maximum number of policies, and of mappings, of one certificate.
const MAX_POLICIES: usize = 64;

/// A policy of the issuer's domain and an equivalent one of the subject's.
type Mapping<'a> = (&'a [u8], &'a [u8]);

/// Extensions about policies, of one certificate.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyExtensions<'a> {
    /// certificatePolicies; `None` without the extension.
    policies: Option<Vec<&'a [u8]>>,
    /// policyMappings: from the issuer's domain to the subject's.
    mappings: Vec<Mapping<'a>>,
    require_explicit: Option<usize>,
    inhibit_mapping: Option<usize>,
    inhibit_any: Option<usize>,
}

impl<'a> PolicyExtensions<'a> {
    /// Stores the extension with this number below id-ce; `false` if it is another one.
    pub(crate) fn take(&mut self, number: u8, value: &'a [u8]) -> Result<bool, Malformed> {
        match number {
            32 => self.policies = Some(policies(value)?),
            33 => self.mappings = mappings(value)?,
            36 => (self.require_explicit, self.inhibit_mapping) = constraints(value)?,
            54 => self.inhibit_any = Some(skip_certs(unsigned(Reader::only(INTEGER, value)?.rest())?)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the certificate itself has the policy, without regard to a path.
    pub(crate) fn contains(&self, policy: &PolicyOid) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.contains(&policy.as_bytes()))
    }
}

fn policies(value: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut list = Reader::only(SEQUENCE, value)?;
    let mut policies = Vec::new();
    loop {
        let mut information = list.read_nested(SEQUENCE)?;
        let policy = information.read(OID)?;
        information.read_optional(SEQUENCE)?;
        information.finish()?;
        // RFC 5280 section 4.2.1.4: no policy occurs twice.
        if policies.contains(&policy) || policies.len() >= MAX_POLICIES {
            return Err(Malformed);
        }
        policies.push(policy);
        if list.is_empty() {
            return Ok(policies);
        }
    }
}

fn mappings(value: &[u8]) -> Result<Vec<Mapping<'_>>, Malformed> {
    let mut list = Reader::only(SEQUENCE, value)?;
    let mut mappings = Vec::new();
    loop {
        let mut mapping = list.read_nested(SEQUENCE)?;
        let pair = (mapping.read(OID)?, mapping.read(OID)?);
        mapping.finish()?;
        if mappings.len() >= MAX_POLICIES {
            return Err(Malformed);
        }
        mappings.push(pair);
        if list.is_empty() {
            return Ok(mappings);
        }
    }
}

/// requireExplicitPolicy and inhibitPolicyMapping.
fn constraints(value: &[u8]) -> Result<(Option<usize>, Option<usize>), Malformed> {
    let mut reader = Reader::only(SEQUENCE, value)?;
    let require = reader.read_optional(0x80)?.map(unsigned).transpose()?;
    let inhibit = reader.read_optional(0x81)?.map(unsigned).transpose()?;
    reader.finish()?;
    // RFC 5280 section 4.2.1.11: the sequence is not empty.
    if require.is_none() && inhibit.is_none() {
        return Err(Malformed);
    }
    Ok((require.map(skip_certs), inhibit.map(skip_certs)))
}

/// Checks the content of an INTEGER that is not negative.
fn unsigned(content: &[u8]) -> Result<&[u8], Malformed> {
    match content {
        [first, ..] if *first < 0x80 => Ok(content),
        _ => Err(Malformed),
    }
}

/// SkipCerts. No path is longer than 255 certificates.
fn skip_certs(content: &[u8]) -> usize {
    match content {
        [.., last] if content.iter().rev().skip(1).all(|byte| *byte == 0) => usize::from(*last),
        _ => usize::from(u8::MAX),
    }
}

/// The policies of the root's domain from which a node derives.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origins<'a> {
    /// anyPolicy all the way.
    Any,
    These(BTreeSet<&'a [u8]>),
}

/// A policy that is valid at one level of the path.
struct Node<'a> {
    policy: &'a [u8],
    origins: Origins<'a>,
    /// The policies of the next certificate that match this one.
    expected: Vec<&'a [u8]>,
}

impl<'a> Node<'a> {
    fn new(policy: &'a [u8], origins: Origins<'a>) -> Self {
        Self { policy, origins, expected: Vec::from([policy]) }
    }
}

/// The state of RFC 5280 section 6.1.2.
struct Processing<'a> {
    nodes: Vec<Node<'a>>,
    explicit_policy: usize,
    inhibit_any: usize,
    policy_mapping: usize,
}

/// Checks the policies of a path: the peer's certificate first, the trusted root last. Of the latter, only
/// the constraints count. `required` are policies that all must be valid for the path; without any, policies
/// are demanded only where the CAs do.
pub(crate) fn check(path: &[&Cert<'_>], required: &[PolicyOid]) -> Result<(), CertFault> {
    let Some((root, below)) = path.split_last() else { return Err(CertFault::Empty) };
    let len = below.len();
    let unlimited = len.saturating_add(1);
    let explicit_policy = if required.is_empty() { unlimited } else { 0 };
    let nodes = Vec::from([Node::new(ANY_POLICY, Origins::Any)]);
    let (inhibit_any, policy_mapping) = (unlimited, unlimited);
    let mut state = Processing { nodes, explicit_policy, inhibit_any, policy_mapping };
    state.limit(root);
    for (at, cert) in below.iter().enumerate().rev() {
        let is_last = at == 0;
        state.enter(cert, is_last)?;
        if is_last { state.wrap_up(cert)? } else { state.prepare(cert)? }
    }
    let is_valid = |policy: &PolicyOid| {
        state.nodes.iter().any(|node| match &node.origins {
            Origins::Any => true,
            Origins::These(origins) => origins.contains(policy.as_bytes()),
        })
    };
    if required.iter().all(is_valid) { Ok(()) } else { Err(CertFault::Policy) }
}

impl<'a> Processing<'a> {
    /// Section 6.1.3 (d) to (f).
    fn enter(&mut self, cert: &Cert<'a>, is_last: bool) -> Result<(), CertFault> {
        let allows_any = self.inhibit_any > 0 || (!is_last && cert.is_self_issued());
        let listed = cert.extensions.policies.policies.as_deref().unwrap_or_default();
        let mut next: Vec<Node<'a>> = Vec::new();
        for policy in listed.iter().copied().filter(|policy| *policy != ANY_POLICY) {
            next.extend(self.child(policy));
        }
        if allows_any && listed.contains(&ANY_POLICY) {
            let expected: BTreeSet<&[u8]> =
                self.nodes.iter().flat_map(|node| node.expected.iter().copied()).collect();
            for policy in expected {
                if !next.iter().any(|node| node.policy == policy) {
                    next.extend(self.matching(policy).map(|origins| Node::new(policy, origins)));
                }
            }
        }
        self.nodes = next;
        self.demand_policy()
    }

    fn demand_policy(&self) -> Result<(), CertFault> {
        if self.explicit_policy > 0 || !self.nodes.is_empty() { Ok(()) } else { Err(CertFault::Policy) }
    }

    /// The node of a policy in the next certificate: below the nodes that expect it, or else below anyPolicy.
    fn child(&self, policy: &'a [u8]) -> Option<Node<'a>> {
        if let Some(origins) = self.matching(policy) {
            return Some(Node::new(policy, origins));
        }
        let is_any = |node: &&Node<'_>| node.policy == ANY_POLICY;
        let any = self.nodes.iter().find(is_any)?;
        Some(Node::new(policy, origins_below(any, policy)))
    }

    /// The origins of the nodes that expect a policy; `None` if no node does.
    fn matching(&self, policy: &'a [u8]) -> Option<Origins<'a>> {
        let parents = self.nodes.iter().filter(|node| node.expected.contains(&policy));
        parents.map(|node| origins_below(node, policy)).reduce(|one, other| match (one, other) {
            (Origins::These(mut one), Origins::These(other)) => {
                one.extend(other);
                Origins::These(one)
            }
            _ => Origins::Any,
        })
    }

    /// Section 6.1.4 (a), (b) and (h) to (j).
    fn prepare(&mut self, cert: &Cert<'a>) -> Result<(), CertFault> {
        let policies = &cert.extensions.policies;
        if policies.mappings.iter().any(|(from, to)| *from == ANY_POLICY || *to == ANY_POLICY) {
            return Err(CertFault::Policy);
        }
        self.map(&policies.mappings);
        if !cert.is_self_issued() {
            for counter in [&mut self.explicit_policy, &mut self.policy_mapping, &mut self.inhibit_any] {
                *counter = counter.saturating_sub(1);
            }
        }
        self.limit(cert);
        Ok(())
    }

    /// Section 6.1.4 (i) and (j). Also for the root, whose constraints apply like those of other CAs (RFC
    /// 5937 section 3).
    fn limit(&mut self, cert: &Cert<'_>) {
        let policies = &cert.extensions.policies;
        for (counter, most) in [
            (&mut self.explicit_policy, policies.require_explicit),
            (&mut self.policy_mapping, policies.inhibit_mapping),
            (&mut self.inhibit_any, policies.inhibit_any),
        ] {
            *counter = most.map_or(*counter, |most| most.min(*counter));
        }
    }

    fn map(&mut self, mappings: &[Mapping<'a>]) {
        let mapped: BTreeSet<&[u8]> = mappings.iter().map(|(from, _)| *from).collect();
        for from in mapped {
            if self.policy_mapping == 0 {
                self.nodes.retain(|node| node.policy != from);
                continue;
            }
            let targets = || mappings.iter().filter(|(one, _)| *one == from).map(|(_, to)| *to).collect();
            if let Some(node) = self.nodes.iter_mut().find(|node| node.policy == from) {
                node.expected = targets();
            } else if let Some(any) = self.nodes.iter().find(|node| node.policy == ANY_POLICY) {
                let origins = origins_below(any, from);
                self.nodes.push(Node { policy: from, origins, expected: targets() });
            }
        }
    }

    /// Section 6.1.5 (a), (b) and (g).
    fn wrap_up(&mut self, cert: &Cert<'a>) -> Result<(), CertFault> {
        self.explicit_policy = self.explicit_policy.saturating_sub(1);
        if cert.extensions.policies.require_explicit == Some(0) {
            self.explicit_policy = 0;
        }
        self.demand_policy()
    }
}

/// The origins of a child with this policy. Below anyPolicy, a policy begins in the root's domain.
fn origins_below<'a>(parent: &Node<'a>, policy: &'a [u8]) -> Origins<'a> {
    match &parent.origins {
        Origins::Any if policy != ANY_POLICY => Origins::These(BTreeSet::from([policy])),
        origins => origins.clone(),
    }
}
