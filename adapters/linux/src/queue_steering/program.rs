//! The program of a classifier.
//!
//! It sees what a [`HeaderSummary`](casemate_wire::flow::HeaderSummary) sees, with two exceptions: it skips
//! at most four IPv6 extension headers, and it does not compare lengths with each other. Other packets are
//! classified by their DSCP, or as "standard".

use super::assembler::{Assembler, Instruction, Label, Op, Operand, Reg, When, Width};
use Operand::{Number, Register};
use casemate_sa::{AddrRange, PortRange};
use casemate_sched::{Class, Classifier, DscpTable, PerClass, Rule};
use casemate_wire::dscp::Dscp;
use casemate_wire::ip::proto;
use std::net::IpAddr;

/// Class of packets that cannot be parsed, and of packets without another class.
const OTHERS: Class = Class::Standard;
/// IPv6 extension headers that are skipped, at most.
const EXTENSION_HEADERS: usize = 4;

// Registers that calls preserve.
const PACKET: Reg = Reg::R6;
const PROTOCOL: Reg = Reg::R7;
/// The ports as one number, the source port in the upper half. While extension headers are skipped: offset of
/// the next header.
const PORTS: Reg = Reg::R8;
const DSCP: Reg = Reg::R9;

/// Value of [`PROTOCOL`] and [`PORTS`] if they are hidden (OPAQUE, RFC 4301 section 4.4.1.1).
const HIDDEN: Operand = Number(-1);

/// Positions on the stack, in bytes before its end: the IP header, and behind it the bytes that were read
/// last.
const HEADER: i16 = 48;
const FURTHER: i16 = 8;

/// `bpf_skb_load_bytes` (linux/bpf.h).
const LOAD_BYTES: i32 = 26;

/// Mask of the offset in the fragment field of IPv4.
const LATER_FRAGMENT_V4: i32 = 0x1fff;
/// Mask of the offset in an IPv6 fragment header.
const LATER_FRAGMENT_V6: i32 = 0xfff8;

/// The program; `None` if it would be too long.
pub(super) fn of(classifier: &Classifier) -> Option<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let classes = PerClass::from_fn(|_| asm.label());
    let mut program = Program { classes, by_dscp: asm.label(), asm };
    program.whole(classifier);
    program.asm.finish()
}

struct Program {
    asm: Assembler,
    /// For each class, the instructions that return it.
    classes: PerClass<Label>,
    /// The instructions for packets that match no rule.
    by_dscp: Label,
}

impl Program {
    fn whole(&mut self, classifier: &Classifier) {
        let (v6, others) = (self.asm.label(), *self.classes.get(OTHERS));
        self.asm.op(Op::Set, PACKET, Register(Reg::R1));
        self.asm.op(Op::Set, PORTS, Number(0));
        self.read(HEADER, 20, others);
        self.asm.load(Width::Byte, Reg::R1, HEADER);
        self.asm.op(Op::ShiftRight, Reg::R1, Number(4));
        self.asm.jump_if(Reg::R1, When::Equal, Number(6), v6);
        self.asm.jump_if(Reg::R1, When::NotEqual, Number(4), others);
        self.v4_header();
        self.rules(classifier.rules(), true);
        self.asm.here(v6);
        self.read(HEADER, 40, others);
        self.v6_header();
        self.rules(classifier.rules(), false);
        self.table(classifier.table());
        self.return_classes();
    }

    /// Loads `len` bytes from offset [`PORTS`] of the packet to `at` on the stack.
    fn read(&mut self, at: i16, len: i32, failed: Label) {
        self.asm.op(Op::Set, Reg::R1, Register(PACKET));
        self.asm.op(Op::Set, Reg::R2, Register(PORTS));
        self.asm.op(Op::Set, Reg::R3, Register(Reg::R10));
        self.asm.op(Op::Add, Reg::R3, Number(at.saturating_neg().into()));
        self.asm.op(Op::Set, Reg::R4, Number(len));
        self.asm.call(LOAD_BYTES);
        self.asm.jump_if(Reg::R0, When::NotEqual, Number(0), failed);
    }

    fn v4_header(&mut self) {
        let done = self.asm.label();
        self.asm.load(Width::Byte, DSCP, HEADER - 1);
        self.asm.op(Op::ShiftRight, DSCP, Number(2));
        self.asm.load(Width::Byte, PROTOCOL, HEADER - 9);
        self.asm.load(Width::Half, Reg::R1, HEADER - 6);
        self.asm.op(Op::Set, PORTS, HIDDEN);
        self.asm.jump_if(Reg::R1, When::AnyBit, Number(LATER_FRAGMENT_V4), done);
        self.asm.load(Width::Byte, PORTS, HEADER);
        self.asm.op(Op::And, PORTS, Number(0x0f));
        self.asm.op(Op::ShiftLeft, PORTS, Number(2));
        self.ports(done);
        self.asm.here(done);
    }

    fn v6_header(&mut self) {
        let (upper, later, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.load(Width::Half, DSCP, HEADER);
        self.asm.op(Op::ShiftRight, DSCP, Number(6));
        self.asm.op(Op::And, DSCP, Number(0x3f));
        self.asm.load(Width::Byte, PROTOCOL, HEADER - 6);
        self.asm.op(Op::Set, PORTS, Number(40));
        for _ in 0..EXTENSION_HEADERS {
            self.extension_header(upper, later);
        }
        self.asm.jump(upper);
        // The protocol of a later fragment may be another extension header, which the fragment does not
        // contain.
        self.asm.here(later);
        for kind in [proto::HOP_BY_HOP, proto::ROUTING, proto::FRAGMENT, proto::DEST_OPTS] {
            let is_other = self.asm.label();
            self.asm.jump_if(PROTOCOL, When::NotEqual, Number(kind.into()), is_other);
            self.asm.op(Op::Set, PROTOCOL, HIDDEN);
            self.asm.here(is_other);
        }
        self.asm.op(Op::Set, PORTS, HIDDEN);
        self.asm.jump(done);
        self.asm.here(upper);
        self.ports(done);
        self.asm.here(done);
    }

    /// Skips an extension header, if there is one. Jumps to `upper` if there is none, and to `later` behind
    /// the header of a fragment other than the first.
    fn extension_header(&mut self, upper: Label, later: Label) {
        let (options, fragment, next) = (self.asm.label(), self.asm.label(), self.asm.label());
        for kind in [proto::HOP_BY_HOP, proto::ROUTING, proto::DEST_OPTS] {
            self.asm.jump_if(PROTOCOL, When::Equal, Number(kind.into()), options);
        }
        self.asm.jump_if(PROTOCOL, When::Equal, Number(proto::FRAGMENT.into()), fragment);
        self.asm.jump(upper);
        self.asm.here(options);
        self.read(FURTHER, 2, *self.classes.get(OTHERS));
        self.asm.load(Width::Byte, PROTOCOL, FURTHER);
        // In units of 8 bytes, not counting the first.
        self.asm.load(Width::Byte, Reg::R1, FURTHER - 1);
        self.asm.op(Op::Add, Reg::R1, Number(1));
        self.asm.op(Op::ShiftLeft, Reg::R1, Number(3));
        self.asm.op(Op::Add, PORTS, Register(Reg::R1));
        self.asm.jump(next);
        self.asm.here(fragment);
        self.read(FURTHER, 8, *self.classes.get(OTHERS));
        self.asm.load(Width::Byte, PROTOCOL, FURTHER);
        self.asm.op(Op::Add, PORTS, Number(8));
        self.asm.load(Width::Half, Reg::R1, FURTHER - 2);
        self.asm.jump_if(Reg::R1, When::AnyBit, Number(LATER_FRAGMENT_V6), later);
        self.asm.here(next);
    }

    /// Sets [`PORTS`] from the transport header at offset [`PORTS`], as
    /// [`FlowKey::ports`](casemate_wire::flow::FlowKey::ports) does. Continues at `done`, or with the next
    /// instruction.
    fn ports(&mut self, done: Label) {
        let [both, kind_and_code, kind_of_mobility, short] = std::array::from_fn(|_| self.asm.label());
        for protocol in [proto::TCP, proto::UDP, proto::UDP_LITE, proto::SCTP, proto::DCCP] {
            self.asm.jump_if(PROTOCOL, When::Equal, Number(protocol.into()), both);
        }
        for protocol in [proto::ICMP, proto::ICMPV6] {
            self.asm.jump_if(PROTOCOL, When::Equal, Number(protocol.into()), kind_and_code);
        }
        self.asm.jump_if(PROTOCOL, When::Equal, Number(proto::MOBILITY.into()), kind_of_mobility);
        self.asm.op(Op::Set, PORTS, Number(0));
        self.asm.jump(done);
        self.asm.here(both);
        self.read(FURTHER, 4, short);
        self.asm.load(Width::Word, PORTS, FURTHER);
        self.asm.jump(done);
        self.asm.here(kind_and_code);
        self.read(FURTHER, 2, short);
        self.asm.load(Width::Byte, PORTS, FURTHER);
        self.asm.op(Op::ShiftLeft, PORTS, Number(16));
        self.asm.load(Width::Byte, Reg::R1, FURTHER - 1);
        self.asm.op(Op::Or, PORTS, Register(Reg::R1));
        self.asm.jump(done);
        self.asm.here(kind_of_mobility);
        self.read(FURTHER, 3, short);
        self.asm.load(Width::Byte, PORTS, FURTHER - 2);
        self.asm.op(Op::ShiftLeft, PORTS, Number(16));
        self.asm.jump(done);
        self.asm.here(short);
        self.asm.op(Op::Set, PORTS, HIDDEN);
    }

    /// The rules for one IP version. The first rule that matches decides.
    fn rules(&mut self, rules: &[Rule], v4: bool) {
        for rule in rules.iter().filter(|rule| is_of(rule, v4)) {
            if !self.rule(rule) {
                return;
            }
        }
        self.asm.jump(self.by_dscp);
    }

    /// Assembles a rule. Returns whether there are packets that it does not match.
    fn rule(&mut self, rule: &Rule) -> bool {
        let (selector, next) = (&rule.selector, self.asm.label());
        if let Some(protocol) = selector.proto {
            self.asm.jump_if(PROTOCOL, When::NotEqual, Number(protocol.into()), next);
        }
        let (src, dst) =
            if selector.src.is_ipv4() { (HEADER - 12, HEADER - 16) } else { (HEADER - 8, HEADER - 24) };
        self.address(src, &selector.src, next);
        self.address(dst, &selector.dst, next);
        if selector.needs_ports() {
            self.asm.jump_if(PORTS, When::Equal, HIDDEN, next);
            self.port(Op::ShiftRight, 16, selector.src_port, next);
            self.port(Op::And, 0xffff, selector.dst_port, next);
        }
        self.asm.jump(*self.classes.get(rule.class));
        self.asm.here(next);
        self.asm.is_wanted(next)
    }

    /// Jumps to `next` unless the address at `at` is in the range.
    fn address(&mut self, at: i16, range: &AddrRange, next: Label) {
        match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                self.asm.load(Width::Word, Reg::R1, at);
                self.outside_goes(first.to_bits().into(), last.to_bits().into(), next);
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                if !first.is_unspecified() {
                    self.beyond_goes(at, When::Below, first.to_bits(), next);
                }
                if last.to_bits() != u128::MAX {
                    self.beyond_goes(at, When::Above, last.to_bits(), next);
                }
            }
            // Both ends of a range have the same IP version.
            _ => {}
        }
    }

    /// Jumps to `next` if the 32-bit number in R1 is outside of these bounds.
    fn outside_goes(&mut self, first: u64, last: u64, next: Label) {
        if first > 0 {
            self.asm.set_wide(Reg::R2, first);
            self.asm.jump_if(Reg::R1, When::Below, Register(Reg::R2), next);
        }
        if last < u32::MAX.into() {
            self.asm.set_wide(Reg::R2, last);
            self.asm.jump_if(Reg::R1, When::Above, Register(Reg::R2), next);
        }
    }

    /// Jumps to `next` if the 128-bit address at `at` is below or above the bound.
    fn beyond_goes(&mut self, at: i16, when: When, bound: u128, next: Label) {
        let inside = self.asm.label();
        self.asm.load(Width::Double, Reg::R1, at);
        self.asm.set_wide(Reg::R2, (bound >> 64) as u64);
        self.asm.jump_if(Reg::R1, when, Register(Reg::R2), next);
        self.asm.jump_if(Reg::R1, When::NotEqual, Register(Reg::R2), inside);
        self.asm.load(Width::Double, Reg::R1, at - 8);
        self.asm.set_wide(Reg::R2, bound as u64);
        self.asm.jump_if(Reg::R1, when, Register(Reg::R2), next);
        self.asm.here(inside);
    }

    /// Jumps to `next` unless the part of [`PORTS`] that `op` with `operand` selects is in the range.
    fn port(&mut self, op: Op, operand: i32, range: PortRange, next: Label) {
        if range.is_any() {
            return;
        }
        self.asm.op(Op::Set, Reg::R1, Register(PORTS));
        self.asm.op(op, Reg::R1, Number(operand));
        self.asm.jump_if(Reg::R1, When::Below, Number(range.first().into()), next);
        self.asm.jump_if(Reg::R1, When::Above, Number(range.last().into()), next);
    }

    /// Classifies by DSCP: each class has a mask with a bit for each DSCP. A DSCP without a class continues
    /// behind.
    fn table(&mut self, table: &DscpTable) {
        if !self.asm.is_wanted(self.by_dscp) {
            return;
        }
        self.asm.here(self.by_dscp);
        self.asm.op(Op::Set, Reg::R1, Number(1));
        self.asm.op(Op::ShiftLeft, Reg::R1, Register(DSCP));
        for class in Class::ALL.into_iter().filter(|class| *class != OTHERS) {
            let points = (0..=u8::MAX).map_while(Dscp::new).filter(|dscp| table.class_of(*dscp) == class);
            let mask = points.fold(0, |mask, dscp| mask | 1u64 << dscp.value());
            if mask != 0 {
                self.asm.set_wide(Reg::R2, mask);
                self.asm.jump_if(Reg::R1, When::AnyBit, Register(Reg::R2), *self.classes.get(class));
            }
        }
    }

    /// The instructions that return each class. The first class is also reached without a jump.
    fn return_classes(&mut self) {
        let but_the_first = Class::ALL.into_iter().filter(|class| *class != OTHERS);
        for class in std::iter::once(OTHERS).chain(but_the_first) {
            let label = *self.classes.get(class);
            if self.asm.is_wanted(label) {
                self.asm.here(label);
                self.asm.op(Op::Set, Reg::R0, Number(class.index() as i32));
                self.asm.exit();
            }
        }
    }
}

/// Whether a rule is for packets of this IP version.
fn is_of(rule: &Rule, v4: bool) -> bool {
    [rule.selector.src, rule.selector.dst].iter().all(|range| range.is_ipv4() == v4)
}
