//! What is measured in a turn.

pub(crate) mod echo;
pub(crate) mod small;
pub(crate) mod stream;

pub(crate) use casemate_stage::meter::Meter;
