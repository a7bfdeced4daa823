//! Measured responders: `casemate run --config`, and strongSwan's charon with kernel-libipsec.

use crate::case::Pki;
use crate::case::{Auth, Case};
use casemate_interop::{Background, Charon, Error, Netns, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(10);

/// CPU of the responders. The initiators use the others.
pub(crate) const CPU: &str = "1";

/// Names of the programs in tables.
pub(crate) const CASEMATE: &str = "casemate";
pub(crate) const CHARON: &str = "charon";

/// Responder program.
#[derive(Debug, Clone)]
pub(crate) enum Program {
    /// `casemate` at this path.
    Casemate(PathBuf),
    /// strongSwan's IKE daemon.
    Charon(Charon),
}

/// Running responder; dropping it ends the process.
pub(crate) struct Responder {
    daemon: Background,
}

impl Program {
    /// Name in tables.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Casemate(_) => CASEMATE,
            Self::Charon(_) => CHARON,
        }
    }

    /// Whether the program has the algorithms of a case. Debian's charon 5.9 has no additional key exchanges.
    pub(crate) fn supports(&self, case: Case) -> bool {
        match self {
            Self::Casemate(_) => true,
            Self::Charon(_) => !case.has_additional_kex(),
        }
    }

    /// Starts the responder in `netns`. [`prepare`] has written its files to `directory`.
    pub(crate) fn start(&self, netns: &Netns, directory: &Path) -> Result<Responder> {
        match self {
            Self::Casemate(program) => start_casemate(program, netns, directory),
            Self::Charon(charon) => {
                let daemon = charon.start(netns, &["taskset", "--cpu-list", CPU], directory)?;
                Ok(Responder { daemon })
            }
        }
    }
}

/// Writes `swanctl.conf` of a side below `directory`, beside its certificates.
pub(crate) fn configure(case: Case, side: &str, directory: &Path) -> PathBuf {
    let text = if side == "initiator" { case.initiator() } else { case.responder() };
    let file = directory.join(side).join("swanctl.conf");
    fs::create_dir_all(directory.join(side))
        .and_then(|()| fs::write(&file, text))
        .expect("the directory is writable");
    file
}

/// Writes the files of both sides.
pub(crate) fn prepare(case: Case, pki: Option<&Pki>, directory: &Path) -> Result<()> {
    for side in ["initiator", "responder"] {
        configure(case, side, directory);
        if let (Auth::Ecdsa, Some(pki)) = (case.auth, pki) {
            pki.install(side, &directory.join(side))?;
        }
    }
    Ok(())
}

fn start_casemate(program: &Path, netns: &Netns, directory: &Path) -> Result<Responder> {
    let mut command = netns.command("taskset");
    command
        .args(["--cpu-list", CPU])
        .arg(program)
        .args(["run", "--config"])
        .arg(directory.join("swanctl.conf"));
    let mut daemon = Background::start("casemate", command, &directory.join("output"))?;
    daemon.wait_until(START_LIMIT, |said| said.lines().any(|line| line.trim_end() == "ready"))?;
    Ok(Responder { daemon })
}

/// Resource usage of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// CPU time of all threads, in user space and in the kernel.
    pub(crate) cpu: Duration,
    /// CPU time of child processes, such as `nft`.
    pub(crate) programs: Duration,
    /// Resident memory.
    pub(crate) resident_kib: u64,
}

impl Responder {
    /// Resource usage so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let process = Path::new("/proc").join(self.daemon.pid().to_string());
        let read = |name: &str| fs::read_to_string(process.join(name)).map_err(Error::context(name));
        let (stat, status) = (read("stat")?, read("status")?);
        usage(&stat, &status).ok_or_else(|| Error::new(format!("/proc/PID/stat and status: {stat} {status}")))
    }
}

/// Parses `/proc/PID/stat` and `/proc/PID/status` (proc(5)).
fn usage(stat: &str, status: &str) -> Option<Usage> {
    // The process name may contain any character, but it is the only field in parentheses. utime, stime,
    // cutime and cstime are the fields 14 to 17.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: Vec<u64> = fields.get(11..15)?.iter().filter_map(|ticks| ticks.parse().ok()).collect();
    let [own, own_kernel, programs, programs_kernel] = ticks[..] else { return None };
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let resident_kib = resident.trim().strip_suffix(" kB")?.parse().ok()?;
    let time = |ticks| Duration::from_millis(ticks * MS_PER_TICK);
    let (cpu, programs) = (time(own + own_kernel), time(programs + programs_kernel));
    Some(Usage { cpu, programs, resident_kib })
}

/// USER_HZ is 100 on every Linux.
const MS_PER_TICK: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_parsed_for_any_process_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 25 30 1 20 0";
        let used = usage(stat, "Name:\ta\nVmRSS:\t   5120 kB\nThreads:\t1\n").unwrap();
        assert_eq!((used.cpu, used.programs), (Duration::from_millis(1_750), Duration::from_millis(310)));
        assert_eq!(used.resident_kib, 5_120);
        assert!(usage("7 (a) S 1", "").is_none());
    }
}
