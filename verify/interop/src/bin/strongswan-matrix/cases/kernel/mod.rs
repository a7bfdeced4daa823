//! strongSwan with the ESP and AH of a Linux kernel: ESP without UDP, transport mode, extended sequence numbers, AH.

mod life;
mod modes;
mod suites;

use super::{Case, demand};
use crate::arena::Arena;
use crate::packet::Packet;
use crate::plan::{CHILD, Plan};
use crate::side::Side;
use crate::strongswan::Esp;
use casemate_interop::{Error, Result};

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    life::add(cases, initiator);
    modes::add(cases, initiator);
    suites::add(cases, initiator);
}

/// How the packets of both SAs of a Child SA have to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// `esp` or `ah`.
    protocol: &'static str,
    /// `tunnel` or `transport`.
    mode: &'static str,
    esn: bool,
    in_udp: bool,
}

pub(super) const TUNNEL: Form = Form { protocol: "esp", mode: "tunnel", esn: false, in_udp: false };
pub(super) const TRANSPORT: Form = Form { mode: "transport", ..TUNNEL };

impl Form {
    /// Demands that every kernel has both SAs in this form, that they carried packets and refused none, and that no packet
    /// of another form was on the wire.
    fn demand(self, arena: &mut Arena) -> Result<()> {
        let child = arena.child_sa(Side::Right, CHILD)?;
        let kernels = arena.kernels()?;
        demand(!kernels.is_empty(), "no kernel speaks of its SAs: the case proves nothing")?;
        for (kernel, spi) in
            kernels.iter().flat_map(|kernel| [(kernel, &child.spi_in), (kernel, &child.spi_out)])
        {
            let state = kernel.states.iter().find(|state| state.spi == *spi);
            let state = state.ok_or_else(|| Error::new(format!("the kernel has no SA with SPI {spi}")))?;
            let (protocol, mode) = (state.protocol.as_str(), state.mode.as_str());
            let is_so = (protocol, mode, state.esn, state.in_udp)
                == (self.protocol, self.mode, self.esn, self.in_udp);
            demand(
                is_so && state.is_content && state.packets > 0,
                &format!("expected {self:?}, the kernel has {state:?}"),
            )?;
        }
        self.demand_on(arena)
    }

    /// Demands that all protected packets on the wire have this form.
    fn demand_on(self, arena: &Arena) -> Result<()> {
        let wire = arena.wire()?;
        let kind = match (self.protocol, self.in_udp) {
            ("ah", _) => Packet::Ah,
            (_, true) => Packet::EspInUdp,
            (_, false) => Packet::Esp,
        };
        let (all, right) = (wire.protected(), wire.count(kind));
        demand(
            all == right && all > 0,
            &format!("{right} of {all} protected packets are {kind:?}, expected all"),
        )
    }
}

/// A case in which the Child SA has this form when the script ends.
pub(super) fn case(
    name: &str,
    plan: Plan,
    form: Form,
    script: impl Fn(&mut Arena) -> Result<String> + Send + Sync + 'static,
) -> Case {
    let script = move |arena: &mut Arena| {
        let said = script(arena)?;
        form.demand(arena).map(|()| said)
    };
    let case = Case::new(&format!("kernel/{name}"), plan, script);
    Case { esp: Esp::Kernel, is_encrypted: form.protocol == "esp", ..case }
}
