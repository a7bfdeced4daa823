//! What is said of the numbers: tables of them, and whether they agree with the paper's.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Numbers in rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows; the paper's number of the table, if it has one.
    pub title: String,
    /// Headings, with units.
    pub columns: Vec<String>,
    /// Cells, as they are to be shown.
    pub rows: Vec<Vec<String>>,
}

/// Something that the paper says, and what it is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What it is about.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// What it is here.
    pub ours: String,
    /// Whether the two agree.
    pub agreement: Agreement,
    /// Why they do, or do not.
    pub why: String,
}

/// Whether the paper and this machine agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// They do.
    Agrees,
    /// They do not.
    Differs,
    /// It could not be measured here.
    NotMeasured,
}

impl Agreement {
    /// From a comparison that was made.
    pub const fn of(is_so: bool) -> Self {
        if is_so { Self::Agrees } else { Self::Differs }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::NotMeasured => "not measured",
        })
    }
}
