//! Kernel matrix: every suite that Linux supports, in every mode and IP version, between Casemate and a
//! Linux kernel.
//!
//! One guest runs all cases. In each case, both sides ping each other with packets of 1 to 9000 bytes over
//! a link with an MTU of 1500 bytes, and then the counters of the kernel are checked. The output has one
//! line per case and a summary; the exit status is 0 only if all cases pass.

mod case;
mod casemate;
mod kernel;
mod link;
mod options;
mod suite;
mod xfrm;

use crate::casemate::Casemate;
use case::{Bursts, Case, Peer};
use casemate::Device;
use casemate_interop::{Error, GuestImages, Netns, Output, Result, build_images, with_probe};
use kernel::Kernel;
use options::{Options, OurSide};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use xfrm::Side;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| start(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kernel-matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program. Returns whether all cases passed.
fn start(options: &Options) -> Result<bool> {
    if options.help {
        print!("{}", options::HELP);
        return Ok(true);
    }
    let is_known = |case: &Case| match options.our_side {
        OurSide::Casemate(_) | OurSide::Kernel => true,
        OurSide::Smoltcp(_) => casemate::is_for_devices(case),
        OurSide::Lwip { .. } => casemate::is_for_lwip(case),
    };
    let cases = case::all().into_iter().filter(|case| options.selects(&case.name) && is_known(case));
    let cases: Vec<Case> = cases.collect();
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    if options.show {
        for (case, side) in cases.iter().flat_map(|case| [(case, Side::Ours), (case, Side::Guest)]) {
            println!("# {}, {side:?}\n{}", case.name, xfrm::lines(case, side));
        }
        return Ok(true);
    }
    if cases.is_empty() {
        return Err(Error::new("no case matches the filters; --list prints all cases"));
    }
    let images = build_images(&options.directory, &with_probe(&options.probe)?)?;
    let run = match &options.our_side {
        OurSide::Casemate(program) => {
            let netns = link::to_namespace()?;
            let mut guest = options.boot(&images, &netns, link::GUEST_TAP, Side::Guest)?;
            let mut ours = Casemate::new(&netns, program, &options.probe, &options.own("case"))?;
            all(&cases, &mut ours, &mut guest)
        }
        OurSide::Smoltcp(program) => {
            let netns = link::between_guests()?;
            let mut guest = options.boot(&images, &netns, link::GUEST_TAP, Side::Guest)?;
            let keys = |case: &Case| xfrm::lines(case, Side::Ours);
            let mut ours = Device::start(casemate::smoltcp(&netns, program), &options.own("case"), keys)?;
            all(&cases, &mut ours, &mut guest)
        }
        OurSide::Lwip { program, is_below } => {
            let netns = link::between_guests()?;
            let mut guest = options.boot(&images, &netns, link::GUEST_TAP, Side::Guest)?;
            let directory = options.own("case");
            let command = casemate::command(&netns, program, *is_below, &directory)?;
            let mut ours = Device::start(command, &directory, casemate::lines)?;
            all(&cases, &mut ours, &mut guest)
        }
        OurSide::Kernel => {
            let netns = link::between_guests()?;
            let mut guest = options.boot(&images, &netns, link::GUEST_TAP, Side::Guest)?;
            let mut ours = options.boot(&images, &netns, link::SECOND_TAP, Side::Ours)?;
            all(&cases, &mut ours, &mut guest)
        }
    };
    options.clean_up();
    Ok(run)
}

impl Options {
    /// File or directory that only this run uses.
    fn own(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.{}", std::process::id()))
    }

    fn boot(&self, images: &GuestImages, netns: &Netns, tap: &str, side: Side) -> Result<Kernel> {
        let name = if side == Side::Guest { "console-guest" } else { "console-ours" };
        Kernel::boot(images, netns, tap, side, &self.own(name))
    }
}

fn all(cases: &[Case], ours: &mut dyn Peer, guest: &mut dyn Peer) -> bool {
    let start = Instant::now();
    let mut failed = Vec::new();
    for case in cases {
        let begin = Instant::now();
        let outcome = one(case, ours, guest);
        let took = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(detail) => println!("ok    {:<44} {took:5.2} s  {detail}", case.name),
            Err(error) => {
                println!("FAIL  {:<44} {took:5.2} s  {error}", case.name);
                failed.push(case.name.as_str());
            }
        }
    }
    failed.iter().for_each(|name| println!("failed: {name}"));
    let passed = cases.len().saturating_sub(failed.len());
    println!(
        "kernel matrix: {passed} passed, {} failed ({:.0} s)",
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    failed.is_empty()
}

/// Runs a case. It stops both sides after any error and collects all errors, because the counters often
/// explain why no packet arrived.
///
/// The guest starts last and stops first: it counts errors from its start to its stop, and TCP on our side
/// may repeat the last segment of a connection in clear while nothing protects it there.
fn one(case: &Case, ours: &mut dyn Peer, guest: &mut dyn Peer) -> Result<String> {
    let traffic = match ours.start(case).and_then(|()| guest.start(case)) {
        Ok(()) => exchange(case, ours, guest),
        // No packet was sent, so the counters contain nothing about the case.
        Err(error) => {
            let _ = (guest.stop(case), ours.stop(case));
            return Err(error);
        }
    };
    let mut complaints: Vec<String> = traffic.as_ref().err().map(ToString::to_string).into_iter().collect();
    for stopped in [guest.stop(case), ours.stop(case)] {
        complaints.extend(stopped.err().map(|error| error.to_string()));
    }
    if complaints.is_empty() { traffic } else { Err(Error::new(complaints.join("\n      "))) }
}

fn exchange(case: &Case, ours: &mut dyn Peer, guest: &mut dyn Peer) -> Result<String> {
    let (our, their) = (Side::Ours.user(case), Side::Guest.user(case));
    let sizes = case.sizes.join(" ");
    let out = expect_success("from us", ours.probe(&format!("ping {our} {their} {sizes}"))?)?;
    let back = expect_success("from the guest", guest.probe(&format!("ping {their} {our} {sizes}"))?)?;
    if let Some(bytes) = case.tcp {
        expect_success("from us", ours.probe(&format!("tcp {our} {their} {bytes}"))?)?;
        expect_success("from the guest", guest.probe(&format!("tcp {their} {our} {bytes}"))?)?;
    }
    let padded = case.bursts.map(|bursts| exchange_bursts(case, bursts, ours)).transpose()?;
    Ok(format!("{out}; {back}{}", padded.unwrap_or_default()))
}

/// Sends bursts from our side. If Casemate is there, it has to pad packets. Returns the end of the summary.
fn exchange_bursts(case: &Case, bursts: Bursts, ours: &mut dyn Peer) -> Result<String> {
    let (our, their) = (Side::Ours.user(case), Side::Guest.user(case));
    let (count, sizes) = (bursts.count, bursts.sizes.join(" "));
    let probe = ours.probe(&format!("ping-bursts {our} {their} {count} {sizes}"))?;
    let said = expect_success("bursts from us", probe)?;
    match ours.padded()? {
        Some(0) => Err(Error::new("the case is not valid: Casemate padded none of the packets")),
        Some(packets) => Ok(format!("; {said}, {packets} requests padded")),
        None => Ok(format!("; {said}")),
    }
}

/// Returns the output of a probe that has to succeed. `direction` is for the error message.
fn expect_success(direction: &str, output: Output) -> Result<String> {
    let text = output.stdout.trim_end().to_owned();
    if output.status == 0 {
        Ok(text)
    } else {
        Err(Error::new(format!("{direction}: {text} (status {})", output.status)))
    }
}
