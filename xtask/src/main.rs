//! Tasks of the project: `cargo xtask --help`.
//!
//! Developers and `.ci/run` call it; `.ci/run` runs `cargo xtask ci`. A fresh machine builds it first, so
//! it has few dependencies. Every task works in any directory of the checkout and fails with a non-zero
//! status.

mod bare;
mod bench;
mod cargo;
mod debian;
mod interop;
mod jobs;
mod layers;
mod licences;
mod lwip;
mod package;
mod packages;
mod progress;
mod scenarios;
mod shell;
mod sizes;
mod sources;
mod stages;
mod style;
mod test;
mod workspace_tests;

use shell::{Failure, Result};
use std::process::ExitCode;

/// Task of the command line.
struct Task {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const TASKS: &[Task] = &[
    Task { name: "test", arguments: "", about: test::ABOUT, run: test::run },
    Task { name: "ci", arguments: "", about: test::CI_ABOUT, run: test::run_ci },
    Task { name: "layers", arguments: "", about: layers::ABOUT, run: layers::run },
    Task { name: "style", arguments: "", about: style::ABOUT, run: style::run },
    Task { name: "licences", arguments: "", about: licences::ABOUT, run: licences::run },
    Task { name: "lwip", arguments: "[--example]", about: lwip::ABOUT, run: lwip::run },
    Task { name: "no-std", arguments: "[--board NAME]", about: bare::NO_STD_ABOUT, run: bare::run_no_std },
    Task { name: "pi", arguments: "[--test]", about: bare::PI_ABOUT, run: bare::run_pi },
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
        name: "scenarios",
        arguments: "[--built] [OPTIONS] [FILTER...]",
        about: scenarios::ABOUT,
        run: scenarios::run,
    },
    Task {
        name: "firmware",
        arguments: "[--built] [--run [FILTER...]]",
        about: interop::FIRMWARE_ABOUT,
        run: interop::run_firmware,
    },
    Task {
        name: "cell",
        arguments: "[--repetitions N] [--tunnels N] [--seed N]",
        about: test::CELL_ABOUT,
        run: test::run_cell,
    },
    Task {
        name: "fuzz",
        arguments: "[--built] [--smoke] [--seconds N] [TARGET...]",
        about: test::FUZZ_ABOUT,
        run: test::run_fuzz,
    },
    Task {
        name: "package",
        arguments: "[--binary FILE] [--check | --check-unit]",
        about: package::ABOUT,
        run: package::run,
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
        return Err(Failure::new(format!("unknown task `{name}`; expected one of: {}", names.join(", "))));
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
    let mut text = String::from("Tasks of the project. Usage: cargo xtask TASK [ARGUMENTS]\n\n");
    for task in TASKS {
        let summary = task.about.lines().next().unwrap_or_default();
        text.push_str(&format!("  {:<9} {summary}\n", task.name));
    }
    text.push_str(
        "\n`cargo xtask TASK --help` describes a task. Run `cargo xtask ci` before a push; CI runs the same.\n",
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
    fn unknown_tasks_and_surplus_arguments_are_rejected() {
        assert!(dispatch(&["nonsense".into()]).is_err());
        assert!(dispatch(&["style".into(), "surplus".into()]).is_err());
    }
}
