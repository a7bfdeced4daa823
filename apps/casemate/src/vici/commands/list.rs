//! Commands that stream events.

use super::{Call, Outcome};
use crate::keyring::{ListedFile, ListedKind};
use crate::vici::ViciContext;
use crate::vici::message::MessageWriter;
use crate::vici::queries::{self, PolicyFilter};
use crate::vici::sas::{Children, SaView};
use crate::vici::server::empty;
use casemate_ike::IkeStatus;
use casemate_ike::config::Connection;
use casemate_pki::{dn_to_text, subject};
use std::sync::Arc;

fn configured(context: &ViciContext<'_, '_>) -> Vec<Arc<Connection>> {
    context.handle.lock().endpoint().ike().connections().to_vec()
}

/// `ike` and `child` select by name, `ike-id` and `child-id` by identifier.
pub(super) fn sas(Call { request, context, events, .. }: Call<'_, '_, '_>) -> Outcome {
    let is_it = |key: &str, value: &str| request.text(key).is_none_or(|wanted| wanted == value);
    let has_child = |sa: &IkeStatus| {
        let is_wanted = request.text("child").is_some() || request.text("child-id").is_some();
        !is_wanted
            || sa
                .children
                .iter()
                .any(|child| is_it("child", &child.child.name) && is_it("child-id", &child.id.to_string()))
    };
    let views = SaView::take(&context.handle.lock(), context.keyring, |sa| {
        is_it("ike", &sa.connection.name) && is_it("ike-id", &sa.id.to_string()) && has_child(sa)
    });
    for view in views {
        events.push(("list-sa", MessageWriter::message(|message| view.write(Children::All, message))));
    }
    Outcome::Response(empty())
}

pub(super) fn connections(Call { request, context, events, .. }: Call<'_, '_, '_>) -> Outcome {
    let is_wanted = |name: &str| request.text("ike").is_none_or(|wanted| wanted == name);
    for connection in configured(context).iter().filter(|connection| is_wanted(&connection.name)) {
        let write =
            |message: &mut MessageWriter| queries::write_connection(connection, context.keyring, message);
        events.push(("list-conn", MessageWriter::message(write)));
    }
    Outcome::Response(empty())
}

pub(super) fn policies(Call { request, context, events, .. }: Call<'_, '_, '_>) -> Outcome {
    let filter = PolicyFilter {
        drop: request.is_true("drop"),
        pass: request.is_true("pass"),
        trap: request.is_true("trap"),
        child: request.text("child"),
        ike: request.text("ike"),
    };
    queries::write_policies(&configured(context), filter, |message| events.push(("list-policy", message)));
    Outcome::Response(empty())
}

/// Certificates of this host, trusted CA certificates and CRLs.
pub(super) fn certificates(Call { request, context, events, .. }: Call<'_, '_, '_>) -> Outcome {
    let is_any =
        |wanted: &str, value: &str| wanted.eq_ignore_ascii_case("any") || wanted.eq_ignore_ascii_case(value);
    for ListedFile { der, kind, .. } in context.keyring.listed() {
        let (file_type, flag) = match kind {
            ListedKind::Own | ListedKind::Peer => ("X509", Some("NONE")),
            ListedKind::Authority => ("X509", Some("CA")),
            ListedKind::Crl => ("X509_CRL", None),
        };
        let name = || subject(der).and_then(dn_to_text);
        let is_wanted = request.text("type").is_none_or(|wanted| is_any(wanted, file_type))
            && request.text("flag").is_none_or(|wanted| is_any(wanted, flag.unwrap_or("ANY")))
            && request.text("subject").is_none_or(|wanted| name().as_deref() == Some(wanted));
        if !is_wanted {
            continue;
        }
        let message = MessageWriter::message(|message| {
            message.value("type", file_type);
            message.optional("flag", flag);
            message.flag("has_privkey", *kind == ListedKind::Own);
            message.value("data", der);
        });
        events.push(("list-cert", message));
    }
    Outcome::Response(empty())
}

pub(super) fn authorities(Call { server, request, events, .. }: Call<'_, '_, '_>) -> Outcome {
    let is_wanted = |name: &str| request.text("name").is_none_or(|wanted| wanted == name);
    let merged = server.loaded.merge(server.base.config());
    for authority in merged.authorities.iter().filter(|authority| is_wanted(&authority.name)) {
        let der = server.certificate(&authority.cacert);
        let name = der.as_deref().and_then(subject).and_then(dn_to_text);
        let message = MessageWriter::message(|message| {
            message.section(&authority.name, |section| {
                section.value("cacert", name.as_deref().unwrap_or(""));
                let crls = authority.crls.iter().map(|crl| format!("file://{}", crl.display()));
                section.list("crl_uris", crls.chain(authority.crl_uris.iter().map(ToString::to_string)));
                section.list("ocsp_uris", authority.ocsp_uris.iter().map(ToString::to_string));
            });
        });
        events.push(("list-authority", message));
    }
    Outcome::Response(empty())
}
