//! The events that clients register for.

use super::ViciContext;
use super::message::MessageWriter;
use super::sas::{Children, SaView};
use super::server::ViciServer;
use crate::log::rate_limit::LogCategory;
pub(super) use casemate_ike::Event;
use casemate_ike::{ChildId, ChildState, ChildUp, DownReason, IkeSaId, IkeState, Path};

/// Events that do not concern one SA. The `list-` events and `control-log` belong to commands.
const OTHERS: [&str; 7] =
    ["log", "control-log", "list-sa", "list-policy", "list-conn", "list-cert", "list-authority"];

/// A Child SA has been installed, also as the successor of another one.
const CHILD_INSTALLED: &str = "child-state-installed";
/// Another Child SA has replaced this one.
const CHILD_REKEYED: &str = "child-state-rekeyed";
/// A Child SA has ended, also because another one has replaced it.
const CHILD_DESTROYING: &str = "child-state-destroying";

/// The events about SAs. The last three are not strongSwan's: FRR's nhrpd requires them, and Alpine Linux
/// adds them to charon.
pub(super) const ABOUT_SAS: [&str; 9] = [
    "ike-updown",
    "ike-rekey",
    "ike-update",
    "child-updown",
    "child-rekey",
    "alert",
    CHILD_INSTALLED,
    CHILD_REKEYED,
    CHILD_DESTROYING,
];

/// The event with this name, if there is one.
pub(super) fn known(name: &str) -> Option<&'static str> {
    OTHERS.into_iter().chain(ABOUT_SAS).find(|known| *known == name)
}

/// Puts events in charon's order: an IKE SA is up before its first Child SA.
pub(super) fn sort(events: &mut [Event]) {
    for place in 1..events.len() {
        let Some((Event::IkeUp { ike, .. }, before)) = events.get(..=place).and_then(<[Event]>::split_last)
        else {
            continue;
        };
        let is_child = |event: &Event| matches!(event, Event::ChildUp(up) if up.ike == *ike);
        if let Some(first) = before.iter().position(is_child)
            && let Some(part) = events.get_mut(first..=place)
        {
            part.rotate_right(1);
        }
    }
}

/// Sends what an event of IKE means to the clients that are registered for it.
pub(super) fn send(server: &mut ViciServer, event: &Event, context: &ViciContext<'_, '_>) {
    if !ABOUT_SAS.iter().any(|name| server.has_listener(name)) {
        return;
    }
    let look = |id: IkeSaId| SaView::of(&context.handle.lock(), context.keyring, id);
    match event {
        Event::IkeUp { ike, .. } => {
            if let Some(view) = look(*ike) {
                server.raise("ike-updown", &updown(true, &view, Children::Omitted));
                server.origins.insert(*ike, ());
                server.seen.insert(*ike, view);
            }
        }
        Event::IkeRekeyed { old, new } => {
            server.origins.rekeyed(*old, *new);
            let former = server.seen.remove(old).or_else(|| look(*old));
            let Some(view) = look(*new) else { return };
            server.raise("ike-rekey", &ike_rekey(former.as_ref(), &view));
            server.seen.insert(*new, view);
        }
        Event::IkeDown { ike, reason, .. } => {
            // If both hosts rekey at once, the redundant successor ends, and the peer stays connected.
            let stays_up =
                |other: &IkeSaId| look(*other).is_some_and(|view| view.status.state == IkeState::Established);
            let is_redundant =
                server.origins.members(*ike).iter().any(|other| other != ike && stays_up(other));
            server.origins.ended(*ike);
            let Some(mut view) = server.seen.remove(ike) else { return };
            view.status.state = IkeState::Closing;
            if let Some(kind) = alert(*reason) {
                server.raise("alert", &alert_message(kind, &view));
            }
            if *reason != DownReason::Replaced && !is_redundant {
                server.raise("ike-updown", &updown(false, &view, Children::Omitted));
            }
        }
        Event::ChildUp(up) => child_up(server, up, look(up.ike)),
        Event::ChildDown { id, reason, .. } => child_down(server, *id, *reason),
        Event::PathChanged { ike, path, .. } => {
            let Some(view) = look(*ike) else { return };
            server.raise("ike-update", &ike_update(path, server.seen.get(ike).unwrap_or(&view)));
            server.seen.insert(*ike, view);
        }
        _ => {}
    }
}

fn child_up(server: &mut ViciServer, up: &ChildUp, view: Option<SaView>) {
    let Some(view) = view else { return };
    server.raise(CHILD_INSTALLED, &updown(true, &view, Children::Only(up.id)));
    match up.replaces {
        None => server.raise("child-updown", &updown(true, &view, Children::Only(up.id))),
        Some(old) => {
            let before = server.seen.get(&up.ike);
            let message = MessageWriter::message(|message| {
                message.section(&view.status.connection.name, |section| {
                    view.write_fields(Children::Omitted, section);
                    view.write_rekeyed(up.id, old, before, section);
                });
            });
            server.raise("child-rekey", &message);
            server.raise(CHILD_REKEYED, &updown(true, &view, Children::Only(old)));
        }
    }
    server.seen.insert(up.ike, view);
}

fn child_down(server: &mut ViciServer, id: ChildId, reason: DownReason) {
    let has_child = |view: &&mut SaView| view.status.children.iter().any(|child| child.id == id);
    let Some(view) = server.seen.values_mut().find(has_child) else { return };
    let child = view.status.children.iter_mut().find(|child| child.id == id);
    child.into_iter().for_each(|child| child.state = ChildState::Closing);
    let message = updown(false, view, Children::Only(id));
    view.status.children.retain(|child| child.id != id);
    server.raise(CHILD_DESTROYING, &message);
    if reason != DownReason::Replaced {
        server.raise("child-updown", &message);
    }
}

fn updown(is_up: bool, view: &SaView, children: Children) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.flag("up", is_up);
        view.write(children, message);
    })
}

fn ike_rekey(former: Option<&SaView>, view: &SaView) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.section(&view.status.connection.name, |section| {
            if let Some(former) = former {
                section.section("old", |section| former.write_fields(Children::Omitted, section));
            }
            section.section("new", |section| view.write_fields(Children::Omitted, section));
        });
    })
}

/// The new addresses, and the IKE SA with the former ones.
fn ike_update(path: &Path, before: &SaView) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.display("local-host", path.local.ip());
        message.display("local-port", path.local.port());
        message.display("remote-host", path.remote.ip());
        message.display("remote-port", path.remote.port());
        before.write(Children::Omitted, message);
    })
}

/// strongSwan's name of the alert for this end of an IKE SA.
const fn alert(reason: DownReason) -> Option<&'static str> {
    match reason {
        DownReason::DeadPeer => Some("retransmit-send-timeout"),
        DownReason::Expired => Some("ike-sa-expired"),
        DownReason::InitialContact | DownReason::NotUnique => Some("unique-replace"),
        _ => None,
    }
}

fn alert_message(kind: &str, view: &SaView) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.value("type", kind);
        view.write(Children::Omitted, message);
    })
}

/// A `log` event, or without a thread a `control-log` event. Every line of the log has level 1.
pub(super) fn log_message(category: LogCategory, line: &str, with_thread: bool) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.value("group", group(category));
        message.value("level", "1");
        if with_thread {
            message.value("thread", "1");
        }
        message.value("msg", line);
    })
}

/// strongSwan's subsystem for a category of messages.
const fn group(category: LogCategory) -> &'static str {
    match category {
        LogCategory::Updown => "CHD",
        LogCategory::Program | LogCategory::Certificate | LogCategory::SavedKeys => "CFG",
        LogCategory::Sa | LogCategory::HalfOpen => "IKE",
        LogCategory::Audit(_) => "ESP",
        LogCategory::Fault(_) => "ENC",
        LogCategory::Moved | LogCategory::Retransmission => "NET",
        LogCategory::Acquire | LogCategory::Policy | LogCategory::System(_) => "KNL",
        LogCategory::Application => "APP",
    }
}
