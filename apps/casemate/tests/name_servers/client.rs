//! A client with directories /etc and /run of its own, and the programs that manage name servers.

use crate::testnet::{Host, Running, eventually};
use casemate_test_support::{Process, Program, skip};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// What manages the name servers of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    /// systemd-resolved, with a D-Bus of its own.
    SystemdResolved,
    /// openresolv.
    Openresolv,
    /// Nothing but the file.
    None,
}

impl Manager {
    /// The directory of the unpacked Debian package; `None` if it is absent, which is noted.
    fn package(self) -> Option<PathBuf> {
        let (name, program) = match self {
            Self::SystemdResolved => ("systemd-resolved", "usr/bin/resolvectl"),
            Self::Openresolv => ("openresolv", "sbin/resolvconf"),
            Self::None => return Some(PathBuf::from("/nonexistent")),
        };
        // `cargo xtask test` unpacks the packages there.
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").join(name);
        let is_there = directory.join(program).exists();
        if !is_there {
            skip(format!("{name}: `cargo xtask test` unpacks it"));
        }
        is_there.then_some(directory)
    }

    /// Prepares the mount namespace. The arguments are a directory for files and the unpacked package.
    fn script(self) -> String {
        let common = "set -e; mkdir -p $1/etc; cp -a /etc/. $1/etc/; mount --bind $1/etc /etc\n\
                      mount -t tmpfs tmpfs /run; mkdir -m 700 /run/casemate\n\
                      rm -f /etc/resolv.conf; echo 'nameserver 192.0.2.53' >/etc/resolv.conf\n\
                      echo 'hosts: files dns' >/etc/nsswitch.conf\n";
        let own = match self {
            Self::None => "",
            Self::Openresolv => {
                "mount -t overlay -o lowerdir=$2/sbin:/usr/sbin overlay /usr/sbin\n\
                 mount -t overlay -o lowerdir=$2/lib:/usr/lib overlay /usr/lib\n\
                 cp $2/etc/resolvconf.conf /etc/\n\
                 echo 'nameserver 192.0.2.53' | resolvconf -a wire0\n"
            }
            Self::SystemdResolved => {
                "mount -t overlay -o lowerdir=$2/usr/bin:/usr/bin overlay /usr/bin\n\
                 mkdir -p /run/dbus /run/systemd/resolve\n\
                 id systemd-resolve >/dev/null 2>&1 || {\n\
                   echo 'systemd-resolve:x:990:990::/:/usr/sbin/nologin' >>/etc/passwd\n\
                   echo 'systemd-resolve:x:990:' >>/etc/group; }\n\
                 chown systemd-resolve: /run/systemd/resolve\n\
                 ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf\n\
                 dbus-daemon --config-file=$1/bus.conf --nofork --nopidfile &\n\
                 while ! [ -S /run/dbus/system_bus_socket ]; do sleep 0.01; done\n\
                 $2/lib/systemd/systemd-resolved &\n\
                 while ! resolvectl status >/dev/null 2>&1; do sleep 0.05; done\n"
            }
        };
        format!("{common}{own}echo ready; exec sleep 600")
    }
}

const BUS: &str = "<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>\
    <auth>EXTERNAL</auth><policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>\
    <allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>";

/// A host whose programs run in a mount namespace of their own.
pub(crate) struct Client<'n> {
    host: &'n Host,
    /// Ends the processes of the client with itself.
    namespace: Process,
}

impl<'n> Client<'n> {
    /// Prepares the client. `None` if a program is absent.
    pub(crate) fn new(host: &'n Host, manager: Manager) -> Option<Self> {
        let package = manager.package()?;
        let directory = host.file("client");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("bus.conf"), BUS).unwrap();
        let program = Program::new("unshare")
            .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c"])
            .arg(manager.script())
            .args(["sh".as_ref(), directory.as_os_str(), package.as_os_str()])
            .log_to(&directory.join("log"));
        let mut namespace = program.start_with(|command| host.netns.spawn(command));
        namespace.wait_for_line("ready", TIMEOUT);
        Some(Self { host, namespace })
    }

    /// The path of /etc/resolv.conf from outside.
    pub(crate) fn resolv_conf(&self) -> PathBuf {
        self.host.file("client").join("etc/resolv.conf")
    }

    fn program(&self, name: &str) -> Program {
        Program::new("nsenter").args(["--mount", "--target", &self.namespace.pid().to_string(), name])
    }

    pub(crate) fn output(&self, name: &str, args: &[&str]) -> Output {
        self.host.output_of(self.program(name).args(args))
    }

    /// Standard output of a program, whether it succeeds or not.
    pub(crate) fn stdout(&self, name: &str, args: &[&str]) -> String {
        String::from_utf8(self.output(name, args).stdout).unwrap()
    }

    /// Runs Casemate to its end.
    pub(crate) fn casemate(&self, args: &[&str]) -> Output {
        self.output(env!("CARGO_BIN_EXE_casemate"), args)
    }

    /// Starts `casemate run` with this configuration.
    pub(crate) fn run(&self, conf: &str) -> Running {
        fs::write(self.host.file("conf"), conf).unwrap();
        let program = self.program(env!("CARGO_BIN_EXE_casemate"));
        self.host.start(program.args(["run", "--config"]).arg(self.host.file("conf")))
    }

    /// The name servers in the status of the instance.
    pub(crate) fn name_servers(&self) -> Value {
        let output = self.casemate(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["name_servers"].clone()
    }

    /// Waits until this host uses these name servers.
    pub(crate) fn wait_for(&self, servers: &[&str], names: &[&str]) {
        let expected = |state: &Value| {
            let is_for = |domains: &Value| match names {
                ["*"] => state["all_names"] == true,
                names => *domains == Value::from(names) && state["all_names"] == false,
            };
            state["servers"] == Value::from(servers) && is_for(&state["domains"])
        };
        eventually(&format!("{servers:?} for {names:?}"), || expected(&self.name_servers()));
    }
}
