//! Session resumption (RFC 5723), between complete engines.
