//! Runs cases: namespaces, peers and files of its own for each, and what a failed case leaves behind.

use crate::arena::Arena;
use crate::casemate::Casemate;
use crate::cases::Case;
use crate::device::OnDevice;
use crate::firmware::InFirmware;
use crate::lwip::InLwip;
use crate::options::{Left, Options};
use crate::path::Path;
use crate::peer::Peer;
use crate::pki::Pki;
use crate::place::{Guests, Host, InNamespace, OnQemu, OnTap, Place};
use crate::side::Side;
use crate::strongswan::{Esp, Programs, StrongSwan};
use casemate_interop::{Error, Images, Netns, Result, build_images, with_probe};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Of the directory of a run; its process number follows.
const PREFIX: &str = "casemate-strongswan.";
/// Lines of each log that are shown when a case fails.
const TAIL: usize = 12;

/// What all cases share.
pub(crate) struct Bench<'o> {
    options: &'o Options,
    directory: PathBuf,
    programs: Arc<Programs>,
    programs_in_guest: Arc<Programs>,
    /// What guests boot from, if any case needs one.
    images: Option<Images>,
    pki: Arc<Pki>,
}

impl<'o> Bench<'o> {
    /// Prepares a directory for a run of these cases. It is below /tmp because the path of a Unix socket has to be short.
    pub(crate) fn new(options: &'o Options, cases: &[Case]) -> Result<Self> {
        let temporary = std::env::temp_dir();
        remove_stale(&temporary);
        let directory = temporary.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let programs = Programs::copy_to(&directory.join("programs"))?;
        let pki = Pki::new(directory.join("pki"))?;
        let images = match cases.iter().any(|case| case.esp == Esp::Kernel) {
            true => Some(images(options)?),
            false => None,
        };
        let (programs, programs_in_guest) = (Arc::new(programs), Arc::new(Programs::in_guest()));
        Ok(Self { options, directory, programs, programs_in_guest, images, pki: Arc::new(pki) })
    }

    /// Runs one case and says how it went. Guests stay for the next case if it went well.
    pub(crate) fn run(&self, case: &Case, guests: &mut Guests) -> Result<String> {
        let directory = self.directory.join(file_name(&case.name));
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
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
        // What is left goes with the directory of the run.
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
        let mut arena = Arena::new(path, case.plan.clone(), [left, right], probe, directory)?;
        let outcome = arena.start().and_then(|()| (case.script)(&mut arena));
        *logs = arena.logs();
        let counted = arena.demand_no_errors(case.errors);
        let wire = arena.stop();
        let said = match (outcome, counted) {
            (Err(error), Err(counted)) => return Err(Error::new(format!("{error}; {counted}"))),
            (outcome, counted) => counted.and(outcome)?,
        };
        wire?.demand_no_clear_text(case.is_encrypted)?;
        Ok(said)
    }

    /// A side's place and its peer.
    fn end(
        &self,
        side: Side,
        case: &Case,
        guests: &mut Guests,
        directory: &std::path::Path,
    ) -> Result<(Rc<dyn Place>, Box<dyn Peer>)> {
        let files = directory.join(side.name());
        let namespace = |netns| InNamespace::new(netns, side, &self.options.probe, directory).map(Rc::new);
        match (side, &self.options.left) {
            (Side::Left, Left::Casemate(program)) => {
                let netns = Rc::new(Netns::new()?);
                let peer = Casemate::new(netns.clone(), program.clone(), self.pki.clone(), files);
                return Ok((namespace(netns)?, Box::new(peer)));
            }
            (Side::Left, Left::Smoltcp(program)) => {
                let log = directory.join("device");
                let place = Rc::new(OnTap::smoltcp(program.clone(), side, case.plan.between, log));
                return Ok((place.clone(), Box::new(OnDevice::new(place, self.pki.clone(), files))));
            }
            (Side::Left, Left::Lwip(program)) => {
                let place = Rc::new(OnTap::lwip(program.clone(), side, directory));
                let role = case.plan.initiator == side;
                return Ok((place.clone(), Box::new(InLwip::new(place, self.pki.clone(), (files, role)))));
            }
            (Side::Left, Left::Firmware(image)) => {
                let place = Rc::new(OnQemu::new(image.clone(), side, &case.plan, files));
                return Ok((place.clone(), Box::new(InFirmware::new(place))));
            }
            (Side::Left, Left::StrongSwan) | (Side::Right, _) => {}
        }
        let (place, programs): (Rc<dyn Host>, _) = match (case.esp, &self.images) {
            (Esp::Kernel, Some(images)) => {
                (guests.get(side, images, &self.directory)?, &self.programs_in_guest)
            }
            _ => (namespace(Rc::new(Netns::new()?))?, &self.programs),
        };
        let peer = StrongSwan::new(place.clone(), case.esp, programs.clone(), self.pki.clone(), files);
        Ok((place, Box::new(peer)))
    }
}

/// A guest's kernel and initramfs, with strongSwan's programs.
fn images(options: &Options) -> Result<Images> {
    let content = with_probe(&options.probe)?.with("strongswan", Programs::for_guest());
    build_images(&options.cache, &content)
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // A leftover directory hurts nobody.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes what runs left behind that were killed.
fn remove_stale(temporary: &std::path::Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !std::path::Path::new("/proc").join(process).exists()) {
            // It may be somebody else's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn file_name(case: &str) -> String {
    case.replace('/', "_")
}

/// Moves the files of a case to where they are kept, below another file system perhaps.
fn move_files(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    // Of an earlier run.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).map_err(Error::in_front(to.display()))?;
    for entry in fs::read_dir(from).map_err(Error::in_front(from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::in_front(source.display()))?;
        if kind.is_dir() {
            move_files(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(Error::in_front(source.display()))?;
        }
    }
    Ok(())
}

/// What the peers logged until the script ended.
fn write_logs(logs: &[String; 2], directory: &std::path::Path) -> Result<()> {
    Side::BOTH.into_iter().zip(logs).try_for_each(|(side, log)| {
        let file = directory.join(format!("{}.log", side.name()));
        fs::write(&file, log).map_err(Error::in_front(file.display()))
    })
}

/// The error with the last lines of both logs, and where the rest is.
fn explain(error: &Error, logs: &[String; 2], kept: Option<PathBuf>) -> Error {
    let mut text = error.to_string();
    for (side, log) in Side::BOTH.into_iter().zip(logs) {
        // Keys, their bytes and the harness's own questions are for the files.
        let is_noise = |line: &&str| [": ", "=> ", "vici client"].iter().any(|noise| line.contains(noise));
        let lines: Vec<&str> = log.lines().filter(|line| !is_noise(line)).collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default();
        text.push_str(&format!("\n      --- {}\n      {}", side.name(), tail.join("\n      ")));
    }
    if let Some(kept) = kept {
        text.push_str(&format!("\n      --- all files: {}", kept.display()));
    }
    Error::new(text)
}
