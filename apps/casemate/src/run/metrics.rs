//! The part of the controller that serves metrics.

use super::controller::RunController;
use crate::metrics::{MetricsAddress, MetricsChannel, MetricsCollector, ScrapeContext};
use casemate_linux::EndpointHandle;

impl RunController {
    /// Serves metrics at this address.
    pub(super) fn serve_metrics(&mut self, channel: MetricsChannel, address: &MetricsAddress) {
        let socket = match address {
            MetricsAddress::Unix(path) => Some(path.clone()),
            MetricsAddress::Loopback(_) => None,
        };
        self.metrics = Some(MetricsCollector::new(channel, socket));
    }

    /// Reads the next part of the values that clients wait for. The event loop processes packets before it
    /// calls this again for the following part.
    pub(super) fn collect_metrics(&mut self, handle: &EndpointHandle<'_>) {
        let Some(metrics) = &mut self.metrics else { return };
        let context = ScrapeContext {
            handle,
            lost_log_lines: self.log.lost_lines(),
            has_manual_keys: self.source.is_none(),
        };
        if metrics.step(&context) {
            self.control.wake_loop();
        }
    }
}
