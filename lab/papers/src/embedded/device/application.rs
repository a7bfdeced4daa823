//! The application alone: its sockets are those of `casemate stack`, another program.

use crate::embedded::order::{Duty, LEN, LONGEST, Order, PORT};
use casemate_shm::{Stack, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Serves until it fails or is ended. Says `ready` on standard output.
pub fn application(server: &Path) -> io::Result<()> {
    let stack = Stack::connect(server)?;
    let listener = TcpListener::bind(&stack, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT))?;
    println!("ready");
    loop {
        let (stream, _) = listener.accept()?;
        // One that breaks off is none of our business.
        std::thread::spawn(move || serve(&stream));
    }
}

fn serve(mut stream: &TcpStream) -> io::Result<()> {
    let mut order = [0; LEN];
    stream.read_exact(&mut order)?;
    let Some(Order { duty, size }) = Order::decode(order) else { return Ok(()) };
    let mut buffer = vec![0x5A; LONGEST];
    let message = buffer.get_mut(..size).unwrap_or_default();
    match duty {
        Duty::Answer => loop {
            stream.read_exact(message)?;
            stream.write_all(message)?;
        },
        Duty::Ask => loop {
            stream.write_all(message)?;
            stream.read_exact(message)?;
        },
        Duty::Give => loop {
            stream.write_all(message)?;
        },
        Duty::Take => {
            while stream.read(&mut buffer)? > 0 {}
            stream.finish()
        }
    }
}
