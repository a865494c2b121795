//! The HTTP server under more requests than it has places for.

mod http_support;

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::atomic::Ordering,
    thread,
};

use http_support::{
    Agent, bind, connect, eventually, exchange, generous_limits, get, is_closed, lines, serve, serve_on,
};
use kube_canary::{
    http::ServeLimits,
    limits::{CONNECTIONS_PER_WORKER, HEALTH_CONNECTIONS_PER_WORKER},
};

const WORKERS: usize = 4;
const PLACES: usize = WORKERS * CONNECTIONS_PER_WORKER;
const HEALTH_PLACES: usize = WORKERS * HEALTH_CONNECTIONS_PER_WORKER;

/// Opens connections that send nothing. They take the ordinary places first, and the server closes
/// those beyond its places.
fn idle(agent: &Agent, count: usize) -> Vec<TcpStream> {
    let idle = (0..count).map(|_| connect(agent.address)).collect();
    eventually("the idle connections are accepted", || agent.stats.connections() >= count.min(PLACES));
    idle
}

fn health_answers(agent: &Agent) {
    for _ in 0..30 {
        assert_eq!(get(agent.address, "/healthz").expect("an answer").body, "ok\n");
        assert_eq!(get(agent.address, "/readyz").expect("an answer").body, "ok\n");
    }
}

#[test]
fn health_is_answered_with_any_number_of_idle_connections() {
    for count in [PLACES - 1, PLACES, PLACES + 1, PLACES + HEALTH_PLACES, 200, 500] {
        let agent = serve(WORKERS, 10, generous_limits());
        let held = idle(&agent, count);
        health_answers(&agent);
        assert!(agent.stats.connections() <= PLACES + HEALTH_PLACES);
        drop(held);
    }
}

#[test]
fn idle_connections_that_began_a_request_do_not_stop_health() {
    let agent = serve(WORKERS, 10, generous_limits());
    let mut held = idle(&agent, PLACES);
    for _ in 0..200 {
        let mut begun = connect(agent.address);
        // An evicted client may notice at once.
        let _ = begun.write_all(b"GET /healthz HT");
        held.push(begun);
    }
    health_answers(&agent);
}

#[test]
fn a_probe_is_not_evicted_before_it_is_read() {
    // They all wait in the backlog for the one health place of the one worker.
    let bound = bind();
    let mut probes: Vec<_> = (0..50).map(|_| connect(bound.local_addr())).collect();
    for probe in &mut probes {
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    }
    let _canary = serve_on(bound, 1, 10, ServeLimits { connections: 0, health_connections: 1, ..generous_limits() });
    for probe in &probes {
        assert_eq!(http_support::receive(&mut BufReader::new(probe), false).expect("an answer").body, "ok\n");
    }
}

#[test]
fn the_kernel_holds_little_for_a_scraper_that_does_not_read() {
    let agent = serve(1, 1_000_000, generous_limits());
    let mut scraper = connect(agent.address);
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    let rendered = || agent.observed.rendered_bytes.load(Ordering::SeqCst);
    let (mut before, mut still) = (0, 0);
    eventually("the sockets are full", || {
        still = if rendered() == before && before > 0 { still + 1 } else { 0 };
        before = rendered();
        still == 50
    });
    // Most of this is the client's receive buffer.
    assert!(before < 400_000, "{before} bytes are in flight");
}

#[test]
fn scrapers_that_do_not_read_leave_places_for_health() {
    let agent = serve(WORKERS, 1_000_000, generous_limits());
    let held: Vec<_> = (0..PLACES)
        .map(|_| {
            let mut stream = connect(agent.address);
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
            stream.read_exact(&mut [0; 100]).expect("the beginning of a body");
            stream
        })
        .collect();
    assert_eq!(agent.observed.bodies.load(Ordering::SeqCst), PLACES, "every place serves a scraper");
    health_answers(&agent);
    let refused = get(agent.address, "/metrics").expect("an answer");
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
    assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(agent.stats.requests_refused(), 1);
    drop(held);
    eventually("all places are free", || agent.stats.connections() == 0);
}

#[test]
fn a_full_server_refuses_metrics_until_a_place_is_free() {
    let agent = serve(WORKERS, 10, generous_limits());
    let mut held = idle(&agent, PLACES);
    assert_eq!(get(agent.address, "/metrics").expect("an answer").status, 503);
    assert_eq!(get(agent.address, "/healthz").expect("an answer").status, 200);
    drop(held.pop());
    eventually("a place is free", || agent.stats.connections() == PLACES - 1);
    assert_eq!(get(agent.address, "/metrics").expect("an answer").body, lines(10));
}

#[test]
fn a_full_server_serves_metrics_after_idle_connections_time_out() {
    let time = std::time::Duration::from_millis(500);
    let agent = serve(WORKERS, 10, ServeLimits { request_head_time: time, ..generous_limits() });
    let mut held: Vec<_> = (0..PLACES).map(|_| connect(agent.address)).collect();
    assert!(held.iter_mut().all(is_closed), "each had a place, and none sent a request in time");
    eventually("all places are free", || agent.stats.connections() == 0);
    // A request has as little time as the others had, so one that is delayed is closed, too.
    eventually("a scrape is answered", || get(agent.address, "/metrics").is_ok_and(|answer| answer.body == lines(10)));
}

#[test]
fn a_worker_without_a_place_leaves_a_connection_to_one_that_has() {
    // Each worker has one place, so most accepts race between a full worker and a free one.
    let agent = serve(WORKERS, 10, ServeLimits { connections: 1, ..generous_limits() });
    for _ in 0..100 {
        let mut held: Vec<_> = (0..WORKERS - 1).map(|_| connect(agent.address)).collect();
        for stream in &mut held {
            exchange(stream, "GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
        }
        assert_eq!(get(agent.address, "/metrics").expect("an answer").status, 200);
        drop(held);
        eventually("all places are free", || agent.stats.connections() == 0);
    }
    assert_eq!(agent.stats.requests_refused(), 0);
}

#[test]
fn a_health_connection_is_promoted_if_a_place_is_free() {
    let agent = serve(1, 10, ServeLimits { connections: 1, ..generous_limits() });
    let first = connect(agent.address);
    eventually("the place is taken", || agent.stats.connections() == 1);
    let mut second = connect(agent.address);
    eventually("a health place is taken", || agent.stats.connections() == 2);
    exchange(&mut second, "GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    drop(first);
    eventually("the place is free", || agent.stats.connections() == 1);
    let response = exchange(&mut second, "GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    assert_eq!((response.status, response.body), (200, lines(10)));
}

#[test]
fn parallel_scrapes_all_get_the_same_complete_body() {
    let agent = serve(WORKERS, 30_000, generous_limits());
    let expected = lines(30_000);
    thread::scope(|scope| {
        let scrapes: Vec<_> = (0..20).map(|_| scope.spawn(|| get(agent.address, "/metrics"))).collect();
        for scrape in scrapes {
            let response = scrape.join().expect("no panic").expect("an answer");
            assert!(response.status == 200 && response.body == expected);
        }
    });
}

#[test]
fn a_body_of_any_length_is_never_rendered_ahead_of_slow_readers() {
    /// The lines of a response: 16 readers of 41 MB each on one worker.
    const LINES: usize = 1_000_000;
    /// The most bytes that the sockets of both sides hold between renderer and reader, with the
    /// kernel's own overhead.
    const IN_SOCKETS: usize = 1 << 20;
    let agent = serve(1, LINES, generous_limits());
    let mut readers: Vec<_> = (0..CONNECTIONS_PER_WORKER)
        .map(|_| {
            let stream = connect(agent.address);
            (&stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
            stream
        })
        .collect();
    let mut received = 0;
    for _ in 0..100 {
        for reader in &mut readers {
            let mut bytes = [0; 10_000];
            reader.read_exact(&mut bytes).expect("a part of the body");
            received += bytes.len();
            let rendered = agent.observed.rendered_bytes.load(Ordering::SeqCst);
            assert!(
                rendered <= received + CONNECTIONS_PER_WORKER * IN_SOCKETS,
                "{rendered} after {received} were read"
            );
        }
    }
    assert!(
        agent.observed.rendered_bytes.load(Ordering::SeqCst) < CONNECTIONS_PER_WORKER * 4_000_000,
        "far from the end"
    );
    let peak = agent.observed.frame_buffers_max.load(Ordering::SeqCst);
    assert!(peak <= 2, "{peak} frame buffers at once, for {} streams", readers.len());
}

#[test]
fn a_very_long_body_arrives_complete() {
    const LINES: usize = 1_300_000;
    let agent = serve(1, LINES, generous_limits());
    let stream = connect(agent.address);
    (&stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    let response = receive_all(&stream);
    assert!(response.len() > 50 << 20 && response == lines(LINES), "{} bytes", response.len());
    assert_eq!(agent.observed.frame_buffers_max.load(Ordering::SeqCst), 1);
}

fn receive_all(stream: &TcpStream) -> String {
    http_support::receive(&mut BufReader::new(stream), false).expect("an answer").body
}
