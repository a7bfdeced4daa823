//! Execution of cases: creates the namespaces, peers and files of each case, and keeps the files of a
//! failed case.

use crate::casemate::Casemate;
use crate::cases::Case;
use crate::device::DevicePeer;
use crate::device::FirmwarePeer;
use crate::device::LwipPeer;
use crate::options::{Left, Options};
use crate::path::Path;
use crate::peer::Peer;
use crate::peer::Side;
use crate::pki::Pki;
use crate::platform::{DevicePlatform, FirmwarePlatform, Guests, NamespacePlatform, Platform, ProgramHost};
use crate::strongswan::{Esp, Programs, StrongSwan};
use crate::testbed::Testbed;
use casemate_interop::{Error, GuestImages, Netns, Result, build_images, with_probe};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Prefix of the directory of a run, followed by the process ID.
const PREFIX: &str = "casemate-strongswan.";
/// Number of lines of each log in the message of a failed case.
const LOG_LINES: usize = 12;

/// State that all cases share.
pub(crate) struct Runner<'o> {
    options: &'o Options,
    directory: PathBuf,
    programs: Arc<Programs>,
    programs_in_guest: Arc<Programs>,
    /// Boot images of the guests; `None` if no case needs a guest.
    images: Option<GuestImages>,
    pki: Arc<Pki>,
}

impl<'o> Runner<'o> {
    /// Creates the directory of a run of these cases. The directory is in /tmp, because the path of a Unix
    /// socket has a maximum length.
    pub(crate) fn new(options: &'o Options, cases: &[Case]) -> Result<Self> {
        let temporary = std::env::temp_dir();
        remove_stale(&temporary);
        let directory = temporary.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let programs = Programs::copy_to(&directory.join("programs"), options.root.as_deref())?;
        let pki = Pki::new(directory.join("pki"))?;
        let images = match cases.iter().any(|case| case.esp == Esp::Kernel) {
            true => Some(images(options)?),
            false => None,
        };
        let (programs, programs_in_guest) = (Arc::new(programs), Arc::new(Programs::in_guest()));
        Ok(Self { options, directory, programs, programs_in_guest, images, pki: Arc::new(pki) })
    }

    /// Runs one case and returns its result. If the case passes, the next case reuses the guests.
    pub(crate) fn run(&self, case: &Case, guests: &mut Guests) -> Result<String> {
        let directory = self.directory.join(file_name(&case.name));
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let mut logs = [String::new(), String::new()];
        let outcome = self.run_in(case, guests, &directory, &mut logs);
        if outcome.is_err() {
            *guests = Guests::default();
        }
        let keep = match (&outcome, &self.options.keep) {
            (_, Some(keep)) => Some(keep),
            (Err(_), None) => Some(&self.options.failures),
            (Ok(_), None) => None,
        };
        let kept = keep.map(|keep| keep.join(file_name(&case.name)));
        if let Some(kept) = &kept {
            move_files(&directory, kept)?;
            write_logs(&logs, kept)?;
        }
        // The directory of the run is removed later with the files that remain.
        let _ = fs::remove_dir_all(&directory);
        outcome.map_err(|error| explain(&error, &logs, kept))
    }

    fn run_in(
        &self,
        case: &Case,
        guests: &mut Guests,
        directory: &std::path::Path,
        logs: &mut [String; 2],
    ) -> Result<String> {
        let (left_place, left) = self.end(Side::Left, case, guests, directory)?;
        let (right_place, right) = self.end(Side::Right, case, guests, directory)?;
        let path = Path::new([left_place, right_place])?;
        let probe = self.options.probe.clone();
        let mut testbed = Testbed::new(path, case.plan.clone(), [left, right], probe, directory)?;
        let outcome = testbed.start().and_then(|()| (case.script)(&mut testbed));
        *logs = testbed.logs();
        let kernel_outcome = testbed.expect_no_kernel_errors(case.errors);
        let wire = testbed.stop();
        let summary = match (outcome, kernel_outcome) {
            (Err(error), Err(kernel_error)) => return Err(Error::new(format!("{error}; {kernel_error}"))),
            (outcome, kernel_outcome) => kernel_outcome.and(outcome)?,
        };
        wire?.expect_no_clear_text(case.is_encrypted)?;
        Ok(summary)
    }

    /// Creates the platform and the peer of a side.
    fn end(
        &self,
        side: Side,
        case: &Case,
        guests: &mut Guests,
        directory: &std::path::Path,
    ) -> Result<(Rc<dyn Platform>, Box<dyn Peer>)> {
        let files = directory.join(side.name());
        let namespace =
            |netns| NamespacePlatform::new(netns, side, &self.options.probe, directory).map(Rc::new);
        match (side, &self.options.left) {
            (Side::Left, Left::Casemate(program)) => {
                let netns = Rc::new(Netns::new()?);
                let peer = Casemate::new(netns.clone(), program.clone(), self.pki.clone(), files);
                return Ok((namespace(netns)?, Box::new(peer)));
            }
            (Side::Left, Left::Smoltcp(program)) => {
                let log = directory.join("device");
                let platform =
                    Rc::new(DevicePlatform::smoltcp(program.clone(), side, case.plan.between, log));
                return Ok((platform.clone(), Box::new(DevicePeer::new(platform, self.pki.clone(), files))));
            }
            (Side::Left, Left::Lwip(program)) => {
                let platform = Rc::new(DevicePlatform::lwip(program.clone(), side, directory));
                let role = case.plan.initiator == side;
                return Ok((
                    platform.clone(),
                    Box::new(LwipPeer::new(platform, self.pki.clone(), files, role)),
                ));
            }
            (Side::Left, Left::Firmware(image)) => {
                let platform = Rc::new(FirmwarePlatform::new(image.clone(), side, &case.plan, files));
                return Ok((platform.clone(), Box::new(FirmwarePeer::new(platform))));
            }
            (Side::Left, Left::StrongSwan) | (Side::Right, _) => {}
        }
        let (platform, programs): (Rc<dyn ProgramHost>, _) = match (case.esp, &self.images) {
            (Esp::Kernel, Some(images)) => {
                (guests.get(side, images, &self.directory)?, &self.programs_in_guest)
            }
            _ => (namespace(Rc::new(Netns::new()?))?, &self.programs),
        };
        let peer = StrongSwan::new(platform.clone(), case.esp, programs.clone(), self.pki.clone(), files);
        Ok((platform, Box::new(peer)))
    }
}

/// Builds the kernel and initramfs of a guest with the programs of strongSwan.
fn images(options: &Options) -> Result<GuestImages> {
    let content = with_probe(&options.probe)?.with_programs("strongswan", Programs::for_guest());
    build_images(&options.cache, &content)
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // A directory that remains does no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories of earlier runs that were killed.
fn remove_stale(temporary: &std::path::Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !std::path::Path::new("/proc").join(process).exists()) {
            // The directory may belong to another user.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn file_name(case: &str) -> String {
    case.replace('/', "_")
}

/// Moves the files of a case to the directory where they are kept. That directory can be on another file
/// system.
fn move_files(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    // Removes the files of an earlier run.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).map_err(Error::context(to.display()))?;
    for entry in fs::read_dir(from).map_err(Error::context(from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::context(source.display()))?;
        if kind.is_dir() {
            move_files(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(Error::context(source.display()))?;
        }
    }
    Ok(())
}

/// Writes the logs of the peers up to the end of the script.
fn write_logs(logs: &[String; 2], directory: &std::path::Path) -> Result<()> {
    Side::BOTH.into_iter().zip(logs).try_for_each(|(side, log)| {
        let file = directory.join(format!("{}.log", side.name()));
        fs::write(&file, log).map_err(Error::context(file.display()))
    })
}

/// Adds the last lines of both logs, and the directory with all files, to the error.
fn explain(error: &Error, logs: &[String; 2], kept: Option<PathBuf>) -> Error {
    let mut text = error.to_string();
    for (side, log) in Side::BOTH.into_iter().zip(logs) {
        // Keys, hex dumps and the requests of the test program itself remain in the files only.
        let is_noise = |line: &&str| [": ", "=> ", "vici client"].iter().any(|noise| line.contains(noise));
        let lines: Vec<&str> = log.lines().filter(|line| !is_noise(line)).collect();
        let tail = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
        text.push_str(&format!("\n      --- {}\n      {}", side.name(), tail.join("\n      ")));
    }
    if let Some(kept) = kept {
        text.push_str(&format!("\n      --- all files: {}", kept.display()));
    }
    Error::new(text)
}

/// Results of the cases that have ended.
pub(crate) struct Report {
    json: bool,
    start: Instant,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    /// Creates an empty report and starts its clock.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, start: Instant::now(), results: Mutex::default() }
    }

    /// Records and prints the result of a case.
    pub(crate) fn add(&self, name: &str, took: Duration, outcome: Result<String>) {
        let mut results = self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (passed, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(error) => (false, error.to_string()),
        };
        if passed {
            results.passed = results.passed.saturating_add(1);
        } else {
            results.failed.push(name.into());
        }
        let seconds = took.as_secs_f64();
        if self.json {
            println!("{}", json!({"case": name, "passed": passed, "seconds": seconds, "detail": detail}));
        } else {
            println!("{}  {name:<56} {seconds:5.2} s  {detail}", if passed { "ok  " } else { "FAIL" });
        }
    }

    /// Prints the summary and returns whether all cases passed.
    pub(crate) fn finish(self) -> bool {
        let Results { passed, failed } =
            self.results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let seconds = self.start.elapsed().as_secs_f64();
        if self.json {
            println!("{}", json!({"passed": passed, "failed": failed, "seconds": seconds}));
        } else {
            failed.iter().for_each(|name| println!("failed: {name}"));
            println!("strongSwan matrix: {passed} passed, {} failed ({seconds:.0} s)", failed.len());
        }
        failed.is_empty() && passed > 0
    }
}
