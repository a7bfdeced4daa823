//! The serial console: COM1, a polled 16550.

use crate::cpu::{in8, out8};
use core::fmt::{self, Write};

const COM1: u16 = 0x3F8;
/// Registers.
const DATA: u16 = COM1;
const INTERRUPTS: u16 = COM1 + 1;
const FIFO: u16 = COM1 + 2;
const LINE: u16 = COM1 + 3;
const MODEM: u16 = COM1 + 4;
const STATUS: u16 = COM1 + 5;

const RECEIVED: u8 = 1 << 0;
const ROOM: u8 = 1 << 5;

/// Maximum number of polls for room in the transmitter: more time than a byte needs at 115,200 bit/s.
/// Afterwards the byte is lost, and the machine continues without a console.
const TIMEOUT: u32 = 100_000;

/// Configures 115,200 bit/s, 8 data bits, no parity, no interrupts.
pub(crate) fn open() {
    for (register, value) in [
        (INTERRUPTS, 0),
        (LINE, 0x80), // Select the divisor registers for the next two writes.
        (DATA, 1),
        (INTERRUPTS, 0),
        (LINE, 0x03),
        (FIFO, 0xC7),
        (MODEM, 0x03),
    ] {
        // SAFETY: a serial port does not access memory.
        unsafe { out8(register, value) }
    }
}

/// Returns the next received byte, if there is one.
pub(crate) fn read_key() -> Option<u8> {
    // SAFETY: as above. Without a serial port all bits read as 1.
    unsafe {
        let status = in8(STATUS);
        (status != 0xFF && status & RECEIVED != 0).then(|| in8(DATA))
    }
}

struct Serial;

impl Serial {
    fn put(byte: u8) {
        for _ in 0..TIMEOUT {
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

/// Writes one line; called by `println!`.
pub(crate) fn line(arguments: fmt::Arguments<'_>) {
    // Writing to the serial port cannot fail.
    let _ = Serial.write_fmt(arguments);
    let _ = Serial.write_char('\n');
}

/// Writes a formatted line to the console.
macro_rules! println {
    ($($argument:tt)*) => { $crate::console::line(format_args!($($argument)*)) };
}
pub(crate) use println;
