//! Child SAs that move to another path: their peer is behind a NAT, or one of the hosts has another address.
//! Keys, sequence numbers and replay windows stay.

use super::group::{HAS_GROUP, first_addr, group_value, peer_key};
use super::{Children, OutboundSa};
use casemate_datapath::{Datapath, SaId, SaPath};
use casemate_ike::{ChildId, Path, Routes};
use casemate_sa::UdpEncap;
use casemate_wire::invariant::OrBroken;
use core::net::{IpAddr, SocketAddr};

impl Children {
    /// Moves Child SAs to a new path of their IKE SA.
    pub(crate) fn move_to_path(
        &mut self,
        children: &[ChildId],
        path: Path,
        udp_encap: bool,
        datapath: &mut Datapath,
        routes: &dyn Routes,
    ) {
        let (local, remote) = (path.local, path.remote);
        let Self { installed, groups, by_peer, .. } = self;
        for id in children {
            let Some(child) = installed.get_mut(*id) else { continue };
            let path = |src: SocketAddr, dst: SocketAddr| {
                let ports = UdpEncap { src_port: src.port(), dst_port: dst.port() };
                let encap = Some(ports).filter(|_| udp_encap);
                SaPath { src: src.ip(), dst: dst.ip(), encap }
            };
            let outward = path(local, remote);
            match &mut child.outbound {
                OutboundSa::Active(id) => {
                    datapath.move_sa(*id, outward);
                    set_link_mtu(datapath, *id, remote.ip(), routes);
                }
                OutboundSa::Pending(sa) => {
                    (sa.src, sa.dst, sa.encap) = (outward.src, outward.dst, outward.encap)
                }
                OutboundSa::Removed => {}
            }
            datapath.move_sa(child.inbound, path(remote, local));
            // Later Child SAs for the same traffic look for the group at the new address of the peer.
            let Some(group) = groups.get_mut(child.group).or_report(HAS_GROUP) else { continue };
            let (first, before) =
                (first_addr(&group.remote), core::mem::replace(&mut group.peer, remote.ip()));
            by_peer.remove(&peer_key(first, before), group_value(child.group));
            by_peer.insert(&peer_key(first, group.peer), group_value(child.group));
            let encap_port = Some(remote.port()).filter(|_| udp_encap);
            group.host = group.host.map(|_| encap_port.into());
        }
    }
}

/// Sets the MTU of the link towards the peer of an outbound SA.
pub(super) fn set_link_mtu(datapath: &mut Datapath, id: SaId, peer: IpAddr, routes: &dyn Routes) {
    if let Some(mtu) = routes.link_mtu(peer) {
        datapath.set_sa_link_mtu(id, mtu);
    }
}
