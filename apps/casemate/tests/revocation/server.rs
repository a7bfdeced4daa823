//! An HTTP server of a test: an OCSP responder, or a host with CRLs, with faults.

use crate::ca::Ca;
use crate::testnet::Host;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// An OCSP response by the database and the signer of these names, with more arguments of `openssl ocsp`.
    Ocsp { state: &'static str, signer: &'static str, more: &'static [&'static str] },
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of the path that is requested, such as `/ca.crl`.
    Files(Vec<(&'static str, Vec<u8>)>),
    /// A status line.
    Status(&'static str),
    /// Nothing, until the client gives up.
    Nothing,
}

impl Answer {
    /// A fresh response of the responder that the CA has authorized.
    pub(crate) const fn ocsp(state: &'static str) -> Self {
        Self::Ocsp { state, signer: "responder", more: &["-nmin", "60"] }
    }
}

/// A running server. Its threads end with the test.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    ca: Ca,
    answer: Mutex<Answer>,
    /// The first line of each request, and the last response.
    seen: Mutex<Vec<String>>,
    last: Mutex<Vec<u8>>,
}

impl Server {
    /// Starts a server on a host.
    pub(crate) fn start(host: &Host, addr: IpAddr, ca: &Ca, answer: Answer) -> Self {
        let listener = host.run(|| TcpListener::bind((addr, 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let (answer, seen, last) = (Mutex::new(answer), Mutex::default(), Mutex::default());
        let state = Arc::new(State { ca: ca.clone(), answer, seen, last });
        let serving = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = serving.clone();
                thread::spawn(move || state.serve(client));
            }
        });
        Self { addr, state }
    }

    pub(crate) fn answer_with(&self, answer: Answer) {
        *self.state.answer.lock().unwrap() = answer;
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.seen.lock().unwrap())
    }

    /// The body of the last response.
    pub(crate) fn last_response(&self) -> Vec<u8> {
        self.state.last.lock().unwrap().clone()
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) {
        let Some((line, body)) = read_request(&client) else { return };
        self.seen.lock().unwrap().push(line.clone());
        let answer = self.answer.lock().unwrap().clone();
        let body = match answer {
            Answer::Ocsp { state, signer, more } => self.ca.respond(&body, state, signer, more),
            Answer::Bytes(bytes) => bytes,
            Answer::Files(files) => {
                let file = files.into_iter().find(|(path, _)| line.split(' ').nth(1) == Some(path));
                file.map(|(_, bytes)| bytes).unwrap_or_default()
            }
            Answer::Status(status) => {
                let _ =
                    write!(client, "HTTP/1.1 {status}\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            Answer::Nothing => {
                let _ = client.read(&mut [0]);
                return;
            }
        };
        self.last.lock().unwrap().clone_from(&body);
        let _ = write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = client.write_all(&body);
    }
}

/// The first line and the body of a request.
fn read_request(client: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(client);
    let (mut first, mut len) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((first.trim().to_owned(), body))
}
