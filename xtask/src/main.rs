//! The project's tasks, one file each: `cargo xtask --help`.
//!
//! Called by developers and by `.ci/run`, which runs `cargo xtask ci`. Builds first on a fresh machine, so it depends on
//! little. Every task works from any directory of the checkout and ends non-zero when something is wrong.

mod bare;
mod bench;
mod beside;
mod ci;
mod failure;
mod firmware;
mod fuzz;
mod interop;
mod layers;
mod licences;
mod lines;
mod lwip;
mod metadata;
mod no_std;
mod packages;
mod pi;
mod programs;
mod purity;
mod shell;
mod sizes;
mod sources;
mod spdx;
mod stages;
mod test;

use failure::{Failure, Result};
use std::process::ExitCode;

/// A task: its name, its arguments for the help, what it does, and the function.
struct Task {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const TASKS: &[Task] = &[
    Task { name: "test", arguments: "", about: test::ABOUT, run: test::run },
    Task { name: "ci", arguments: "", about: ci::ABOUT, run: ci::run },
    Task { name: "layers", arguments: "", about: layers::ABOUT, run: layers::run },
    Task { name: "lines", arguments: "", about: lines::ABOUT, run: lines::run },
    Task { name: "licences", arguments: "", about: licences::ABOUT, run: licences::run },
    Task { name: "lwip", arguments: "[--example]", about: lwip::ABOUT, run: lwip::run },
    Task { name: "no-std", arguments: "[--board NAME]", about: no_std::ABOUT, run: no_std::run },
    Task { name: "pi", arguments: "[--test]", about: pi::ABOUT, run: pi::run },
    Task {
        name: "sizes",
        arguments: "[--check | [--json] [PROCESSOR...]]",
        about: sizes::ABOUT,
        run: sizes::run,
    },
    Task {
        name: "interop",
        arguments: "[--built] [OPTIONS] [FILTER...]",
        about: interop::ABOUT,
        run: interop::run,
    },
    Task {
        name: "firmware",
        arguments: "[--built] [--run [FILTER...]]",
        about: firmware::ABOUT,
        run: firmware::run,
    },
    Task {
        name: "fuzz",
        arguments: "[--built] [--smoke] [--seconds N] [TARGET...]",
        about: fuzz::ABOUT,
        run: fuzz::run,
    },
    Task {
        name: "bench",
        arguments: "[tunnels [--fetch] | advise [--fetch] | handshakes | lwip | stack] [OPTIONS] [FILTER...]",
        about: bench::ABOUT,
        run: bench::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", help());
        return Ok(());
    };
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        print!("{}", help());
        return Ok(());
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        let names: Vec<_> = TASKS.iter().map(|task| task.name).collect();
        return Err(Failure::new(format!("no task `{name}`; expected one of: {}", names.join(", "))));
    };
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("cargo xtask {} {}\n\n{}", task.name, task.arguments, task.about);
        return Ok(());
    }
    if task.arguments.is_empty() && !rest.is_empty() {
        return Err(Failure::new(format!("`{name}` takes no arguments, got `{}`", rest.join(" "))));
    }
    (task.run)(rest)
}

fn help() -> String {
    let mut text = String::from("The project's tasks. Usage: cargo xtask TASK [ARGUMENTS]\n\n");
    for task in TASKS {
        let summary = task.about.lines().next().unwrap_or_default();
        text.push_str(&format!("  {:<9} {summary}\n", task.name));
    }
    text.push_str(
        "\n`cargo xtask TASK --help` says more. Before a push: `cargo xtask ci`, the same that CI runs.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_task() {
        let text = help();
        for task in TASKS {
            assert!(text.contains(task.name));
            assert!(!task.about.is_empty());
        }
    }

    #[test]
    fn unknown_tasks_and_needless_arguments_are_refused() {
        assert!(dispatch(&["nonsense".into()]).is_err());
        assert!(dispatch(&["lines".into(), "surplus".into()]).is_err());
    }
}
