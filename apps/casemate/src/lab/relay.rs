//! `casemate lab relay`: the data path that `streams` takes apart, from a file for `ip xfrm`.

use super::args::RelayArgs;
use super::manual;
use crate::failure::Failure;
use casemate_lab::streams::relay;
use casemate_sa::Limits;

/// Runs until it fails or is ended.
pub(super) fn relay(args: &RelayArgs) -> Result<(), Failure> {
    let datapath = args.xfrm.as_deref().map(|path| manual::load(path, Limits::DEVICE)).transpose()?;
    relay::relay(args.end, args.wiring, datapath).map_err(Failure::failed)
}
