//! Exception handling: an exception is reported on the console and the machine resets. No exception is
//! handled otherwise. The only enabled interrupt ends the idle state (idle.rs).

use crate::console::println;
use crate::{cpu, idle};
use core::arch::{asm, global_asm};
use core::mem::size_of;
use core::ptr::{addr_of, addr_of_mut};

/// Number of exceptions of the architecture.
const VECTORS: usize = 32;
/// Number of gates, including the timer interrupt and the spurious interrupt.
const GATES: usize = 48;
/// Size of the exception stack. Exceptions need a stack of their own: the current stack may be the cause
/// of the exception, and the red zone below its pointer is in use.
const STACK: usize = 16 * 1024;

#[repr(C, align(16))]
struct Stack([u8; STACK]);

static mut EXCEPTION_STACK: Stack = Stack([0; STACK]);

/// An entry of the interrupt descriptor table.
#[repr(C)]
#[derive(Clone, Copy)]
struct Gate {
    offset_low: u16,
    segment: u16,
    stack: u8,
    kind: u8,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

/// The task state segment. Only the first interrupt stack is used.
#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    privilege_stacks: [u64; 3],
    reserved_too: u64,
    extra_stacks: [u64; 7],
    reserved_as_well: [u16; 5],
    io_map: u16,
}

/// The GDT: null, code and data descriptors as in entry.rs, and the TSS descriptor in two words.
type Segments = [u64; 5];

const CODE: u16 = 8;
const TASK: u16 = 24;

static mut TABLE: [Gate; GATES] = [Gate::ABSENT; GATES];
static mut TASK_STATE: TaskState = TaskState {
    reserved: 0,
    privilege_stacks: [0; 3],
    reserved_too: 0,
    extra_stacks: [0; 7],
    reserved_as_well: [0; 5],
    io_map: size_of::<TaskState>() as u16,
};
static mut SEGMENTS: Segments = [0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF, 0, 0];

/// Operand of `lgdt` and `lidt`.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

impl Gate {
    const ABSENT: Self =
        Self { offset_low: 0, segment: 0, stack: 0, kind: 0, offset_middle: 0, offset_high: 0, reserved: 0 };

    /// Creates an interrupt gate to this address that uses the first interrupt stack.
    const fn to(address: u64) -> Self {
        Self {
            offset_low: address as u16,
            segment: CODE,
            stack: 1,
            kind: 0x8E,
            offset_middle: (address >> 16) as u16,
            offset_high: (address >> 32) as u32,
            reserved: 0,
        }
    }
}

global_asm!(
    // One entry per exception, 16 bytes apart. The processor pushes an error code for some exceptions;
    // the entries of the others push 0.
    ".pushsection .text.exceptions, \"ax\"",
    ".balign 16",
    ".global exception_entries",
    "exception_entries:",
    ".set vector, 0",
    ".rept 32",
    ".balign 16",
    ".if (0x60227d00 >> vector) & 1 == 0",
    "push 0",
    ".endif",
    "push vector",
    "jmp exception_common",
    ".set vector, vector + 1",
    ".endr",
    "exception_common:",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {report}",
    "ud2",
    // Timer interrupt: count it and acknowledge it.
    ".global timer_entry",
    "timer_entry:",
    "push rax",
    "inc dword ptr [rip + {woken}]",
    "mov eax, {end_of_interrupt}",
    "mov dword ptr [rax], 0",
    "pop rax",
    ".global spurious_entry",
    "spurious_entry:",
    "iretq",
    ".popsection",
    report = sym report,
    woken = sym idle::WOKEN,
    end_of_interrupt = const idle::END_OF_INTERRUPT,
);

unsafe extern "C" {
    static exception_entries: u8;
    static timer_entry: u8;
    static spurious_entry: u8;
}

/// Stack contents when an exception is reported.
#[repr(C)]
struct Frame {
    vector: u64,
    error: u64,
    instruction: u64,
    code_segment: u64,
    flags: u64,
    stack: u64,
}

/// Installs the tables. From now on exceptions are reported.
pub(crate) fn catch() {
    let task = addr_of!(TASK_STATE) as u64;
    let size = size_of::<TaskState>() as u64 - 1;
    // Intel SDM volume 3, figure 8-4: limit, base in four parts, type "available 64-bit TSS", present.
    let low = (size & 0xFFFF) | ((task & 0xFF_FFFF) << 16) | (0x89 << 40) | (((task >> 24) & 0xFF) << 56);
    // SAFETY: this function is called once, on the only processor and with interrupts disabled, before
    // anything else uses the tables. The tables are static, and the segments of entry.rs do not change.
    unsafe {
        TASK_STATE.extra_stacks[0] = addr_of!(EXCEPTION_STACK) as u64 + STACK as u64;
        SEGMENTS[3] = low;
        SEGMENTS[4] = task >> 32;
        let gates = addr_of_mut!(TABLE).cast::<Gate>();
        let entries = addr_of!(exception_entries) as u64;
        for (vector, address) in (0..VECTORS).zip((entries..).step_by(16)) {
            gates.add(vector).write(Gate::to(address));
        }
        gates.add(idle::TIMER_VECTOR.into()).write(Gate::to(addr_of!(timer_entry) as u64));
        gates.add(idle::SPURIOUS_VECTOR.into()).write(Gate::to(addr_of!(spurious_entry) as u64));
        let segments = Pointer { limit: size_of::<Segments>() as u16 - 1, base: addr_of!(SEGMENTS) as u64 };
        let gates = Pointer { limit: (size_of::<Gate>() * GATES) as u16 - 1, base: gates as u64 };
        asm!(
            "lgdt [{segments}]", "lidt [{gates}]", "ltr {task:x}",
            segments = in(reg) &segments, gates = in(reg) &gates, task = in(reg) TASK, options(nostack),
        );
    }
}

const NAMES: [&str; 20] = [
    "divide error",
    "debug",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bounds",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor segment overrun",
    "invalid TSS",
    "segment not present",
    "stack-segment fault",
    "general protection",
    "page fault",
    "reserved",
    "x87 floating point",
    "alignment check",
    "machine check",
    "SIMD floating point",
];

/// Reports an exception and resets the machine.
extern "C" fn report(frame: &Frame) -> ! {
    let address: u64;
    // SAFETY: CR2 is readable in ring 0.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) }
    let name = usize::try_from(frame.vector).ok().and_then(|vector| NAMES.get(vector)).unwrap_or(&"unknown");
    println!(
        "exception {} ({name}), error code {:#x}: instruction {:#x}, stack {:#x}, flags {:#x}, \
         segment {:#x}, CR2 {address:#x}",
        frame.vector, frame.error, frame.instruction, frame.stack, frame.flags, frame.code_segment
    );
    cpu::reset()
}
