//! ESP beside the bare cipher: sealing and opening, for each provider, suite and size.

use crate::bare::{self, Way};
use crate::report::{Entry, Report};
use crate::suites::{BATCH, SIZES, providers, suites};
use crate::tunnel;
use casemate_crypto::{EspSuite, Provider};

/// One row: what its figures have in common.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) provider: &'static dyn Provider,
    pub(crate) suite: EspSuite,
    pub(crate) way: Way,
    pub(crate) size: usize,
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    providers().into_iter().flat_map(|provider| {
        suites().into_iter().flat_map(move |suite| {
            let ways = Way::BOTH.into_iter();
            ways.flat_map(move |way| SIZES.map(|size| Row { provider, suite, way, size }))
        })
    })
}

/// Measures them all.
pub(crate) fn run(report: &mut Report<'_>) {
    for row in rows() {
        let name = format!("esp/{}", row.name());
        if report.wants(&name)
            && let Some(entries) = row.entries()
        {
            report.measure(&name, entries);
        }
    }
}

impl Row {
    /// Provider, suite, way, size.
    pub(crate) fn name(&self) -> String {
        let Self { provider, suite, way, size } = self;
        format!("{}/{suite}/{}/{size}", provider.name(), way.name())
    }

    /// The figures of the row; `None` if the provider does not have the suite.
    pub(crate) fn entries(&self) -> Option<Vec<Entry<'static>>> {
        let Self { provider, suite, way, size } = *self;
        Some(vec![
            Entry { label: "bare", base: None, load: bare::load(provider, suite, way, size, 1)? },
            Entry { label: "esp", base: Some(0), load: tunnel::load(provider, suite, way, size, 1)? },
            Entry { label: "bare-batch", base: None, load: bare::load(provider, suite, way, size, BATCH)? },
            Entry {
                label: "esp-batch",
                base: Some(2),
                load: tunnel::load(provider, suite, way, size, BATCH)?,
            },
        ])
    }
}
