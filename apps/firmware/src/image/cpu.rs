//! Processor access: I/O ports, CPU features, and reset.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::fmt;

/// Writes a byte to a port.
///
/// # Safety
///
/// The device behind the port must not access memory because of the write.
pub(crate) unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the instruction accesses no memory; the caller guarantees that the device does not either.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte from a port.
///
/// # Safety
///
/// As with [`out8`].
pub(crate) unsafe fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as in `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Writes 32 bits to a port.
///
/// # Safety
///
/// As with [`out8`].
pub(crate) unsafe fn out32(port: u16, value: u32) {
    // SAFETY: as in `out8`.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads 32 bits from a port.
///
/// # Safety
///
/// As with [`out8`].
pub(crate) unsafe fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as in `out8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// `CPUID.1:ECX`.
const XSAVE: u32 = 1 << 26;
const AVX: u32 = 1 << 28;
const RDRAND: u32 = 1 << 30;
const HYPERVISOR: u32 = 1 << 31;

/// Returns whether the processor has RDRAND.
pub(crate) fn has_rdrand() -> bool {
    __cpuid(1).ecx & RDRAND != 0
}

/// Enables 256-bit vector registers if the processor has them; without this the ciphers do not detect
/// AVX. The 128-bit registers are enabled in boot/entry.rs.
///
/// On an emulated processor they stay disabled. QEMU emulates each such instruction, above all PCLMULQDQ
/// for 256-bit registers, with a function call: there GHASH in plain arithmetic takes half the time, and
/// so does ChaCha20.
pub(crate) fn enable_vectors() {
    let features = __cpuid(1).ecx;
    if features & XSAVE == 0 || is_emulated() {
        return;
    }
    // Intel SDM volume 1, section 13.3: x87 and SSE state, and AVX state if available.
    let states: u32 = if features & AVX == 0 { 0b011 } else { 0b111 };
    // SAFETY: the processor has XSAVE, so CR4.OSXSAVE (bit 18) may be set and XCR0 written. No code
    // switches states lazily, so nothing depends on their size.
    unsafe {
        asm!(
            "mov {cr4}, cr4", "or {cr4}, 1 << 18", "mov cr4, {cr4}", "xsetbv",
            cr4 = out(reg) _, in("ecx") 0, in("eax") states, in("edx") 0, options(nomem, nostack),
        );
    }
}

/// Returns whether the processor is emulated by QEMU (TCG), according to the hypervisor's CPUID leaf.
fn is_emulated() -> bool {
    let answer = __cpuid(0x4000_0000);
    __cpuid(1).ecx & HYPERVISOR != 0
        && [answer.ebx, answer.ecx, answer.edx]
            == [u32::from_le_bytes(*b"TCGT"), u32::from_le_bytes(*b"CGTC"), u32::from_le_bytes(*b"GTCG")]
}

/// The brand string of the processor.
pub(crate) struct Brand([u32; 12]);

impl Brand {
    pub(crate) fn read() -> Self {
        let mut words = [0; 12];
        if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
            for (leaf, part) in (0x8000_0002..).zip(words.chunks_exact_mut(4)) {
                let answer = __cpuid(leaf);
                part.copy_from_slice(&[answer.eax, answer.ebx, answer.ecx, answer.edx]);
            }
        }
        Self(words)
    }
}

impl fmt::Display for Brand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0);
        bytes
            .filter(|byte| matches!(byte, b' '..=b'~'))
            .try_for_each(|byte| write!(f, "{}", char::from(byte)))
    }
}

/// Resets the machine. All machines support this way to stop; `qemu -no-reboot` exits.
pub(crate) fn reset() -> ! {
    let nothing = [0u8; 10];
    // SAFETY: with an empty interrupt table the invalid opcode becomes a triple fault, which resets the
    // machine. No code runs afterwards.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &nothing, options(noreturn, nostack)) }
}
