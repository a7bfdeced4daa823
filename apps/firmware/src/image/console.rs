//! The serial console: COM1, a 16550, asked rather than interrupting.

use crate::cpu::{in8, out8};
use core::fmt::{self, Write};

const COM1: u16 = 0x3F8;
/// Registers, from the first port on.
const DATA: u16 = COM1;
const INTERRUPTS: u16 = COM1 + 1;
const FIFO: u16 = COM1 + 2;
const LINE: u16 = COM1 + 3;
const MODEM: u16 = COM1 + 4;
const STATUS: u16 = COM1 + 5;

const RECEIVED: u8 = 1 << 0;
const ROOM: u8 = 1 << 5;

/// How often a full transmitter is asked for room: longer than a byte takes at 115,200 bits a second. Then the byte is lost,
/// and the machine goes on without a console.
const PATIENCE: u32 = 100_000;

/// 115,200 bits a second, 8 data bits, no parity, no interrupts.
pub(crate) fn open() {
    for (register, value) in [
        (INTERRUPTS, 0),
        (LINE, 0x80), // The next two are the divisor.
        (DATA, 1),
        (INTERRUPTS, 0),
        (LINE, 0x03),
        (FIFO, 0xC7),
        (MODEM, 0x03),
    ] {
        // SAFETY: a serial port does nothing to memory.
        unsafe { out8(register, value) }
    }
}

/// A byte that somebody typed.
pub(crate) fn typed() -> Option<u8> {
    // SAFETY: as above. Without a serial port all bits are 1, which is no typed byte either.
    unsafe {
        let status = in8(STATUS);
        (status != 0xFF && status & RECEIVED != 0).then(|| in8(DATA))
    }
}

struct Serial;

impl Serial {
    fn put(byte: u8) {
        for _ in 0..PATIENCE {
            // SAFETY: as above.
            if unsafe { in8(STATUS) } & ROOM != 0 {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { out8(DATA, byte) }
    }
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                Self::put(b'\r');
            }
            Self::put(byte);
        }
        Ok(())
    }
}

/// Writes what `say!` was given, and ends the line.
pub(crate) fn line(arguments: fmt::Arguments<'_>) {
    // The serial port takes everything.
    let _ = Serial.write_fmt(arguments);
    let _ = Serial.write_char('\n');
}

/// A line on the console.
macro_rules! say {
    ($($argument:tt)*) => { $crate::console::line(format_args!($($argument)*)) };
}
pub(crate) use say;
