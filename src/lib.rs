//! KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus.
//!
//! ```text
//! discovery ─► peers ─► prober ─► statistics ─► exposition
//!  (who)      (slots)  (send/recv)  (per slot)   (/metrics, /api)
//! ```

pub mod allocator;
pub mod discovery;
pub mod http;
pub mod limits;
pub mod shim;
pub mod units;

/// The command line, with the program's name first, as [`std::env::args_os`] gives it; returns the exit code.
// Temporary: as much as the allocators need, until the command line is merged.
pub fn main_from(args: Vec<std::ffi::OsString>) -> i32 {
    let args: Vec<_> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    match args[..] {
        ["--help"] => println!("Usage: kube-canary [version [--json]]"),
        ["version"] => println!("kube-canary {:?}", allocator::info()),
        ["version", "--json"] => println!("{}", serde_json::to_string(&allocator::info()).expect("no map")),
        ["run", ..] => {
            let at = args.iter().position(|arg| *arg == "--listen").expect("--listen") + 1;
            let listener = std::net::TcpListener::bind(args[at]).expect("a free port");
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = std::io::Read::read(&mut stream, &mut [0; 4_096]);
                let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.0 200 OK\r\n\r\nkube_canary_build_info 1\n");
            }
        }
        _ => {
            eprintln!("kube-canary: {args:?}: --help or version is accepted");
            return 2;
        }
    }
    0
}
