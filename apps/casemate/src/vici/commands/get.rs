//! Commands that respond with lists and counters.

use super::load::UNNAMED;
use super::{Outcome, SendEvent, success};
use crate::vici::ViciContext;
use crate::vici::algorithms;
use crate::vici::message::{MessageWriter, Section};
use crate::vici::queries;
use crate::vici::server::ViciServer;
use casemate_ike::IkeStatus;
use casemate_sa::Instant;

type Context<'c, 'a, 'h> = &'c mut ViciContext<'a, 'h>;

fn response(fill: impl FnOnce(&mut MessageWriter)) -> Outcome {
    Outcome::Response(MessageWriter::message(fill))
}

pub(super) fn version(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    response(|message| server.program.write_version(message))
}

pub(super) fn stats(
    server: &mut ViciServer,
    _: &Section,
    context: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let (uptime, total, half_open) = {
        let context = context.handle.lock();
        let ike = context.endpoint().ike();
        (context.now().since(Instant::ZERO), ike.ike_sa_count(), ike.half_open_count())
    };
    response(|message| server.program.write_stats(uptime, total, half_open, message))
}

pub(super) fn algorithms(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let provider = server.providers.first().map_or("", |provider| provider.name());
    response(|message| algorithms::write_supported(message, provider))
}

/// The connections of clients and those of the file: `swanctl --load-conns` unloads those that its file
/// does not have.
pub(super) fn connections(
    _: &mut ViciServer,
    _: &Section,
    context: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let names: Vec<String> = {
        let context = context.handle.lock();
        context.endpoint().ike().connections().iter().map(|connection| connection.name.clone()).collect()
    };
    response(|message| message.list("conns", names))
}

pub(super) fn pools(
    server: &mut ViciServer,
    request: &Section,
    context: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let sas: Vec<IkeStatus> = context.handle.lock().endpoint().ike().status().collect();
    let is_wanted = |name: &str| request.text("name").is_none_or(|wanted| wanted == name);
    response(|message| {
        for pool in server.pools.iter().filter(|pool| is_wanted(&pool.name)) {
            queries::write_pool(pool, &sas, request.is_true("leases"), message);
        }
    })
}

pub(super) fn authorities(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let merged = server.loaded.merge(server.base.config());
    response(|message| {
        message.list("authorities", merged.authorities.iter().map(|authority| authority.name.as_str()));
    })
}

/// Identifiers of the private keys that clients have loaded, not those of files: `swanctl --load-creds`
/// unloads those that it does not find.
pub(super) fn keys(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    response(|message| message.list("keys", server.loaded.private_keys.keys()))
}

/// Identifiers of the shared keys that clients have loaded with one.
pub(super) fn shared_keys(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let ids = server.loaded.shared_keys.names().filter(|id| !id.starts_with(UNNAMED));
    response(|message| message.list("keys", ids))
}

/// Counters of the whole instance, or with `name` or `all` of each connection.
pub(super) fn counters(
    server: &mut ViciServer,
    request: &Section,
    context: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let name = request.text("name").filter(|name| !name.is_empty());
    let messages = *context.handle.lock().endpoint().message_counters();
    response(|message| {
        message.section("counters", |section| {
            server.counters.write(name, request.is_true("all"), &messages, section);
        });
        message.value("success", "yes");
    })
}

pub(super) fn reset_counters(
    server: &mut ViciServer,
    request: &Section,
    context: Context<'_, '_, '_>,
    _: SendEvent<'_>,
) -> Outcome {
    let name = request.text("name").filter(|name| !name.is_empty());
    let messages = *context.handle.lock().endpoint().message_counters();
    server.counters.reset(name, request.is_true("all"), &messages);
    Outcome::Response(success())
}
