//! Instructions of the processor that a program is told not to use.

/// A variable of the environment that AWS-LC and OpenSSL read when they start, and the value that takes the instructions away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask {
    name: &'static str,
    value: &'static str,
}

impl Mask {
    /// Hides the instructions for AES and carry-less multiplication, which GCM needs; `None` where no program can be told so.
    ///
    /// On x86-64 bits 57 (AES) and 33 (PCLMULQDQ) of the first word, and 41 (VAES) and 42 (VPCLMULQDQ) of the second, as
    /// OPENSSL_ia32cap(3) counts them. On ARM bits 2 (AES) and 5 (PMULL) of AWS-LC's own word (`arm_arch.h` there); OpenSSL does not
    /// read that value so.
    pub const NO_AES: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self { name: "OPENSSL_ia32cap", value: "~0x200000200000000:~0x60000000000" })
    } else if cfg!(target_arch = "aarch64") {
        Some(Self { name: "OPENSSL_armcap", value: "~0x24" })
    } else {
        None
    };

    /// The variable: name and value.
    pub const fn variable(self) -> (&'static str, &'static str) {
        (self.name, self.value)
    }

    /// Whether this process runs under it.
    pub fn is_worn(self) -> bool {
        std::env::var(self.name).is_ok_and(|value| value == self.value)
    }
}
