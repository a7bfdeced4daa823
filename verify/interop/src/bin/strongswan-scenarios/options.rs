//! Command line of the scenarios.

use clap::Parser;
use std::path::PathBuf;

/// Runs strongSwan's test scenarios with Casemate and charon in the roles of the hosts.
///
/// Each scenario runs with charon on all hosts, then with Casemate on each host in turn. Needs root, and
/// strongSwan's source tree.
#[derive(Debug, Parser)]
#[command(name = "strongswan-scenarios", disable_version_flag = true)]
pub(crate) struct Options {
    /// Source tree of strongSwan 5.9, which contains the directory `testing`
    #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "table"])]
    pub(crate) source: Option<PathBuf>,

    /// Program to test [default: in the directory of this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) casemate: Option<PathBuf>,

    /// Root directory with another strongSwan, whose charon takes part instead of the installed one
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Run this many scenarios in parallel
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) jobs: usize,

    /// Only check whether Casemate accepts the configurations
    #[arg(long)]
    pub(crate) accept: bool,

    /// Leave out the run with charon on all hosts
    #[arg(long)]
    pub(crate) without_reference: bool,

    /// Print one JSON object for each scenario
    #[arg(long)]
    pub(crate) json: bool,

    /// Leave out the scenarios of which an earlier run has a result
    #[arg(long)]
    pub(crate) resume: bool,

    /// Print the names of the scenarios
    #[arg(long)]
    pub(crate) list: bool,

    /// Print the results of earlier runs as a table in Markdown
    #[arg(long)]
    pub(crate) table: bool,

    /// Run the scenarios whose names contain every FILTER; `ikev2/` selects a category
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
}

impl Options {
    /// Whether the scenario is selected.
    pub(crate) fn selects(&self, full_name: &str) -> bool {
        let is_match = |filter: &String| match filter.strip_suffix('/') {
            Some(category) => full_name.split_once('/').is_some_and(|(own, _)| own == category),
            None => full_name.contains(filter.as_str()),
        };
        self.filters.iter().all(is_match)
    }
}
