//! Metrics for Prometheus and compatible programs, in the format of OpenMetrics 1.0 or in the text format
//! 0.0.4 of Prometheus, over HTTP on a Unix socket or a loopback port.
//!
//! `collector` runs in the event loop: it counts events and reads the values for a scrape, in parts between
//! which packets are processed, into a `snapshot`. `service` and `session` run in the control thread: they
//! read requests (`http`) and write the pages, which `exposition` makes piece by piece from a snapshot and
//! the table of all `families`. Labels are names of the configuration or of this program, never values of
//! peers, so their number is bounded ([0087](../../../../docs/decisions/0087-metrics.md)).

mod address;
mod collector;
mod event_counters;
mod exposition;
mod families;
mod http;
mod service;
mod session;
mod snapshot;

pub use address::MetricsAddress;
pub(crate) use address::MetricsListener;
pub(crate) use collector::{MetricsCollector, ScrapeContext};
pub use families::{FamilyDescription, families};
pub(crate) use service::{MetricsChannel, MetricsService};
