//! The PVH start information: command line, modules (files loaded with the image), and the memory map.
//!
//! The layout is `hvm_start_info` in Xen's public header `arch-x86/hvm/start_info.h`, version 1.

use crate::BootError;
use alloc::string::String;
use core::ffi::CStr;
use core::slice;
use zeroize::{Zeroize, Zeroizing};

const MAGIC: u32 = 0x336E_C578;
/// Type of usable memory in the memory map.
const RAM: u32 = 1;

/// Header of the start information.
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

/// A file loaded with the image.
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

    /// Returns the command line, which is empty if there is none. Returns an error if it is not UTF-8.
    pub(crate) fn command_line(&self) -> Result<&'static str, BootError> {
        if !self.is_valid() || self.command_line == 0 {
            return Ok("");
        }
        // SAFETY: the loader has placed a NUL-terminated string there, outside of the image; nothing
        // writes to it.
        let text = unsafe { CStr::from_ptr(self.command_line as *const _) };
        text.to_str().map_err(|_| "the command line is not UTF-8")
    }

    /// Returns a copy of the file loaded with the image (QEMU's `-initrd`), and overwrites the original
    /// with zeros, because the file contains keys. The result is empty if there is no file. Returns an error
    /// if the file is not UTF-8.
    pub(crate) fn take_file(&self) -> Result<Zeroizing<String>, BootError> {
        let modules: &[Module] = self.list(self.module_list, self.modules);
        let Some(module) = modules.first() else { return Ok(Zeroizing::default()) };
        // SAFETY: the loader has placed the file there, outside of the image and, as the memory layout
        // has checked, outside of the heap. No other code refers to it, and the reference ends here.
        let bytes = unsafe { slice::from_raw_parts_mut(module.address as *mut u8, module.size as usize) };
        let text = str::from_utf8(bytes).map(|text| Zeroizing::new(text.into()));
        bytes.zeroize();
        text.map_err(|_| "the file loaded with the image is not UTF-8")
    }

    /// Returns whether the whole range is usable memory. Without a memory map the answer is yes.
    pub(crate) fn has_ram(&self, from: u64, to: u64) -> bool {
        let entries: &[MemoryEntry] = self.list(self.memory_map, self.memory_entries);
        let holds = |entry: &MemoryEntry| {
            entry.kind == RAM && entry.address <= from && to <= entry.address.saturating_add(entry.size)
        };
        entries.is_empty() || entries.iter().any(holds)
    }

    /// Returns whether a file loaded with the image overlaps the range.
    pub(crate) fn has_file(&self, from: u64, to: u64) -> bool {
        let modules: &[Module] = self.list(self.module_list, self.modules);
        modules.iter().any(|module| module.address < to && from < module.address.saturating_add(module.size))
    }

    fn list<T>(&self, address: u64, count: u32) -> &'static [T] {
        // The loader is trusted: it could have loaded another image.
        if !self.is_valid() || address == 0 || count == 0 {
            return &[];
        }
        // SAFETY: the loader has placed this number of aligned entries there, outside of the image;
        // nothing writes to them.
        unsafe { slice::from_raw_parts(address as *const T, count as usize) }
    }
}
