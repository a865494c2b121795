//! `kube-canary demo`: the mesh of processes and its table.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::{Domain, Socket, Type};

use crate::agent::directory;
use crate::common::children::{Seen, children};
use crate::common::process::{Process, unique};
use crate::common::until::{until, until_so};
use crate::shim::PLAIN;

/// All demos have the same addresses, so only one runs at a time.
static ONE: Mutex<()> = Mutex::new(());

struct Demo {
    process: Process,
    output: PathBuf,
}

impl Demo {
    fn start(port: &Port, seconds: &str) -> Self {
        let output = unique(directory(), "out");
        let mut command = Command::new(PLAIN);
        command.args(["demo", "--nodes", "3", "--interval", "100ms", "--seconds", seconds]);
        command
            .args(["--port", &port.number.to_string()])
            .stdout(File::create(&output).expect("our directory is writable"));
        Self { process: Process::start(&mut command, directory()), output }
    }

    /// The rows of the first table in which every agent has answered and measured.
    fn rows(&mut self) -> Vec<Vec<String>> {
        until("a table without gaps", || {
            let text = fs::read_to_string(&self.output).unwrap_or_default();
            assert!(!self.process.has_ended(), "{text}{}", self.process.log());
            let tables = text.split_inclusive("Ctrl-C").filter(|table| table.ends_with("Ctrl-C"));
            let rows = |table: &str| -> Vec<Vec<String>> {
                let rows = table.lines().filter(|line| line.starts_with("node"));
                rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
            };
            let has_gap = |rows: &Vec<Vec<String>>| rows.iter().flatten().any(|word| word == "-" || word == "–");
            tables.map(rows).find(|rows| !has_gap(rows)).ok_or_else(|| text.clone())
        })
    }
}

/// A port that is free on the addresses of a demo of three nodes, as is the one after it. Both stay
/// free.
struct Port {
    number: u16,
    _held: Vec<Socket>,
}

impl Port {
    /// The sockets are bound and never listen, so that an agent can bind the port as well.
    /// Rejected: listeners that are closed again. A child that another test has just forked keeps
    /// copies of them until it runs its program.
    fn free() -> Self {
        // Outside of the kernel's range for sockets without a port, from which UDP probes are sent.
        // Each try takes other ports, and other processes begin elsewhere.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        until("ports that are free on three addresses", || {
            let begin = std::process::id().wrapping_mul(37) % 9_000;
            let number = 12_000 + u16::try_from(begin).expect("small") + NEXT.fetch_add(2, Ordering::Relaxed) % 9_000;
            let held: io::Result<Vec<Socket>> =
                [2, 3, 4].into_iter().flat_map(|last| [bound(last, number), bound(last, number + 1)]).collect();
            let held = held.map_err(|error| error.to_string())?;
            for last in [2, 3, 4] {
                UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), number)).map_err(|error| error.to_string())?;
            }
            Ok(Self { number, _held: held })
        })
    }
}

fn bound(last: u8, port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // The agent's listener sets this option, too. Both sockets need it to bind the same port.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, last], port)).into())?;
    Ok(socket)
}

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_table_has_a_row_per_node_without_loss() {
    let _alone = alone();
    let port = Port::free();
    let mut demo = Demo::start(&port, "3600");
    let rows = demo.rows();
    assert_eq!(rows.len(), 3, "{rows:?}");
    for (index, row) in rows.iter().enumerate() {
        let [node, address, peers, sent, lost, percent, ..] = &row[..] else { panic!("{row:?}") };
        assert_eq!((node, address), (&format!("node{}", index + 1), &format!("127.0.0.{}", index + 2)));
        assert_eq!((peers.as_str(), lost.as_str(), percent.as_str()), ("2", "0", "0.0%"), "{row:?}");
        assert!(sent.parse::<u64>().expect("a count") >= 2, "{row:?}");
        // Each row has two times with units, the number of threads, and the memory in KB.
        assert!(row.iter().filter(|word| *word == "µs" || *word == "ms").count() == 2, "{row:?}");
        assert_eq!(row[row.len() - 2], "5", "{row:?}");
    }
    let text = fs::read_to_string(&demo.output).expect("our own file");
    let page = format!("Page: http://127.0.0.2:{}/ ", port.number);
    assert!(text.contains("\nVerdict: ") && text.contains(&page), "{text}");
}

#[test]
fn the_demo_ends_when_its_time_is_over() {
    let _alone = alone();
    let port = Port::free();
    let mut demo = Demo::start(&port, "1");
    assert_eq!(demo.process.end().code(), Some(0), "{}", demo.process.log());
    until_so("its agents are gone: their ports are free", || {
        [2, 3, 4].map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port.number))).iter().all(Result::is_ok)
    });
}

#[test]
fn a_signal_or_its_own_death_ends_the_demo_and_its_agents() {
    let _alone = alone();
    for (signal, code) in [(libc::SIGINT, Some(0)), (libc::SIGTERM, Some(0)), (libc::SIGKILL, None)] {
        let port = Port::free();
        let mut demo = Demo::start(&port, "3600");
        assert_eq!(demo.rows().len(), 3);
        let agents = children(&demo.process);
        assert_eq!(agents.len(), 3, "{agents:?}");
        demo.process.signal(signal);
        assert_eq!(demo.process.end().code(), code, "{}", demo.process.log());
        until_so("its agents are gone", || agents.iter().all(Seen::is_gone));
    }
}

#[test]
fn a_second_demo_ends_and_shows_no_table_of_the_first() {
    let _alone = alone();
    let port = Port::free();
    let mut first = Demo::start(&port, "3600");
    first.rows();
    let mut second = Demo::start(&port, "3600");
    assert_eq!(second.process.end().code(), Some(1), "{}", second.process.log());
    let (log, table) = (second.process.log(), fs::read_to_string(&second.output).expect("our own file"));
    assert_eq!((log.lines().count(), table.as_str()), (1, ""), "{log}");
    assert!(log.contains(&format!("127.0.0.2:{} is in use, perhaps by another demo", port.number)), "{log}");
    assert!(!first.process.has_ended(), "{}", first.process.log());
}

#[test]
fn a_port_in_use_is_1_and_names_the_port_and_the_way_out() {
    let _alone = alone();
    let port = Port::free();
    let _taken = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), port.number)).expect("it was free");
    let mut demo = Demo::start(&port, "3600");
    assert_eq!(demo.process.end().code(), Some(1), "{}", demo.process.log());
    let log = demo.process.log();
    assert!(log.contains(&format!("127.0.0.3:{}", port.number)) && log.contains("--port"), "{log}");
}
