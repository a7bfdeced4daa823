//! Finds the program that holds a UDP port, for the error message of a start that fails.
//!
//! The kernel reveals it in two steps: `/proc/net/udp` lists the sockets of a network namespace with their
//! inodes (proc(5)), and `/proc/PID/fd` the sockets of each process. Without root, the sockets of other users
//! stay hidden.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process with a socket on the port.
#[derive(Debug, PartialEq, Eq)]
struct PortHolder {
    pid: u32,
    /// The kernel's name of the process (proc(5), `comm`).
    name: String,
}

/// Says which process of this network namespace holds a UDP port, for the end of a sentence.
pub(crate) fn describe(port: u16) -> String {
    match find(port) {
        Some(PortHolder { pid, name }) => {
            format!("{name} (process {pid}) has it; stop that program first")
        }
        None => "another program has it; `ss --udp --listening --processes` shows which".into(),
    }
}

fn find(port: u16) -> Option<PortHolder> {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let tables = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let links: Vec<String> = tables
        .flat_map(|table| table.lines().filter_map(|line| inode(line, port)).collect::<Vec<_>>())
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| has_descriptor(*pid, &links)).map(|pid| PortHolder { pid, name: name(pid) })
}

/// The inode of the socket in a line of `/proc/net/udp`, if it is bound to this port.
fn inode(line: &str, port: u16) -> Option<u64> {
    let mut fields = line.split_whitespace();
    let (_, bound) = fields.nth(1)?.rsplit_once(':')?;
    // After the local address: remote address, state, queues, timer, retransmissions, user, timeout.
    let inode = fields.nth(7)?;
    (u16::from_str_radix(bound, 16) == Ok(port)).then(|| inode.parse().ok()).flatten()
}

fn has_descriptor(pid: u32, links: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| links.iter().any(|link| target.as_os_str().as_bytes() == link.as_bytes()))
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    name.map_or_else(|_| "a program".into(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_line_of_the_socket_table() {
        let line = "  424: 00000000:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 51234 2";
        assert_eq!(inode(line, 500), Some(51_234));
        assert_eq!(inode(line, 4_500), None);
        let v6 = "  1: 00000000000000000000000000000000:1194 0000:0000 07 0:0 00:0 0 0 0 77 2 0 0";
        assert_eq!(inode(v6, 4_500), Some(77));
        let heading =
            "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode";
        assert_eq!([inode(heading, 0), inode("", 0), inode("1: 00:01F4", 500)], [None; 3]);
    }

    #[test]
    fn the_holder_is_named() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            let port = socket.local_addr().unwrap().port();
            let described = describe(port);
            assert!(described.contains(&format!("(process {})", std::process::id())), "{described}");
            drop(socket);
            assert!(describe(port).starts_with("another program"), "{address}");
        }
    }
}
