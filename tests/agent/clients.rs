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

#[test]
fn health_is_answered_while_64_idle_connections_take_every_place() {
    let agent = Agent::start(&PEERS);
    until_so("it is ready", || agent.get("/readyz").status == 200);
    let mut idle: Vec<TcpStream> = (0..64).map(|_| connect(agent.http)).collect();
    // Of the last request, a place may become free only after all were accepted.
    until_so("a scrape is refused: idle connections hold every place", || {
        idle.push(connect(agent.http));
        agent.get("/metrics").status == 503
    });
    for path in ["/healthz", "/readyz"] {
        let response = agent.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
    drop(idle);
    until_so("a scrape is answered: places are free", || agent.get("/metrics").status == 200);
}
