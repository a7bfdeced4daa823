//! The entry point for PVH, the boot protocol that QEMU, Cloud Hypervisor, Firecracker and Xen use for
//! ELF images: 32-bit protected mode without paging, and the address of the [`StartInfo`] in EBX.
//!
//! The code maps the first 4 GiB one to one with pages of 2 MiB, switches to 64-bit mode with SSE
//! enabled, and calls `main`.

use super::StartInfo;
use super::paging::{LARGE, SMALL, Table};
use core::arch::global_asm;
use core::mem::offset_of;

/// Size of the stack in bytes. The deepest calls are IKE key exchanges on elliptic curves.
const STACK: usize = 512 * 1024;

const PAGE: usize = 4096;

/// Boot page tables and stack, in .bss, which the loader fills with zeros.
#[repr(C, align(4096))]
pub(super) struct Boot {
    level4: Table,
    level3: Table,
    pub(super) level2: [Table; LARGE],
    pub(super) level1: [Table; SMALL],
    /// Guard page below the stack; paging.rs unmaps it.
    pub(super) guard: [u8; PAGE],
    stack: [u8; STACK],
}

pub(super) static mut BOOT: Boot = Boot {
    level4: [0; 512],
    level3: [0; 512],
    level2: [[0; 512]; LARGE],
    level1: [[0; 512]; SMALL],
    guard: [0; PAGE],
    stack: [0; STACK],
};

global_asm!(
    // The ELF note with the entry address: name "Xen", type 18 (XEN_ELFNOTE_PHYS32_ENTRY).
    ".pushsection .note.pvh, \"a\", @note",
    ".balign 4",
    ".long 4, 8, 18",
    ".asciz \"Xen\"",
    ".quad pvh_entry",
    ".popsection",
    // GDT: null descriptor, 64-bit code, data.
    ".pushsection .rodata.gdt, \"a\"",
    ".balign 8",
    "gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff",
    "gdt_pointer: .short 23",
    ".quad gdt",
    ".popsection",
    ".pushsection .text.boot, \"ax\"",
    ".code32",
    ".global pvh_entry",
    "pvh_entry:",
    "cli",
    "cld",
    // The level 4 table points to the level 3 table, which points to four page directories: present,
    // writable.
    "mov eax, offset {boot} + {level3} + 3",
    "mov dword ptr [{boot} + {level4}], eax",
    "mov eax, offset {boot} + {level2} + 3",
    "mov edi, offset {boot} + {level3}",
    "mov ecx, {directories}",
    "2: mov dword ptr [edi], eax",
    "add eax, 4096",
    "add edi, 8",
    "dec ecx",
    "jnz 2b",
    // Each entry of the directories is a 2 MiB page: present, writable, large.
    "mov eax, 0x83",
    "mov edi, offset {boot} + {level2}",
    "mov ecx, {directories} * 512",
    "3: mov dword ptr [edi], eax",
    "add eax, 0x200000",
    "add edi, 8",
    "dec ecx",
    "jnz 3b",
    // CR4: physical address extension, SSE, SSE exceptions.
    "mov eax, (1 << 5) | (1 << 9) | (1 << 10)",
    "mov cr4, eax",
    "mov eax, offset {boot} + {level4}",
    "mov cr3, eax",
    // EFER: enable 64-bit mode.
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, 1 << 8",
    "wrmsr",
    // CR0: paging, write protection, native FPU errors, monitor coprocessor, protected mode.
    "mov eax, (1 << 31) | (1 << 16) | (1 << 5) | (1 << 1) | 1",
    "mov cr0, eax",
    "lgdt [gdt_pointer]",
    // Far return to the code segment: assemblers disagree about the syntax of a far jump.
    "mov esp, offset {boot} + {stack_end}",
    "push 8",
    "mov eax, offset long_mode",
    "push eax",
    "retf",
    ".code64",
    "long_mode: mov eax, 16",
    "mov ds, eax",
    "mov es, eax",
    "mov ss, eax",
    "xor eax, eax",
    "mov fs, eax",
    "mov gs, eax",
    "mov rsp, offset {boot} + {stack_end}",
    "mov edi, ebx",
    "call {main}",
    "ud2",
    ".popsection",
    boot = sym BOOT,
    level4 = const offset_of!(Boot, level4),
    level3 = const offset_of!(Boot, level3),
    level2 = const offset_of!(Boot, level2),
    directories = const LARGE,
    stack_end = const offset_of!(Boot, stack) + STACK,
    main = sym enter,
);

/// First Rust function.
extern "C" fn enter(info: &StartInfo) -> ! {
    crate::main(info)
}
