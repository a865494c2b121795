//! Scrapers that misbehave.

use std::net::{Shutdown, TcpStream};
use std::path::Path;

use crate::agent::{Agent, PEERS, talkative};
use crate::common::until::until_so;
use crate::http_support::connect;
use crate::scrapes::stuck_scrape;
use crate::shim::{PLAIN, shim};

#[test]
fn a_scraper_that_goes_away_in_the_middle_of_a_response_ends_neither_program() {
    for program in [Path::new(PLAIN), shim()] {
        let mut agent = talkative(program);
        for round in 0..20 {
            let stream = stuck_scrape(&agent);
            // A socket that is closed with unread bytes sends a reset. If it has shut down its
            // writing side before, the writer sees EPIPE, and with it SIGPIPE. Otherwise the writer
            // sees ECONNRESET.
            if round % 2 == 0 {
                stream.shutdown(Shutdown::Write).expect("half a close");
            }
        }
        assert_eq!(agent.get("/healthz").status, 200, "{}", program.display());
        until_so("a whole scrape after them", || agent.get("/metrics").body.len() > 1 << 20);
        assert!(!agent.process.has_ended(), "{}", program.display());
    }
}

/// Whether the server has closed the connection.
fn has_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn health_is_answered_while_64_idle_connections_take_every_place() {
    let agent = Agent::start(&PEERS);
    until_so("it is ready", || agent.get("/readyz").status == 200);
    let idle: Vec<TcpStream> = (0..64).map(|_| connect(agent.http)).collect();
    for path in ["/healthz", "/readyz"] {
        let response = agent.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
    // A scrape is refused, unless the server has already closed an idle connection and freed its
    // place.
    let refused = agent.get("/metrics").status == 503;
    assert!(refused || idle.iter().any(has_ended), "a scrape has a place although 64 idle connections hold all");
    assert_eq!(agent.get("/healthz").status, 200);
    drop(idle);
    until_so("a scrape is answered: places are free", || agent.get("/metrics").status == 200);
}
