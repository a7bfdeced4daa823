//! `casemate inspect`: says of each packet in a capture what the data path makes of it.

mod engine;
mod report;
mod sight;

use crate::capture::{CaptureError, NotIp, Reader, Writer, ip_packet};
use crate::cli::InspectArgs;
use crate::failure::Failure;
use crate::ike::decode::Decoder;
use crate::ike::keys::KeyTable;
use crate::xfrm::XfrmFile;
use engine::{Engine, Verdict};
use report::{Outcome, Report};
use sight::ike_message;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Inspects a capture; lines go to standard output, the summary and warnings to standard error.
pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let engine = match &args.xfrm {
        Some(path) => engine(path, !args.no_replay)?,
        None => Engine::new(&XfrmFile::default(), Path::new(""), !args.no_replay)?,
    };
    let ike = Decoder::new(args.ike_keys.as_deref().map(ike_keys).transpose()?.unwrap_or_default());
    let wrong_capture = |why: String| Failure::bad_input(format!("{}: {why}", args.capture.display()));
    // Before anything is written, so that a wrong name destroys nothing.
    let reader = Reader::new(open(&args.capture)?).map_err(|error| wrong_capture(error.to_string()))?;
    let opened = args.write.as_deref().map(|path| create(path, &args.capture)).transpose()?;
    let report = Report::new(BufWriter::new(io::stdout().lock()), args.json);
    let mut inspection = Inspection { engine, ike, report, opened };
    let end = inspection.run(reader);
    let end = end.and(inspection.finish());
    if !matches!(end, Err(Stop::Closed)) {
        eprintln!("casemate: {}", inspection.report.summary());
    }
    match end {
        Ok(()) | Err(Stop::Closed) => Ok(()),
        Err(Stop::Output(error)) => Err(Failure::failed(format!("output: {error}"))),
        Err(Stop::Capture(why)) => Err(wrong_capture(why)),
    }
}

/// The data path with the states of the file at `path`.
fn engine(path: &Path, check_replay: bool) -> Result<Engine, Failure> {
    let file = XfrmFile::load(path).map_err(Failure::bad_input)?;
    for warning in file.warnings_at(path) {
        eprintln!("casemate: warning: {warning}");
    }
    Engine::new(&file, path, check_replay)
}

/// The keys in the file at `path`, with a warning for each row that is not used.
fn ike_keys(path: &Path) -> Result<KeyTable, Failure> {
    let table = KeyTable::load(path).map_err(Failure::bad_input)?;
    for warning in table.warnings_at(path) {
        eprintln!("casemate: warning: {warning}");
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
        Err(error) => Err(Failure::bad_input(format!("{}: {error}", path.display()))),
    }
}

/// Creates the capture of opened packets, which must not be the one that is read.
fn create(path: &Path, capture: &Path) -> Result<Writer<BufWriter<File>>, Failure> {
    if let (Ok(output), Ok(input)) = (path.canonicalize(), capture.canonicalize())
        && output == input
    {
        return Err(Failure::bad_input(format!(
            "--write {}: another file than the capture was expected",
            path.display()
        )));
    }
    // Opened packets are for this user alone, unless the file is there already.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let created = file.map(BufWriter::new).and_then(Writer::new);
    created.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// Why an inspection ends early.
enum Stop {
    /// The capture is wrong.
    Capture(String),
    /// The result cannot be written.
    Output(io::Error),
    /// Nobody reads the result any more, as after `| head`.
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
    engine: Engine,
    ike: Decoder,
    report: Report<O>,
    opened: Option<Writer<W>>,
}

impl<O: Write, W: Write> Inspection<O, W> {
    fn run(&mut self, mut reader: Reader<impl Read>) -> Result<(), Stop> {
        while let Some(frame) = reader.next_frame()? {
            match ip_packet(frame.link, frame.data) {
                Ok(packet) => self.packet(frame.number, frame.nanos, packet)?,
                Err(NotIp::Other) => self.report.tell(frame.number, &Outcome::Other)?,
                Err(NotIp::Cut { captured, expected }) => {
                    self.report.tell(frame.number, &Outcome::Cut { captured, expected })?;
                }
                Err(unknown @ NotIp::LinkType(_)) => {
                    return Err(Stop::Capture(format!("packet {}: {unknown}", frame.number)));
                }
            }
        }
        Ok(())
    }

    fn packet(&mut self, number: u64, nanos: u64, packet: &[u8]) -> io::Result<()> {
        let (sight, verdict) = self.engine.take(nanos, packet);
        if let (Verdict::Clear | Verdict::Ike, Some(message)) = (&verdict, ike_message(packet)) {
            let message = self.ike.read(message);
            return self.report.tell(number, &Outcome::Ike(sight, message));
        }
        let outcome = Outcome::Packet(sight, verdict);
        if let (Outcome::Packet(_, Verdict::Ok(inner)), Some(opened)) = (&outcome, &mut self.opened) {
            let (spi, seq) = sight.protection.unwrap_or_default();
            opened.packet(nanos, inner, &format!("packet {number}, spi {spi:#010x} seq {seq}"))?;
        }
        self.report.tell(number, &outcome)
    }

    /// Writes out what is still in buffers, after an error too: all that was found out counts.
    fn finish(&mut self) -> Result<(), Stop> {
        self.report.flush()?;
        match self.opened.take() {
            Some(opened) => Ok(opened.finish()?),
            None => Ok(()),
        }
    }
}
