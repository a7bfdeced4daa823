//! `casemate inspect`: shows the verdict of the data path on each packet of a capture.

mod datapath;
pub mod ike;
mod outer_headers;
mod report;

use crate::capture::{CaptureError, CaptureReader, CaptureWriter, NotIp, ip_packet};
use crate::failure::Failure;
use crate::output;
use crate::xfrm::XfrmFile;
use casemate_rohc::MAX_CID;
use clap::Args;
use datapath::{CaptureDatapath, SaOptions, Verdict};
use ike::decode::Decoder;
use ike::key_table::KeyTable;
use outer_headers::{Protection, ike_message};
use report::{FrameOutcome, PacketReport};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const INSPECT_EXAMPLES: &str = "\
Examples:
  casemate inspect wire.pcapng --xfrm tunnel.xfrm
  casemate inspect wire.pcapng --ike-keys ikev2_decryption_table
  casemate inspect wire.pcapng --xfrm tunnel.xfrm --json | jq 'select(.verdict == \"drop\")'
  casemate inspect wire.pcap --xfrm tunnel.xfrm --write clear.pcapng && wireshark clear.pcapng
  tcpdump -w - esp | casemate inspect - --xfrm tunnel.xfrm

Verdicts:
  ok         decrypted and verified; `inner` is the IP packet that would be delivered
  drop       dropped; `reason` is a drop reason of `casemate status`
  clear      not protected
  held       a fragment, held until its datagram is complete
  dummy      a dummy packet (traffic flow confidentiality), without content
  rohc-feedback  feedback of header compression, without a packet
  keepalive  a NAT keepalive
  ike        an IKE message (UDP ports 500 and 4500); --ike-keys decrypts its encrypted payloads
  cut        captured only in part (use a larger snap length)
  other      not an IP packet, such as ARP

A compressed header (ROHC) is restored. A capture that begins in the middle of a flow lacks its context: packets
are dropped (rohc-failed) until the sender repeats the whole header.

Packets are processed in order, so the second copy of a packet is a replay. Policies in the file are ignored.
Lifetimes are ignored too, because the traffic before the capture is unknown.";

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
#[command(group(clap::ArgGroup::new("keys").required(true).multiple(true).args(["xfrm", "ike_keys"])))]
pub struct InspectArgs {
    /// Capture file (pcap or pcapng); `-` reads standard input.
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// States as lines of ip-xfrm(8).
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
    /// Keys of IKE SAs as rows of Wireshark's ikev2_decryption_table.
    #[arg(long, value_name = "FILE")]
    pub ike_keys: Option<PathBuf>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// Write the decrypted packets to a capture file.
    #[arg(long, value_name = "OUT.pcapng")]
    pub write: Option<PathBuf>,
    /// Disable replay protection.
    #[arg(long)]
    pub no_replay: bool,
    /// Highest context number of header compression (ROHC), as in rohc_max_cid of the receiver.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_CID)))]
    pub rohc_max_cid: u16,
}

/// Runs `casemate inspect`. Lines go to standard output, the summary and warnings to standard error.
pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let options = SaOptions { check_replay: !args.no_replay, rohc_max_cid: args.rohc_max_cid };
    let datapath = match &args.xfrm {
        Some(path) => datapath(path, options)?,
        None => CaptureDatapath::new(&XfrmFile::default(), Path::new(""), options)?,
    };
    let ike = Decoder::new(args.ike_keys.as_deref().map(ike_keys).transpose()?.unwrap_or_default());
    let wrong_capture = |why: String| Failure::bad_input(format!("{}: {why}", args.capture.display()));
    // The capture is opened before the output file is created, so that a wrong name does not truncate a
    // file.
    let reader =
        CaptureReader::new(open(&args.capture)?).map_err(|error| wrong_capture(error.to_string()))?;
    let opened = args.write.as_deref().map(|path| create(path, &args.capture)).transpose()?;
    let report = PacketReport::new(BufWriter::new(io::stdout().lock()), args.json);
    let mut inspection = Inspection { datapath, ike, report, opened };
    let end = inspection.run(reader);
    let end = end.and(inspection.finish());
    if !matches!(end, Err(Stop::Closed)) {
        output::show_error(&format_args!("casemate: {}", inspection.report.summary()));
    }
    match end {
        Ok(()) | Err(Stop::Closed) => Ok(()),
        Err(Stop::Output(error)) => Err(Failure::failed(format!("output: {error}"))),
        Err(Stop::Capture(why)) => Err(wrong_capture(why)),
    }
}

/// Makes the data path with the states of the file at `path`.
fn datapath(path: &Path, options: SaOptions) -> Result<CaptureDatapath, Failure> {
    let file = XfrmFile::load(path).map_err(Failure::bad_input)?;
    for warning in file.warnings_at(path) {
        output::warn(&warning);
    }
    CaptureDatapath::new(&file, path, options)
}

/// Reads the IKE keys in the file at `path` and prints a warning for each skipped row.
fn ike_keys(path: &Path) -> Result<KeyTable, Failure> {
    let table = KeyTable::load(path).map_err(Failure::bad_input)?;
    for warning in table.warnings_at(path) {
        output::warn(&warning);
    }
    Ok(table)
}

/// Opens the capture; `-` is standard input.
fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 16, file))),
        Err(error) => Err(Failure::bad_input(format!(
            "{}: {error}: a capture in the format pcap or pcapng, or `-` for standard input, was expected",
            path.display()
        ))),
    }
}

/// Creates the capture of decrypted packets, which must not be the input capture.
fn create(path: &Path, capture: &Path) -> Result<CaptureWriter<BufWriter<File>>, Failure> {
    if let (Ok(output), Ok(input)) = (path.canonicalize(), capture.canonicalize())
        && output == input
    {
        return Err(Failure::bad_input(format!(
            "--write {}: another file than the capture was expected",
            path.display()
        )));
    }
    // The decrypted packets are readable by this user only, unless the file exists already.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let created = file.map(BufWriter::new).and_then(CaptureWriter::new);
    created.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// Why an inspection ends early.
enum Stop {
    /// The capture is malformed.
    Capture(String),
    /// Writing the result failed.
    Output(io::Error),
    /// The reader of the result has closed it, as `| head` does.
    Closed,
}

impl From<CaptureError> for Stop {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Output(error) }
    }
}

struct Inspection<O: Write, W: Write> {
    datapath: CaptureDatapath,
    ike: Decoder,
    report: PacketReport<O>,
    opened: Option<CaptureWriter<W>>,
}

impl<O: Write, W: Write> Inspection<O, W> {
    fn run(&mut self, mut reader: CaptureReader<impl Read>) -> Result<(), Stop> {
        while let Some(frame) = reader.next_frame()? {
            match ip_packet(frame.link, frame.data) {
                Ok(packet) => self.packet(frame.number, frame.nanos, packet)?,
                Err(NotIp::Other) => self.report.add(frame.number, &FrameOutcome::Other)?,
                Err(NotIp::Cut { captured, expected }) => {
                    self.report.add(frame.number, &FrameOutcome::Cut { captured, expected })?;
                }
                Err(unknown @ NotIp::LinkType(_)) => {
                    return Err(Stop::Capture(format!("packet {}: {unknown}", frame.number)));
                }
            }
        }
        Ok(())
    }

    fn packet(&mut self, number: u64, nanos: u64, packet: &[u8]) -> io::Result<()> {
        let (headers, verdict) = self.datapath.process(nanos, packet);
        if let (Verdict::Clear | Verdict::Ike, Some(message)) = (&verdict, ike_message(packet)) {
            let message = self.ike.read(message);
            return self.report.add(number, &FrameOutcome::Ike(headers, message));
        }
        let outcome = FrameOutcome::Packet(headers, verdict);
        if let (FrameOutcome::Packet(_, Verdict::Ok(inner, _)), Some(opened)) = (&outcome, &mut self.opened) {
            let sa = headers.protection.map_or_else(String::new, |Protection { spi, seq, .. }| {
                format!(", spi {spi:#010x} seq {seq}")
            });
            opened.packet(nanos, inner, &format!("packet {number}{sa}"))?;
        }
        self.report.add(number, &outcome)
    }

    /// Flushes the outputs, after an error too, so that all results so far are kept.
    fn finish(&mut self) -> Result<(), Stop> {
        self.report.flush()?;
        match self.opened.take() {
            Some(opened) => Ok(opened.finish()?),
            None => Ok(()),
        }
    }
}
