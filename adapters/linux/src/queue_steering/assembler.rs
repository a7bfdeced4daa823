//! Assembler for eBPF (RFC 9669), with labels.
//!
//! It makes only forward jumps, so that every program ends.

use casemate_wire::invariant::OrBroken;

const LABEL_EXISTS: &str = "the label belongs to this program";

/// An instruction in the format of the kernel (RFC 9669 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, dst: Reg, src: Reg, immediate: i32) -> Self {
        let (dst, src) = (dst as u8, src as u8);
        let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        Self { code, registers, offset: 0, immediate }
    }
}

/// A register. A call changes the first six: R0 has the result, R1 to R5 have the arguments. R10 points to
/// the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code, reason = "the number of registers is fixed")]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The second operand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand {
    /// Sign-extended to 64 bits.
    Number(i32),
    Register(Reg),
}

/// Operations on 64-bit registers (section 4.1).
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Op {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Set = 0xb0,
}

/// Conditions of jumps (section 4.3). Numbers are unsigned.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum When {
    Equal = 0x10,
    Above = 0x20,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Below = 0xa0,
}

/// Width of a load from the stack, in network byte order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
    Double,
}

const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
const LOAD: u8 = 0x61;
const TO_BIG_ENDIAN: u8 = 0xdc;
const WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A jump target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label(usize);

#[derive(Debug, Default)]
struct JumpTarget {
    at: Option<usize>,
    /// Jumps to this target.
    jumps: Vec<usize>,
}

/// A program that is being assembled.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    targets: Vec<JumpTarget>,
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        let label = Label(self.targets.len());
        self.targets.push(JumpTarget::default());
        label
    }

    /// Whether a jump leads to the label. The kernel rejects unreachable instructions.
    pub(super) fn is_wanted(&self, label: Label) -> bool {
        self.targets.get(label.0).is_some_and(|target| !target.jumps.is_empty())
    }

    /// Places the label at the next instruction.
    pub(super) fn here(&mut self, label: Label) {
        let at = self.code.len();
        if let Some(target) = self.targets.get_mut(label.0).or_report(LABEL_EXISTS) {
            target.at = Some(at);
        }
    }

    pub(super) fn op(&mut self, op: Op, dst: Reg, operand: Operand) {
        self.push(ALU64 | op as u8, dst, operand);
    }

    /// Sets a register to a number of 64 bits.
    pub(super) fn set_wide(&mut self, dst: Reg, number: u64) {
        self.code.push(Instruction::new(WIDE, dst, Reg::R0, number as i32));
        self.code.push(Instruction::new(0, Reg::R0, Reg::R0, (number >> 32) as i32));
    }

    /// Loads a number from `at` bytes before the end of the stack.
    pub(super) fn load(&mut self, width: Width, dst: Reg, at: i16) {
        let (size, bits) = match width {
            Width::Byte => (0x10, 8),
            Width::Half => (0x08, 16),
            Width::Word => (0x00, 32),
            Width::Double => (0x18, 64),
        };
        let load = Instruction::new(LOAD | size, dst, Reg::R10, 0);
        self.code.push(Instruction { offset: at.saturating_neg(), ..load });
        if bits > 8 {
            self.code.push(Instruction::new(TO_BIG_ENDIAN, dst, Reg::R0, bits));
        }
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.code.push(Instruction::new(CALL, Reg::R0, Reg::R0, helper));
    }

    pub(super) fn exit(&mut self) {
        self.code.push(Instruction::new(EXIT, Reg::R0, Reg::R0, 0));
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.leads_to(to);
        self.code.push(Instruction::new(JUMP, Reg::R0, Reg::R0, 0));
    }

    pub(super) fn jump_if(&mut self, left: Reg, when: When, right: Operand, to: Label) {
        self.leads_to(to);
        self.push(JUMP | when as u8, left, right);
    }

    fn push(&mut self, code: u8, dst: Reg, operand: Operand) {
        self.code.push(match operand {
            Operand::Number(number) => Instruction::new(code, dst, Reg::R0, number),
            Operand::Register(src) => Instruction::new(code | FROM_REGISTER, dst, src, 0),
        });
    }

    fn leads_to(&mut self, label: Label) {
        let at = self.code.len();
        if let Some(target) = self.targets.get_mut(label.0).or_report(LABEL_EXISTS) {
            target.jumps.push(at);
        }
    }

    /// The program; `None` if a jump is longer than its offset field allows.
    pub(super) fn finish(self) -> Option<Vec<Instruction>> {
        let Self { mut code, targets } = self;
        for JumpTarget { at, jumps } in targets {
            for jump in jumps {
                let distance = at.and_then(|at| at.checked_sub(jump)?.checked_sub(1));
                let distance = distance.or_report("a label is placed behind all jumps to it")?;
                let instruction = code.get_mut(jump).or_report("a jump is an instruction of the program")?;
                instruction.offset = i16::try_from(distance).ok()?;
            }
        }
        Some(code)
    }
}
