//! Routes to the peer, and those that depend on the tunnel to it.

use casemate_linux::netlink::Netlink;
use casemate_linux::route_lookup::RouteTo;
use serde_json::{Value, json};
use std::net::IpAddr;

/// What is wrong with the route to the peer, and what to try.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misrouting {
    pub(super) cause: String,
    pub(super) advice: String,
}

/// A route to the peer that leads into a tunnel of the connection itself, or whose source is a virtual
/// address: one of those `assigned` to the TUN interface that no other interface has. `own` are those of all
/// interfaces.
pub(super) fn misrouted(
    report: &Value,
    routes: &[Value],
    assigned: &[IpAddr],
    own: &[IpAddr],
) -> Option<Misrouting> {
    let children = report.get("children").and_then(Value::as_array).into_iter().flatten();
    let tunnels: Vec<&str> = children
        .filter_map(|child| child.get("interface_out"))
        .chain(report.get("tun"))
        .filter_map(Value::as_str)
        .collect();
    let mut interfaces = routes.iter().filter_map(|route| route.get("interface")?.as_str());
    if let Some(interface) = interfaces.find(|name| tunnels.contains(name)) {
        return Some(Misrouting {
            cause: format!("the route to the peer leads into the tunnel itself ({interface})"),
            advice: "name the link in the route: `ip route replace default via ROUTER dev LINK`, or for the \
                     peer alone `ip route add PEER via ROUTER dev LINK`"
                .into(),
        });
    }
    let is_virtual =
        |addr: &IpAddr| assigned.contains(addr) && own.iter().filter(|own| *own == addr).count() == 1;
    let mut sources = routes.iter().filter_map(|route| route.get("source")?.as_str()?.parse().ok());
    sources.find(is_virtual).map(|source: IpAddr| Misrouting {
        cause: format!("packets to the peer would have the source {source}, a virtual address of the tunnel"),
        advice: "give the interface of the link an address, or name another source in the route with \
                 `src ADDRESS`"
            .into(),
    })
}

/// The route to an address, for packets with this mark.
pub(crate) fn route(netlink: &mut Netlink, addr: IpAddr, mark: u32) -> Value {
    match netlink.route_to(addr, mark) {
        Ok(Some(RouteTo { interface, gateway, source, .. })) => {
            let link = netlink.link_at(interface).ok();
            json!({
                "address": addr.to_string(),
                "interface": link.as_ref().map(|link| link.name.clone()),
                "mtu": link.map(|link| link.mtu),
                "gateway": gateway.map(|addr| addr.to_string()),
                "source": source.map(|addr| addr.to_string()),
            })
        }
        Ok(None) => json!({"address": addr.to_string(), "error": "no route"}),
        Err(error) => json!({"address": addr.to_string(), "error": error.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_into_the_tunnel_and_virtual_sources_are_found() {
        let report = json!({"tun": "casemate0", "children": [
            {"interface_out": "ipsec7"}, {"interface_out": null},
        ]});
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        let [virtual_addr, link_addr] = ["10.9.0.1", "192.0.2.2"].map(addr);
        let find = |interface: Option<&str>, source: &str, assigned: &[IpAddr]| {
            let route = json!({"address": "198.51.100.1", "interface": interface, "source": source});
            let own = [&[link_addr][..], assigned].concat();
            misrouted(&report, &[json!({"error": "no route"}), route], assigned, &own).map(|it| it.cause)
        };
        for interface in ["casemate0", "ipsec7"] {
            let found = find(Some(interface), "192.0.2.2", &[]).unwrap();
            assert!(found.ends_with(&format!("into the tunnel itself ({interface})")), "{found}");
        }
        let found = find(Some("eth0"), "10.9.0.1", &[virtual_addr]).unwrap();
        assert!(found.contains("the source 10.9.0.1, a virtual address"), "{found}");
        for interface in [Some("eth0"), Some("ipsec8"), None] {
            assert_eq!(find(interface, "192.0.2.2", &[virtual_addr]), None);
        }
        assert_eq!(find(Some("eth0"), "192.0.2.2", &[link_addr]), None, "the link has the address, too");
    }
}
