//! docs/manual/swanctl.md and docs/manual/cell.md against the code.

use super::super::schema::Rule;
use super::keys::SECTIONS;
use super::{ok, parse};
use std::collections::BTreeSet;
use std::path::Path;

fn page() -> String {
    manual("swanctl.md")
}

fn manual(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The configurations on a page.
fn examples(page: &str) -> Vec<&str> {
    page.split("\n```swanctl\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The cells of the table under a heading, by row.
fn rows<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = rest.split("\n#").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split(" |").map(str::trim).collect()).collect()
}

fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_key_is_documented() {
    const HEADINGS: [&str; 23] = [
        "## connections.NAME",
        "## connections.NAME.local",
        "## connections.NAME.remote",
        "### Certificates by a section",
        "## connections.NAME.children.NAME",
        "## secrets.ikeNAME",
        "## secrets.privateNAME",
        "## secrets.tokenNAME",
        "## pools.NAME",
        "## authorities.NAME",
        "## scheduler",
        "### The class low-latency",
        "### The other classes",
        "## performance",
        "### charon.plugins.eap-radius",
        "### charon.plugins.eap-radius.servers.NAME",
        "### charon.plugins.eap-radius.dae",
        "### charon.plugins.pkcs11",
        "### charon.plugins.pkcs11.modules.NAME",
        "### charon.plugins.revocation",
        "## cell",
        "### cell.etcd",
        "### cell.addresses.NAME",
    ];
    let page = [page(), manual("cell.md")].concat();
    for ((path, schema, ..), heading) in SECTIONS.iter().zip(HEADINGS) {
        let rows = rows(&page, heading);
        let named: BTreeSet<&str> = rows.iter().filter_map(|row| spans(row[0]).next()).collect();
        let keys: BTreeSet<&str> = schema.keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(named, keys, "{path}");
        for (key, rule) in schema.keys {
            let row = rows.iter().find(|row| row[0] == format!("`{key}`")).unwrap();
            let (Rule::OnlyNo(why) | Rule::Only(_, why) | Rule::Refused(why)) = rule else { continue };
            let (meaning, never) = (row[2], matches!(rule, Rule::Refused(_)));
            assert!(meaning.to_lowercase().contains(&why.to_lowercase()), "{path}.{key}: {meaning}");
            assert!(
                meaning.starts_with("refused") == never
                    && (never || meaning.contains("nly ") || *key == "version"),
                "{path}.{key}"
            );
        }
    }
}

#[test]
fn documented_examples_load() {
    let page = page();
    let blocks = examples(&page);
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        let config = ok(block);
        let scheduling = config.scheduling.map(|scheduling| scheduling.config.cap.rate);
        assert!(!config.connections.is_empty() || scheduling == Some(2_500_000));
        assert!(config.warnings.is_empty());
    }
}

/// The gateways of the manual are nodes of cells, and the values of the tables are the defaults.
#[test]
fn documented_cells_load() {
    let page = manual("cell.md");
    let cells: Vec<_> = examples(&page).into_iter().map(|block| (block, ok(block))).collect();
    assert_eq!(cells.len(), 4);
    for (block, config) in &cells {
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        let cell = config.cell.as_ref().unwrap();
        let (lease, deadline) = (cell.lease.as_secs(), cell.etcd.deadline.as_secs());
        for (heading, key, value) in
            [("## cell", "`lease`", lease), ("### cell.etcd", "`deadline`", deadline)]
        {
            let row = rows(&page, heading).into_iter().find(|row| row[0] == key).unwrap();
            assert!(row[1].starts_with(&format!("`{value}s`")), "{row:?}");
            assert!(!block.contains(&key.replace('`', "")), "{key} has its default in the example");
        }
    }
}

/// The example of two classes of service has the documented meaning.
#[test]
fn documented_classes_are_distinct() {
    let page = page();
    let (_, rest) = page.split_once("\n### Classes of service\n").unwrap();
    let block = rest.split("```swanctl\n").nth(1).unwrap().split("\n```").next().unwrap();
    let config = ok(block);
    let [bulk, voice] = &config.connections[0].children[..] else { panic!() };
    assert_eq!((&*bulk.name, &*voice.name), ("bulk", "voice"));
    assert_eq!((&bulk.local_ts, &bulk.remote_ts), (&voice.local_ts, &voice.remote_ts));
    assert!(bulk.dscp.is_empty() && bulk.start_action.on_traffic && voice.start_action.on_traffic);
    assert!(voice.dscp.iter().map(|dscp| dscp.value()).eq([40, 44, 46]));
}

#[test]
fn documented_proposal_words_are_known() {
    let page = page();
    let rows = rows(&page, "## Proposals");
    let words: Vec<&str> = rows.iter().flat_map(|row| spans(row[0])).collect();
    assert!(words.len() > 40, "{words:?}");
    for word in words {
        // A single word is not a complete proposal, but the error must not be that it is unknown.
        let why = casemate_strongswan::proposal::parse_esp(word).err().unwrap_or_default();
        assert!(!why.contains("names no algorithm") && !why.contains("not implemented"), "{word}: {why}");
    }
}

#[test]
fn documented_defaults_are_correct() {
    let page = page();
    for ((path, _, front, back), heading) in SECTIONS.iter().zip([
        "## connections.NAME",
        "## connections.NAME.local",
        "## connections.NAME.remote",
        "",
        "## connections.NAME.children.NAME",
    ]) {
        for row in if heading.is_empty() { Vec::new() } else { rows(&page, heading) } {
            let key = spans(row[0]).next().unwrap();
            let default = spans(row[1]).next().unwrap_or(row[1]);
            // Defaults that depend on other keys are not values.
            if default.is_empty()
                || default.contains(' ')
                || default.contains("over_time")
                || row[1].contains("less")
            {
                continue;
            }
            let given = parse(&format!("{front}\n{key} = {default}\n{back}"));
            let given = given.unwrap_or_else(|problems| panic!("{path}.{key}: {problems:?}"));
            let plain = ok(&format!("{front}\n{back}"));
            assert_eq!(format!("{given:?}"), format!("{plain:?}"), "{path}.{key} = {default}");
        }
    }
}
