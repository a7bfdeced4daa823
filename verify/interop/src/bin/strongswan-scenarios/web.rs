//! Web server of the host winnetou: files on port 80, such as CRLs, and OCSP on ports of their own.
//!
//! The OCSP responders are scripts of the test suite, with another path of their directory.

use casemate_interop::{Error, Netns, Result};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a request.
const MAX_REQUEST: u64 = 65_536;

/// Content of a port.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Files of a directory.
    Files(PathBuf),
    /// Output of a script in bash, which reads the request.
    Script(String),
}

/// Running servers. They end when the value is dropped.
pub(crate) struct WebServer {
    ports: Vec<(Arc<TcpListener>, Option<JoinHandle<()>>)>,
    replaced: Arc<Replaced>,
}

/// Paths under which other files are served, with the paths of these files.
type Replaced = Mutex<BTreeMap<String, String>>;

impl WebServer {
    /// Starts a server for each port in the namespace of a host.
    pub(crate) fn start(netns: &Netns, contents: Vec<(u16, Content)>) -> Result<Self> {
        let mut ports = Vec::new();
        let replaced = Arc::<Replaced>::default();
        for (port, content) in contents {
            let listener = netns
                .run_in(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?
                .map_err(Error::context(format!("port {port}")))?;
            let listener = Arc::new(listener);
            let (served, paths) = (listener.clone(), replaced.clone());
            ports.push((listener, Some(std::thread::spawn(move || serve(&served, &content, &paths)))));
        }
        Ok(Self { ports, replaced })
    }

    /// Serves another file under a path from now on.
    pub(crate) fn replace(&self, file: &str, path: &str) {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.insert(format!("/{path}"), format!("/{file}"));
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        for (listener, thread) in &mut self.ports {
            // `accept` fails from now on.
            let _ = SockRef::from(listener.as_ref()).shutdown(Shutdown::Both);
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(listener: &TcpListener, content: &Content, replaced: &Replaced) {
    while let Ok((client, _)) = listener.accept() {
        // A client that ends early, or does not speak HTTP, gets no response.
        let _ = respond(client, content, replaced);
    }
}

fn respond(mut client: TcpStream, content: &Content, replaced: &Replaced) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(client.try_clone()?.take(MAX_REQUEST));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let path = replaced.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned().unwrap_or(path);
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    let response = match content {
        Content::Files(directory) => file(directory, &path).map(|bytes| ("application/octet-stream", bytes)),
        Content::Script(script) => run(script, &body).map(|bytes| ("application/ocsp-response", bytes)),
    };
    let (status, kind, bytes) = match response {
        Some((kind, bytes)) => ("200 OK", kind, bytes),
        None => ("404 Not Found", "text/plain", Vec::new()),
    };
    let length = bytes.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    client.write_all(&bytes)
}

/// Returns the file of a path below the directory.
fn file(directory: &Path, path: &str) -> Option<Vec<u8>> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = path.components().all(|component| matches!(component, Component::Normal(_)));
    if is_below { fs::read(directory.join(path)).ok() } else { None }
}

/// Returns the output of a script of the interface CGI without its header.
fn run(script: &str, body: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    child.stdin.take()?.write_all(body).ok()?;
    let output = child.wait_with_output().ok()?.stdout;
    let end = output.windows(2).position(|pair| pair == b"\n\n")?;
    output.get(end.saturating_add(2)..).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_directory_are_served() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(file(directory, "/Cargo.toml").is_some());
        assert!(file(directory, "/../interop/Cargo.toml").is_none() && file(directory, "/missing").is_none());
    }

    #[test]
    fn scripts_read_the_request() {
        assert_eq!(run("echo 'Content-type: x'; echo; cat", b"request").as_deref(), Some(&b"request"[..]));
        assert_eq!(run("exit 1", b""), None);
    }
}
