//! Packet overhead and number of calls, computed: table 3, figures 2 and 3.

use crate::Context;
use casemate_calls::codec::{Codec, Stream};
use casemate_calls::packet::PacketFormat;
use casemate_calls::paper::{FIGURE_3, INTERVAL, LINE, PAYLOAD, PacketType, Row, figure_3_suites};
use casemate_calls::plan::{Plan, increase};
use casemate_calls::scheme::{self, Scheme, SchemeOptions};
use casemate_measure::report::{Agreement, Axis, Figure, Finding, Part, Point, Series, Shape, Table};
use casemate_sa::Mode;
use casemate_testbed::Result;
use casemate_wire::ip::{IpVersion, v4};

/// Runs the step.
pub(super) fn parts(_: &Context) -> Result<Vec<Part>> {
    Ok(vec![calls(), growth()])
}

fn calls() -> Part {
    let exact = PacketType::ALL.map(PacketType::exact);
    let printed = PacketType::ALL.map(PacketType::printed);
    let bars = |rows: &[Row]| -> Vec<Point> {
        rows.iter().enumerate().map(|(place, row)| Point::at(place as f64, row.packet as f64)).collect()
    };
    let figure = Figure {
        title: "Figure 2: packets with 40 bytes of speech".into(),
        caption: "Bytes of a whole IP packet.".into(),
        x: Axis::names("packet", PacketType::ALL.map(PacketType::name)),
        y: Axis::linear("bytes"),
        series: vec![
            Series::paper("printed in Table 3", Shape::Bars, bars(&printed)),
            Series::ours("from the formats", Shape::Bars, bars(&exact)),
        ],
    };
    Part {
        title: "Packets and calls".into(),
        text: "Computed for 40 bytes of speech, 50 packets per second, on 128 kbit/s, over IPv4. The \
             second table has the suites of Casemate and the packet lengths of its data path."
            .into(),
        figures: vec![figure],
        tables: vec![table_3(), today()],
        findings: vec![calls_finding(&printed, &exact), lengths_finding()],
        ..Part::default()
    }
}

fn table_3() -> Table {
    let cells = |name: &str, row: Row| {
        let Row { header, packet, ratio, increase, reduction, calls } = row;
        let percent = |number: u32| format!("{number} %");
        vec![
            name.to_owned(),
            header.to_string(),
            packet.to_string(),
            percent(ratio),
            percent(increase),
            percent(reduction),
            calls.to_string(),
        ]
    };
    let rows = PacketType::ALL.into_iter().flat_map(|kind| {
        [
            cells(&format!("{}, printed", kind.name()), kind.printed()),
            cells(&format!("{}, exact", kind.name()), kind.exact()),
        ]
    });
    let columns =
        ["packet", "header, bytes", "length, bytes", "speech", "larger than cRTP", "bandwidth lost", "calls"];
    Table {
        title: "Table 3, as printed and from the formats".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

/// Common ways to send a call, with the paper's packets and with two codecs.
fn today() -> Table {
    let streams: Vec<Stream> = Stream::new(PAYLOAD, INTERVAL)
        .into_iter()
        .chain(["g729", "g711"].into_iter().filter_map(|name| Codec::named(name)?.stream(None).ok()))
        .collect();
    let row = |Scheme { name, protection }: Scheme| {
        let wire = PacketFormat { version: IpVersion::V4, protection, link: 0 };
        let cells = streams.iter().flat_map(|stream| {
            let plan = Plan { line_rate: LINE, stream: *stream, packet_len: wire.packet_len(stream.payload) };
            [plan.packet_len.to_string(), plan.calls().to_string()]
        });
        std::iter::once(name).chain(cells).collect()
    };
    let options = SchemeOptions { mode: Mode::Tunnel, encap: false, has_udp_checksum: true };
    let columns = ["packet", "40 bytes", "calls", "G.729A, 20 bytes", "calls", "G.711, 160 bytes", "calls"];
    Table {
        title: "The same line today".into(),
        columns: columns.map(String::from).to_vec(),
        rows: scheme::common(options).into_iter().map(row).collect(),
    }
}

fn calls_finding(printed: &[Row; 4], exact: &[Row; 4]) -> Finding {
    let list = |rows: &[Row; 4]| rows.map(|row| row.calls.to_string()).join(", ");
    Finding {
        what: "calls on 128 kbit/s: cRTP, IP, DES, 3DES+SHA".into(),
        paper: list(printed),
        ours: list(exact),
        agreement: Agreement::of(list(printed) == list(exact)),
        why: "The number of calls is the line rate divided by the rate of one call, rounded down. Two \
             more bytes do not change it."
            .into(),
    }
}

fn lengths_finding() -> Finding {
    let wrong = || PacketType::ALL.into_iter().filter(|kind| kind.misprint().is_some());
    let list = |row: fn(PacketType) -> Row| {
        wrong().map(|kind| format!("{} {}", kind.name(), row(kind).packet)).collect::<Vec<_>>().join(", ")
    };
    Finding {
        what: "lengths of protected packets, in bytes".into(),
        paper: list(PacketType::printed),
        ours: list(PacketType::exact),
        agreement: Agreement::of(wrong().next().is_none()),
        why: format!(
            "Misprints: {}. 82 bytes are padded to 88, a multiple of the cipher's 8.",
            wrong().find_map(PacketType::misprint).unwrap_or_default()
        ),
    }
}

fn growth() -> Part {
    let line = |name: &str, len: &dyn Fn(usize) -> usize| {
        let points = (FIGURE_3[0]..=FIGURE_3[8]).step_by(50);
        Series::ours(
            name,
            Shape::Line,
            points.map(|size| Point::at(size as f64, increase(len(size), size) * 100.0)),
        )
    };
    let suites = figure_3_suites();
    let mut series: Vec<Series> = suites
        .iter()
        .map(|(name, esp)| line(name, &|size| esp.protected_len(size, v4::HEADER_LEN)))
        .collect();
    if let Some(gcm) = esp_of("aes128gcm16") {
        series.push(line("aes128gcm16", &|size| gcm.protected_len(size, v4::HEADER_LEN)));
    }
    Part {
        title: "How much packets grow".into(),
        text: "Computed for an ESP tunnel over IPv4. The steps are caused by padding to whole blocks.".into(),
        figures: vec![Figure {
            title: "Figure 3: increase of packet size".into(),
            caption: "The paper draws one line for DES, 3DES and NULL+SHA and one for 3DES+SHA.".into(),
            x: Axis::linear("original size, bytes"),
            y: Axis::linear("increase, %"),
            series,
        }],
        findings: growth_findings(),
        ..Part::default()
    }
}

fn esp_of(words: &str) -> Option<casemate_calls::packet::Esp> {
    let suite = casemate_calls::scheme::parse_suite(words).ok()?;
    Some(casemate_calls::packet::Esp { sizes: suite.into(), mode: Mode::Tunnel, encap: false })
}

fn growth_findings() -> Vec<Finding> {
    let [(_, des), (_, three), (_, null), (_, both)] = figure_3_suites();
    let len = |esp: casemate_calls::packet::Esp, size| esp.protected_len(size, v4::HEADER_LEN);
    let sizes = || FIGURE_3[0]..=FIGURE_3[8];
    let apart = sizes().map(|size| len(des, size).abs_diff(len(null, size))).max().unwrap_or(0);
    let is_same = sizes().all(|size| len(des, size) == len(three, size));
    let share = |size| (increase(len(both, size), size) - increase(len(des, size), size)) * 100.0;
    let (small, large) = (share(FIGURE_3[0]), share(FIGURE_3[8]));
    vec![
        Finding {
            what: "DES, 3DES and NULL+SHA give packets of the same size".into(),
            paper: "one line".into(),
            ours: format!("DES and 3DES one line, NULL+SHA within {apart} bytes of it"),
            agreement: Agreement::of(is_same && apart <= 8),
            why: "The 8 bytes of the IV cost about as much as the 12 bytes of the ICV; NULL pads to 4 \
                 bytes, the ciphers to 8."
                .into(),
        },
        Finding {
            what: "cost of SHA in addition to 3DES, as a share of the packet".into(),
            paper: "negligible as packets grow".into(),
            ours: format!("{small:.0} % of 60 bytes, {large:.1} % of 1,260"),
            agreement: Agreement::of(large < 1.0),
            why: "12 bytes for packets of every size; for voice packets they are not negligible.".into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_and_computed_rows_are_compared() {
        let part = calls();
        assert_eq!(part.findings[0].paper, "7, 4, 2, 2");
        let agreement: Vec<Agreement> = part.findings.iter().map(|finding| finding.agreement).collect();
        assert_eq!(agreement, [Agreement::Agrees, Agreement::Differs]);
        assert_eq!(part.findings[1].ours, "IPsec DES 124, IPsec 3DES+SHA 136");
        assert_eq!(part.tables[0].rows.len(), 8);
        assert!(
            part.tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len()))
        );
    }

    #[test]
    fn relative_overhead_falls_with_size() {
        let part = growth();
        assert_eq!(part.figures[0].series.len(), 5);
        for series in &part.figures[0].series {
            let (first, last) = (series.points.first().unwrap(), series.points.last().unwrap());
            assert!(first.y > 10.0 * last.y, "{}", series.name);
        }
        assert!(
            part.findings.iter().all(|finding| finding.agreement == Agreement::Agrees),
            "{:?}",
            part.findings
        );
    }
}
