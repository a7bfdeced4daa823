//! Names that the precompiled core library refers to, for unwinding. Nothing unwinds here: a panic ends the machine.

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    crate::cpu::reset()
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::cpu::reset()
}
