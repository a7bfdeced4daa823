//! What may be done with memory: code is executed, constants are read, everything else is read and written.
//!
//! boot/entry.rs has mapped the first 4 GiB to themselves, all of it for everything. Here the pages around the image become
//! small ones (Intel's manual, volume 3, sections 4.5 and 4.6).

use super::entry::BOOT;
use crate::Trouble;
use crate::memory::{Parts, parts};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ptr::{addr_of, addr_of_mut};

/// Entries of a table.
const ENTRIES: usize = 512;
/// Tables of small pages: as many large ones may the image touch.
pub(super) const SMALL: usize = 4;
/// Tables of large pages: one for each GiB.
pub(super) const LARGE: usize = 4;

pub(super) type Table = [u64; ENTRIES];

const PAGE: u64 = 4_096;
const LARGE_PAGE: u64 = 2 << 20;

/// Bits of an entry.
const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const IS_LARGE: u64 = 1 << 7;
const NOT_EXECUTABLE: u64 = 1 << 63;

/// `CPUID.80000001H:EDX`: entries may forbid execution.
const NX: u32 = 1 << 20;

/// Takes away what no part of memory needs: writing to code and constants, executing anything else, and the page below the
/// stack, so that a stack that is full is an exception and not other data destroyed.
pub(crate) fn protect() -> Result<(), Trouble> {
    if __cpuid(0x8000_0001).edx & NX == 0 {
        return Err("the processor cannot forbid the execution of data");
    }
    let parts = parts();
    let around = parts.image().start & !(LARGE_PAGE - 1)..parts.image().end.next_multiple_of(LARGE_PAGE);
    if around.end - around.start > SMALL as u64 * LARGE_PAGE {
        return Err("the image is larger than its page tables");
    }
    // SAFETY: there is one processor, and nobody else changes its tables, which are of the lengths that are written. What
    // is running is code, on a stack that stays readable and writable; EFER.NXE (bit 11) may be set since the
    // processor has NX. An entry of a table of small pages forbids nothing by itself.
    unsafe {
        asm!(
            "rdmsr", "or eax, 1 << 11", "wrmsr",
            in("ecx") 0xC000_0080_u32, out("eax") _, out("edx") _, options(nostack),
        );
        let guard = addr_of!(BOOT.guard) as u64;
        let small = addr_of_mut!(BOOT.level1).cast::<u64>();
        let large = addr_of_mut!(BOOT.level2).cast::<u64>();
        for (at, page) in around.clone().step_by(PAGE as usize).enumerate() {
            small.add(at).write(if page == guard { 0 } else { entry(page, &parts) });
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

/// The entry of a small page.
fn entry(page: u64, parts: &Parts) -> u64 {
    if parts.code.contains(&page) {
        page | PRESENT
    } else if parts.constants.contains(&page) {
        page | PRESENT | NOT_EXECUTABLE
    } else {
        page | PRESENT | WRITABLE | NOT_EXECUTABLE
    }
}
