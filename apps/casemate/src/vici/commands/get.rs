//! Commands that respond with lists and counters.

use super::load::UNNAMED;
use super::{Call, Outcome, success};
use crate::vici::algorithms;
use crate::vici::message::MessageWriter;
use crate::vici::queries;
use casemate_ike::IkeStatus;
use casemate_sa::Instant;

fn response(fill: impl FnOnce(&mut MessageWriter)) -> Outcome {
    Outcome::Response(MessageWriter::message(fill))
}

pub(super) fn version(Call { server, .. }: Call<'_, '_, '_>) -> Outcome {
    response(|message| server.program.write_version(message))
}

pub(super) fn stats(Call { server, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let (uptime, total, half_open) = {
        let context = context.handle.lock();
        let ike = context.endpoint().ike();
        (context.now().since(Instant::ZERO), ike.ike_sa_count(), ike.half_open_count())
    };
    response(|message| server.program.write_stats(uptime, total, half_open, message))
}

pub(super) fn algorithms(Call { server, .. }: Call<'_, '_, '_>) -> Outcome {
    let provider = server.providers.first().map_or("", |provider| provider.name());
    response(|message| algorithms::write_supported(message, provider))
}

/// The connections of clients and those of the file: `swanctl --load-conns` unloads those that its file
/// does not have.
pub(super) fn connections(Call { context, .. }: Call<'_, '_, '_>) -> Outcome {
    let names: Vec<String> = {
        let context = context.handle.lock();
        context.endpoint().ike().connections().iter().map(|connection| connection.name.clone()).collect()
    };
    response(|message| message.list("conns", names))
}

pub(super) fn pools(Call { server, request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let sas: Vec<IkeStatus> = context.handle.lock().endpoint().ike().status().collect();
    let is_wanted = |name: &str| request.text("name").is_none_or(|wanted| wanted == name);
    response(|message| {
        for pool in server.pools.iter().filter(|pool| is_wanted(&pool.name)) {
            queries::write_pool(pool, &sas, request.is_true("leases"), message);
        }
    })
}

pub(super) fn authorities(Call { server, .. }: Call<'_, '_, '_>) -> Outcome {
    let merged = server.loaded.merge(server.base.config());
    response(|message| {
        message.list("authorities", merged.authorities.iter().map(|authority| authority.name.as_str()));
    })
}

/// Identifiers of the private keys that clients have loaded, not those of files: `swanctl --load-creds`
/// unloads those that it does not find.
pub(super) fn keys(Call { server, .. }: Call<'_, '_, '_>) -> Outcome {
    let ids = server.loaded.private_keys.keys().chain(server.loaded.tokens.keys());
    response(|message| message.list("keys", ids))
}

/// Identifiers of the shared keys that clients have loaded with one.
pub(super) fn shared_keys(Call { server, .. }: Call<'_, '_, '_>) -> Outcome {
    let ids = server.loaded.shared_keys.names().filter(|id| !id.starts_with(UNNAMED));
    response(|message| message.list("keys", ids))
}

/// Counters of the whole instance, or with `name` or `all` of each connection.
pub(super) fn counters(Call { server, request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let name = request.text("name").filter(|name| !name.is_empty());
    let messages = *context.handle.lock().endpoint().message_counters();
    response(|message| {
        message.section("counters", |section| {
            server.counters.write(name, request.is_true("all"), &messages, section);
        });
        message.value("success", "yes");
    })
}

pub(super) fn reset_counters(Call { server, request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let name = request.text("name").filter(|name| !name.is_empty());
    let messages = *context.handle.lock().endpoint().message_counters();
    server.counters.reset(name, request.is_true("all"), &messages);
    Outcome::Response(success())
}
