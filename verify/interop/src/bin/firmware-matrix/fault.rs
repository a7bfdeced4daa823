//! Faults that the firmware is told to make: its processor has to catch them, and the machine has to end.

use crate::run::Places;
use casemate_interop::{Background, Error, Result};
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// A fault by the name that the firmware knows, and the error code of its page fault (Intel's manual, volume 3, section 4.7):
/// present and written to, present and executed, or absent and written to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    name: &'static str,
    code: &'static str,
}

/// Every fault.
pub(crate) const ALL: [Fault; 5] = [
    Fault { name: "write-code", code: "0x3" },
    Fault { name: "write-constants", code: "0x3" },
    Fault { name: "run-heap", code: "0x11" },
    Fault { name: "run-stack", code: "0x11" },
    Fault { name: "fill-stack", code: "0x2" },
];

impl Fault {
    pub(crate) fn name(self) -> String {
        format!("pc/fault/{}", self.name)
    }

    /// Boots the firmware, and waits until it has ended of this fault.
    pub(crate) fn run(self, places: &Places) -> Result<String> {
        fs::create_dir_all(&places.directory).map_err(Error::in_front(places.directory.display()))?;
        let place = |suffix: &str| places.directory.join(format!("fault-{}.{suffix}", self.name));
        let (file, log) = (place("conf"), place("log"));
        fs::write(&file, format!("address=10.9.0.2/24 fault={}\n", self.name))
            .map_err(Error::in_front(file.display()))?;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-m", "64", "-nodefaults"]);
        command.args(["-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]);
        command.arg("-kernel").arg(&places.image).arg("-initrd").arg(&file);
        let mut qemu = Background::start("qemu", command, &log)?;
        let caught = format!("exception 14 (page fault), error code {}:", self.code);
        let waited = qemu.wait_until(LIMIT, |said| said.contains(&caught));
        // It may have ended between two looks, and has said everything then.
        if !qemu.said().contains(&caught) {
            waited?;
        }
        drop(qemu);
        for file in [file, log] {
            fs::remove_file(&file).map_err(Error::in_front(file.display()))?;
        }
        Ok(caught)
    }
}
