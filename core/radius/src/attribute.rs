//! Types of attributes, and values of those with a fixed set.

/// User-Name (RFC 2865 section 5.1).
pub(crate) const USER_NAME: u8 = 1;
/// NAS-IP-Address (RFC 2865 section 5.4).
pub(crate) const NAS_IP_ADDRESS: u8 = 4;
/// Service-Type (RFC 2865 section 5.6).
pub(crate) const SERVICE_TYPE: u8 = 6;
/// Framed-IP-Address (RFC 2865 section 5.8).
pub(crate) const FRAMED_IP_ADDRESS: u8 = 8;
/// Filter-Id (RFC 2865 section 5.11).
pub(crate) const FILTER_ID: u8 = 11;
/// State (RFC 2865 section 5.24).
pub(crate) const STATE: u8 = 24;
/// Class (RFC 2865 section 5.25).
pub(crate) const CLASS: u8 = 25;
/// Vendor-Specific (RFC 2865 section 5.26).
pub(crate) const VENDOR_SPECIFIC: u8 = 26;
/// Session-Timeout (RFC 2865 section 5.27).
pub(crate) const SESSION_TIMEOUT: u8 = 27;
/// Termination-Action (RFC 2865 section 5.29).
pub(crate) const TERMINATION_ACTION: u8 = 29;
/// Called-Station-Id (RFC 2865 section 5.30).
pub(crate) const CALLED_ID: u8 = 30;
/// Calling-Station-Id (RFC 2865 section 5.31).
pub(crate) const CALLING_ID: u8 = 31;
/// NAS-Identifier (RFC 2865 section 5.32).
pub(crate) const NAS_IDENTIFIER: u8 = 32;
/// Acct-Status-Type (RFC 2866 section 5.1).
pub(crate) const ACCT_STATUS_TYPE: u8 = 40;
/// Acct-Input-Octets (RFC 2866 section 5.3).
pub(crate) const ACCT_INPUT_OCTETS: u8 = 42;
/// Acct-Output-Octets (RFC 2866 section 5.4).
pub(crate) const ACCT_OUTPUT_OCTETS: u8 = 43;
/// Acct-Session-Id (RFC 2866 section 5.5).
pub(crate) const ACCT_SESSION_ID: u8 = 44;
/// Acct-Session-Time (RFC 2866 section 5.7).
pub(crate) const ACCT_SESSION_TIME: u8 = 46;
/// Acct-Input-Packets (RFC 2866 section 5.8).
pub(crate) const ACCT_INPUT_PACKETS: u8 = 47;
/// Acct-Output-Packets (RFC 2866 section 5.9).
pub(crate) const ACCT_OUTPUT_PACKETS: u8 = 48;
/// Acct-Terminate-Cause (RFC 2866 section 5.10).
pub(crate) const ACCT_TERMINATE_CAUSE: u8 = 49;
/// Acct-Input-Gigawords (RFC 2869 section 5.1).
pub(crate) const ACCT_INPUT_GIGAWORDS: u8 = 52;
/// Acct-Output-Gigawords (RFC 2869 section 5.2).
pub(crate) const ACCT_OUTPUT_GIGAWORDS: u8 = 53;
/// NAS-Port-Type (RFC 2865 section 5.41).
pub(crate) const NAS_PORT_TYPE: u8 = 61;
/// Tunnel-Type (RFC 2868 section 3.1): a tag and a number of three bytes.
pub(crate) const TUNNEL_TYPE: u8 = 64;
/// ESP in tunnel mode, a value of Tunnel-Type.
pub(crate) const ESP_TUNNEL: [u8; 3] = [0, 0, 9];
/// EAP-Message (RFC 3579 section 3.1).
pub(crate) const EAP_MESSAGE: u8 = 79;
/// Message-Authenticator (RFC 3579 section 3.2).
pub(crate) const MESSAGE_AUTHENTICATOR: u8 = 80;
/// Acct-Interim-Interval (RFC 2869 section 5.16).
pub(crate) const ACCT_INTERIM_INTERVAL: u8 = 85;
/// NAS-IPv6-Address (RFC 3162 section 2.1).
pub(crate) const NAS_IPV6_ADDRESS: u8 = 95;
/// Error-Cause (RFC 5176 section 3.5).
pub(crate) const ERROR_CAUSE: u8 = 101;
/// Framed-IPv6-Address (RFC 6911 section 3.1).
pub(crate) const FRAMED_IPV6_ADDRESS: u8 = 168;

/// Vendor of the MS-MPPE keys (RFC 2548).
pub(crate) const MICROSOFT: u32 = 311;
/// MS-MPPE-Send-Key (RFC 2548 section 2.4.2).
pub(crate) const MS_MPPE_SEND_KEY: u8 = 16;
/// MS-MPPE-Recv-Key (RFC 2548 section 2.4.3).
pub(crate) const MS_MPPE_RECV_KEY: u8 = 17;

/// Value of NAS-Port-Type: Virtual.
pub(crate) const VIRTUAL: u32 = 5;
/// Value of Service-Type: Framed.
pub(crate) const FRAMED: u32 = 2;
/// Event-Timestamp (RFC 2869 section 5.3).
pub(crate) const EVENT_TIMESTAMP: u8 = 55;
