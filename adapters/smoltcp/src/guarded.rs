//! The device.

use crate::exchange::Exchange;
use crate::outlet::Outlet;
use crate::road::{Found, Road, Setup};
use crate::time::from_smoltcp;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

/// Frames that one call may take from the device before one is for the stack.
const BURST: usize = 64;

/// A device whose packets are protected and checked as its [`Endpoint`]'s policies say.
pub struct Guarded<D: Exchange> {
    outlet: Outlet<D>,
    road: Road,
    /// The frame that came last.
    incoming: D::Buffer,
    /// The frame that goes next.
    outgoing: D::Buffer,
    /// A frame on its way up that was put together.
    whole: Box<[u8]>,
}

impl<D: Exchange> Guarded<D> {
    /// Puts a guard in front of a device, of Ethernet frames or of IP packets.
    pub fn new(mut device: D, setup: Setup) -> Self {
        let capabilities = device.device_capabilities();
        let road = Road::new(setup, &capabilities);
        let longest = road.longest_frame().max(capabilities.max_transmission_unit);
        let (incoming, outgoing) = (device.buffer(), device.buffer());
        let outlet = Outlet::new(device, road.queue());
        Self { outlet, road, incoming, outgoing, whole: vec![0; longest].into() }
    }

    /// Data path and IKE.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.road.endpoint
    }

    /// Data path and IKE, to add SAs and policies. Use [`replace_endpoint`](Self::replace_endpoint) for another endpoint.
    pub const fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.road.endpoint
    }

    /// Replaces the endpoint, with all its SAs, policies and IKE SAs. The data path of the new one is set up for this device, as
    /// [`new`](Self::new) does it.
    pub fn replace_endpoint(&mut self, endpoint: Endpoint) {
        let capabilities = self.outlet.device.device_capabilities();
        self.road.set_endpoint(endpoint, &capabilities);
    }

    /// The device below.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.outlet.device
    }

    pub(crate) const fn road_mut(&mut self) -> &mut Road {
        &mut self.road
    }

    /// The next frame for the stack.
    fn next(&mut self, now: Instant) -> Option<Found> {
        let Self { outlet, road, incoming, whole, .. } = self;
        let time = from_smoltcp(now);
        outlet.flush(now);
        road.expire(time);
        if let Some(len) = road.next_reply(whole) {
            return Some(Found { place: 0..len, put_together: true });
        }
        for _ in 0..BURST {
            let place = outlet.device.take_frame(now, incoming)?;
            if let Some(found) = road.receive(time, (incoming.as_mut(), place), whole) {
                return Some(found);
            }
        }
        None
    }
}

impl<D: Exchange> Device for Guarded<D> {
    type RxToken<'a>
        = Incoming<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a, D>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let Found { place, put_together } = self.next(now)?;
        let Self { outlet, road, incoming, outgoing, whole } = self;
        let frame = if put_together { whole.get(place) } else { D::Buffer::as_ref(incoming).get(place) };
        Some((Incoming(frame.unwrap_or_default()), Outgoing { outlet, road, outgoing, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        let Self { outlet, road, outgoing, .. } = self;
        // What waits goes first, and as long as it waits there is no room for more.
        outlet.flush(now).then_some(Outgoing { outlet, road, outgoing, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.outlet.device.device_capabilities();
        capabilities.max_transmission_unit = self.road.longest_frame();
        // A device cannot sum what it sees only in protected form.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// A frame for the stack: opened, if it was protected.
pub struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }

    fn meta(&self) -> PacketMeta {
        PacketMeta::default()
    }
}

/// Room for a frame of the stack, which is protected before it goes.
pub struct Outgoing<'a, D: Exchange> {
    outlet: &'a mut Outlet<D>,
    road: &'a mut Road,
    outgoing: &'a mut D::Buffer,
    now: Instant,
}

impl<D: Exchange> TxToken for Outgoing<'_, D> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.road.send((self.outlet, self.outgoing), self.now, len, f)
    }
}
