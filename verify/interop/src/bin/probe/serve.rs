//! Executes scripts of the host, one at a time. The host side is `guest::control`.

use crate::tcp;
use casemate_interop::{Error, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = "/tmp/script";
const OUTPUT: &str = "/tmp/output";
/// The shell of busybox prefers its own `ip` to the one in the PATH.
const PROLOGUE: &[u8] = b"ip() { /sbin/ip \"$@\"; }\n";
const OUT_OF_TIME: i32 = 124;

/// Executes scripts until the port closes, which ends the guest.
pub(crate) fn serve(port: &str) -> Result<()> {
    let port = File::options().read(true).write(true).open(port).map_err(Error::context(port))?;
    let mut encapsulation = None;
    std::thread::spawn(tcp::serve_echo);
    let mut reader = BufReader::new(&port);
    answer(&port, 0, b"ready\n")?;
    while let Some((script, limit)) = request(&mut reader)? {
        let text = String::from_utf8_lossy(&script);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            // An IKE daemon in the guest opens these sockets itself.
            ["probe", "encap"] => {
                encapsulation = Some(tcp::open_encap_sockets()?);
                answer(&port, 0, b"")?;
            }
            // Starting a program is slow without hardware virtualization, so this process runs its own
            // commands.
            ["probe", words @ ..] if !text.contains('\n') => match crate::exchange(words) {
                Ok(said) => answer(&port, 0, said.as_bytes())?,
                Err(error) => answer(&port, 1, error.to_string().as_bytes())?,
            },
            _ => {
                fs::write(SCRIPT, [PROLOGUE, &script].concat()).map_err(Error::context(SCRIPT))?;
                let status = run(limit)?;
                answer(&port, status, &fs::read(OUTPUT).map_err(Error::context(OUTPUT))?)?;
            }
        }
    }
    drop(encapsulation);
    Ok(())
}

fn request(reader: &mut impl BufRead) -> Result<Option<(Vec<u8>, Duration)>> {
    let mut header = String::new();
    if reader.read_line(&mut header).map_err(Error::context("request"))? == 0 {
        return Ok(None);
    }
    let numbers = header
        .trim_end()
        .split_once(' ')
        .and_then(|(length, limit)| Some((length.parse::<usize>().ok()?, limit.parse::<u64>().ok()?)));
    let Some((length, limit)) = numbers else {
        return Err(Error::new(format!("malformed request: {header}")));
    };
    let mut script = vec![0; length];
    reader.read_exact(&mut script).map_err(Error::context("request"))?;
    Ok(Some((script, Duration::from_millis(limit))))
}

fn answer(mut port: &File, status: i32, output: &[u8]) -> Result<()> {
    let mut message = format!("{status} {}\n", output.len()).into_bytes();
    message.extend_from_slice(output);
    port.write_all(&message).map_err(Error::context("answer"))
}

/// Runs the script in a process group of its own, which is killed after the time limit.
fn run(limit: Duration) -> Result<i32> {
    let output = File::create(OUTPUT).map_err(Error::context(OUTPUT))?;
    let errors = output.try_clone().map_err(Error::context(OUTPUT))?;
    let mut command = Command::new("/bin/sh");
    command.arg(SCRIPT).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let mut child = command.spawn().map_err(Error::context("sh"))?;
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().map_err(Error::context("sh"))? {
            return Ok(code(status));
        }
        if start.elapsed() >= limit {
            let group = format!("-{}", child.id());
            let _ = Command::new("/bin/kill").args(["-KILL", "--", &group]).status();
            let _ = child.kill();
            let _ = child.wait();
            return Ok(OUT_OF_TIME);
        }
        std::thread::sleep(pause);
        pause = pause.saturating_mul(2).min(Duration::from_millis(4));
    }
}

/// Exit status as in a shell: 128 plus the signal for a process that a signal ended.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| signal.saturating_add(128))).unwrap_or(OUT_OF_TIME)
}
