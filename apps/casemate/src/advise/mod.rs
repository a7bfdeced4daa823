//! `casemate advise`: which settings to use on this device, because of which measurements. The work is that of the crate
//! `casemate-advise`; here it gets the program's own providers.

pub mod args;
mod manual;
mod masked;

use crate::failure::Failure;
use crate::providers;
use args::{AdviseArgs, Lines};
use casemate_advise::answer::Answer;
use casemate_advise::goal::{Mix, UseCase};
use casemate_advise::measure::{Effort, Session, key_exchanges};
use casemate_advise::probe::Device;
use casemate_advise::rank::{Spot, rank};
use casemate_advise::rules::{Filter, Keying, Profile};
use casemate_advise::settings::Settings;
use casemate_advise::suites;
use casemate_advise::thorough::{self, Length, Question, Thorough};
use casemate_crypto::Provider;
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;
use indicatif::ProgressBar;

/// Steps of the progress bar.
const STEPS: f64 = 1_000.0;

/// Advises.
pub fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let as_if = args.as_if.unwrap_or_default();
    if as_if.no_aes && !masked::is_masked()? {
        return masked::run_masked();
    }
    let answer = answer(args)?;
    let output = match args.lines {
        Some(Lines::Swanctl) => answer.settings.swanctl(),
        Some(Lines::Xfrm) => manual::lines(&answer)?.to_string(),
        None if args.json => format!("{:#}\n", answer.json(args.explain)),
        None => answer.text(args.explain),
    };
    print!("{output}");
    Ok(())
}

fn answer(args: &AdviseArgs) -> Result<Answer, Failure> {
    let as_if = args.as_if.unwrap_or_default();
    let profile = args.profile.as_deref().map(Profile::named).transpose().map_err(Failure::bad_input)?;
    let filter = Filter::new(profile, args.integrity_only).map_err(Failure::bad_input)?;
    let keying = if args.lines == Some(Lines::Xfrm) { Keying::Manual } else { Keying::Negotiated };
    let sorted = suites::sort(&filter, keying);
    let device = Device::probe();
    let slower = as_if.slower(device.clock_mhz).map_err(Failure::failed)?;
    let (providers, use_case) = (providers_for(as_if.no_aes), use_case(args));
    let effort = if args.quick { Effort::QUICK } else { Effort::USUAL };
    let session = Session { providers: &providers, use_case: &use_case, goal: args.goal, effort, slower };
    // It is hidden where standard error is no terminal.
    let bar = ProgressBar::new(STEPS as u64);
    let found = session.measure(&sorted.candidates, |share| bar.set_position((share * STEPS) as u64));
    bar.finish_and_clear();
    let spots =
        sorted.candidates.iter().filter_map(|one| Spot::of(one, &found.finalists, args.goal, &use_case));
    let places = rank(spots.collect(), args.goal);
    let kex = key_exchanges(&providers, slower);
    let settings = Settings::of(&places, &found.finalists, &kex, &filter, &use_case).ok_or_else(|| {
        Failure::failed("the rules leave no suite that a provider here has: see --profile and --lines")
    })?;
    let mut answer = Answer {
        device,
        as_if,
        providers: names(&providers),
        goal: args.goal,
        use_case,
        filter,
        sorted,
        found,
        places,
        kex,
        settings,
        thorough: None,
        besides: Vec::new(),
    };
    if args.thorough {
        answer.thorough = Some(end_to_end(&answer));
    }
    answer.besides.extend(masked::what_if(args, &answer));
    Ok(answer)
}

/// Measures the best ones through two gateways that are this program. Why it could not be done is part of the answer.
fn end_to_end(answer: &Answer) -> Result<Thorough, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = program.parent().ok_or("this program is in no directory")?;
    let bar = ProgressBar::new_spinner();
    let Answer { places, goal, use_case, settings, .. } = answer;
    let tell = |what: &str| bar.set_message(what.to_owned());
    let question = Question { places, goal: *goal, mix: &use_case.mix, settings };
    let found = thorough::measure(&question, directory, Length::USUAL, tell);
    bar.finish_and_clear();
    found.map_err(|error| error.to_string())
}

/// The packets and their way.
fn use_case(args: &AdviseArgs) -> UseCase {
    UseCase {
        mix: args.packet_size.map_or_else(Mix::simple, |size| Mix::single(size.into())),
        mode: if args.host_to_host { Mode::Transport } else { Mode::Tunnel },
        version: if args.ipv6 { IpVersion::V6 } else { IpVersion::V4 },
        behind_nat: args.nat,
    }
}

/// Those of `casemate run`. Without AES instructions only AWS-LC can be measured here: the others ask the processor.
fn providers_for(no_aes: bool) -> Vec<&'static dyn Provider> {
    if no_aes { vec![&casemate_aws_lc::AWS_LC] } else { providers::modern() }
}

/// Those at hand, the preferred one first, and why Intel's library is not among them.
fn names(providers: &[&dyn Provider]) -> Vec<String> {
    let names = providers.iter().map(|provider| provider.name().to_owned());
    let absent = casemate_ipsec_mb::IPSEC_MB.available().err().map(|why| format!("no ipsec-mb ({why})"));
    names.chain(absent).collect()
}
