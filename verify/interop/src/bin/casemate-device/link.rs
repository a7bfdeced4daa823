//! The link: plain Ethernet, or Ethernet with one neighbour whose address is known. The second kind needs
//! no ARP and no neighbour discovery, which the policies of the peer might drop.

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress};
use std::str::FromStr;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac([u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: expected an Ethernet address such as 02:00:00:00:00:01");
        let mut parts = text.split(':');
        let mut mac = [0; 6];
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(mac)) }
    }
}

const HEADER: usize = 14;
/// Destination and source address of the Ethernet header.
type Addresses = [u8; 12];

/// An Ethernet device. With a fixed neighbour it is presented as a device for IP packets.
pub(crate) struct Link<D> {
    device: D,
    own: Mac,
    fixed: Option<Addresses>,
}

impl<D: Device> Link<D> {
    pub(crate) fn new(device: D, own: Mac, neighbour: Option<Mac>) -> Self {
        let fixed = neighbour.map(|neighbour| {
            let mut addresses = [0; 12];
            addresses.iter_mut().zip(neighbour.0.iter().chain(&own.0)).for_each(|(to, from)| *to = *from);
            addresses
        });
        Self { device, own, fixed }
    }

    /// Returns the hardware address for an interface on this link.
    pub(crate) const fn hardware(&self) -> HardwareAddress {
        match self.fixed {
            Some(_) => HardwareAddress::Ip,
            None => HardwareAddress::Ethernet(EthernetAddress(self.own.0)),
        }
    }
}

impl<D: Device> Device for Link<D> {
    type RxToken<'a>
        = Received<D::RxToken<'a>>
    where
        Self: 'a;
    type TxToken<'a>
        = Room<D::TxToken<'a>>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let (rx, tx) = self.device.receive(now)?;
        let skipped = if self.fixed.is_some() { HEADER } else { 0 };
        Some((Received { token: rx, skipped }, Room { token: tx, fixed: self.fixed }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        Some(Room { token: self.device.transmit(now)?, fixed: self.fixed })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.device.capabilities();
        if self.fixed.is_some() {
            capabilities.max_transmission_unit = capabilities.ip_mtu();
            capabilities.medium = Medium::Ip;
        }
        capabilities
    }
}

/// A received frame.
pub(crate) struct Received<T> {
    token: T,
    skipped: usize,
}

impl<T: RxToken> RxToken for Received<T> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        // Without the header, ARP frames look like IP packets of an unknown version, which are dropped.
        self.token.consume(|frame| f(frame.get(self.skipped..).unwrap_or_default()))
    }
}

/// Permission to send a frame.
pub(crate) struct Room<T> {
    token: T,
    fixed: Option<Addresses>,
}

impl<T: TxToken> TxToken for Room<T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Some(addresses) = self.fixed else { return self.token.consume(len, f) };
        self.token.consume(len.saturating_add(HEADER), |frame| {
            let (front, packet) = frame.split_at_mut(HEADER.min(frame.len()));
            let written = f(packet);
            let kind =
                if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xDD] } else { [8, 0] };
            front.iter_mut().zip(addresses.iter().chain(&kind)).for_each(|(to, from)| *to = *from);
            written
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_have_six_bytes() {
        assert_eq!("02:00:00:00:0a:Ff".parse(), Ok(Mac([2, 0, 0, 0, 10, 255])));
        for wrong in ["", "02", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:0g"]
        {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
