//! What the machine tells by PVH: its command line, files that came with the image, and its memory.
//!
//! The layout is `hvm_start_info` of Xen's public header `arch-x86/hvm/start_info.h`, version 1.

use alloc::string::String;
use core::ffi::CStr;
use core::slice;
use zeroize::{Zeroize, Zeroizing};

const MAGIC: u32 = 0x336E_C578;
/// Type of memory that may be used.
const RAM: u32 = 1;

/// The head.
#[repr(C)]
pub(crate) struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

/// A file that came with the image.
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
struct MemoryEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

impl StartInfo {
    fn is_valid(&self) -> bool {
        self.magic == MAGIC
    }

    /// The command line; empty if there is none or it is no text.
    pub(crate) fn command_line(&self) -> &'static str {
        if !self.is_valid() || self.command_line == 0 {
            return "";
        }
        // SAFETY: the loader has put a string that ends with a 0 there, outside of the image; nobody writes to it.
        let text = unsafe { CStr::from_ptr(self.command_line as *const _) };
        text.to_str().unwrap_or("")
    }

    /// Takes the file that came with the image (QEMU's `-initrd`): a copy, while where it lay there are zeros afterwards, for there
    /// are keys in it. Empty if there is none or it is no text.
    pub(crate) fn take_file(&self) -> Zeroizing<String> {
        let modules: &[Module] = self.list(self.module_list, self.modules);
        let Some(module) = modules.first() else { return Zeroizing::default() };
        // SAFETY: the loader has put the file there, outside of the image and, as the memory plan has seen, of the heap. Nobody
        // else knows of it, and the reference ends here.
        let bytes = unsafe { slice::from_raw_parts_mut(module.address as *mut u8, module.size as usize) };
        let text = Zeroizing::new(str::from_utf8(bytes).unwrap_or_default().into());
        bytes.zeroize();
        text
    }

    /// Whether all of this is memory that may be used. A loader that tells nothing of memory is believed.
    pub(crate) fn has_ram(&self, from: u64, to: u64) -> bool {
        let entries: &[MemoryEntry] = self.list(self.memory_map, self.memory_entries);
        let holds = |entry: &MemoryEntry| {
            entry.kind == RAM && entry.address <= from && to <= entry.address.saturating_add(entry.size)
        };
        entries.is_empty() || entries.iter().any(holds)
    }

    /// Whether a file that came with the image lies in this part of memory.
    pub(crate) fn has_file(&self, from: u64, to: u64) -> bool {
        let modules: &[Module] = self.list(self.module_list, self.modules);
        modules.iter().any(|module| module.address < to && from < module.address.saturating_add(module.size))
    }

    fn list<T>(&self, address: u64, count: u32) -> &'static [T] {
        // Whoever loads the image is believed: he could have loaded another one.
        if !self.is_valid() || address == 0 || count == 0 {
            return &[];
        }
        // SAFETY: the loader has put that many entries there, outside of the image, and aligned; nobody writes to them.
        unsafe { slice::from_raw_parts(address as *const T, count as usize) }
    }
}
