//! Memory protection: code is executable, constants are read-only, everything else is readable and writable.
//!
//! boot/entry.rs has mapped the first 4 GiB one to one with all permissions. This module maps the pages
//! of the image as small pages (Intel SDM volume 3, sections 4.5 and 4.6).

use super::entry::BOOT;
use crate::BootError;
use crate::memory::{MemoryLayout, layout};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ptr::{addr_of, addr_of_mut};

/// Entries per page table.
const ENTRIES: usize = 512;
/// Number of tables with small pages, which is the maximum number of 2 MiB pages that the image may touch.
pub(super) const SMALL: usize = 4;
/// Number of tables with large pages: one per GiB.
pub(super) const LARGE: usize = 4;

pub(super) type Table = [u64; ENTRIES];

const PAGE: u64 = 4_096;
const LARGE_PAGE: u64 = 2 << 20;

/// Bits of a page table entry.
const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const IS_LARGE: u64 = 1 << 7;
const NOT_EXECUTABLE: u64 = 1 << 63;

/// `CPUID.80000001H:EDX`: the execute-disable bit is available.
const NX: u32 = 1 << 20;

/// Removes unneeded permissions: code and constants become read-only, and everything but code becomes
/// non-executable. Unmaps the guard page below the stack, so that a stack overflow is an exception and
/// does not overwrite other data.
pub(crate) fn protect() -> Result<(), BootError> {
    if __cpuid(0x8000_0001).edx & NX == 0 {
        return Err("the processor does not support non-executable pages");
    }
    let layout = layout();
    let around = layout.image().start & !(LARGE_PAGE - 1)..layout.image().end.next_multiple_of(LARGE_PAGE);
    if around.end - around.start > SMALL as u64 * LARGE_PAGE {
        return Err("the image is too large for its page tables");
    }
    // SAFETY: there is one processor, and no other code changes its tables, which have the written
    // lengths. The running code stays executable, and its stack stays readable and writable. EFER.NXE
    // (bit 11) may be set because the processor supports NX. A directory entry of a table with small
    // pages sets no restriction.
    unsafe {
        asm!(
            "rdmsr", "or eax, 1 << 11", "wrmsr",
            in("ecx") 0xC000_0080_u32, out("eax") _, out("edx") _, options(nostack),
        );
        let guard = addr_of!(BOOT.guard) as u64;
        let small = addr_of_mut!(BOOT.level1).cast::<u64>();
        let large = addr_of_mut!(BOOT.level2).cast::<u64>();
        for (at, page) in around.clone().step_by(PAGE as usize).enumerate() {
            small.add(at).write(if page == guard { 0 } else { entry(page, &layout) });
        }
        for (at, page) in (0..).step_by(LARGE_PAGE as usize).take(LARGE * ENTRIES).enumerate() {
            let entry = if around.contains(&page) {
                let table = small as u64 + (page - around.start) / LARGE_PAGE * PAGE;
                table | PRESENT | WRITABLE
            } else {
                page | PRESENT | WRITABLE | IS_LARGE | NOT_EXECUTABLE
            };
            large.add(at).write_volatile(entry);
        }
        asm!("mov {table}, cr3", "mov cr3, {table}", table = out(reg) _, options(nostack, preserves_flags));
    }
    Ok(())
}

/// Returns the entry for a small page.
fn entry(page: u64, layout: &MemoryLayout) -> u64 {
    if layout.code.contains(&page) {
        page | PRESENT
    } else if layout.constants.contains(&page) {
        page | PRESENT | NOT_EXECUTABLE
    } else {
        page | PRESENT | WRITABLE | NOT_EXECUTABLE
    }
}
