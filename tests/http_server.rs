//! The HTTP server as its clients see it: the protocol, the timeouts, the stop.

mod http_support;

use std::{
    io::{BufReader, Write},
    net::{Shutdown, TcpListener},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use http_support::{
    WAIT_MAX, bind, connect, eventually, exchange, generous_limits, get, is_closed, lines, receive, serve, serve_on,
};
use kube_canary::http::{Hosts, ServeError, ServeLimits, Server};

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn a_known_path_is_200_and_an_unknown_one_404() {
    let agent = serve(1, 3, generous_limits());
    let found = get(agent.address, "/healthz").expect("an answer");
    assert_eq!((found.status, found.body.as_str(), found.header("content-type")), (200, "ok\n", Some("text/plain")));
    assert_eq!(get(agent.address, "/nowhere").expect("an answer").status, 404);
    let empty = get(agent.address, "/empty").expect("an answer");
    assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
    assert_eq!(agent.stats.requests_served(), 3);
}

#[test]
fn the_accept_header_reaches_the_route_and_the_query_does_not_change_the_path() {
    let agent = serve(1, 3, generous_limits());
    let request = "GET /accept?x=1 HTTP/1.1\r\nHost: canary\r\nAccept: application/openmetrics-text\r\n\r\n";
    let response = exchange(&mut connect(agent.address), request).expect("an answer");
    assert_eq!(response.body, "application/openmetrics-text");
}

#[test]
fn other_methods_are_405_before_their_bodies_arrive() {
    let agent = serve(1, 3, generous_limits());
    for (request, closes) in [
        ("DELETE /metrics HTTP/1.1\r\nHost: canary\r\n\r\n", false),
        ("POST /metrics HTTP/1.1\r\nHost: canary\r\nContent-Length: 1000000\r\n\r\nthe beginning", true),
        ("PUT /metrics HTTP/1.1\r\nHost: canary\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", true),
    ] {
        let mut stream = connect(agent.address);
        let response = exchange(&mut stream, request).expect("an answer");
        assert_eq!((response.status, response.header("allow")), (405, Some("get, head")), "{request}");
        assert_eq!(response.header("connection") == Some("close"), closes, "{request}");
        assert!(!closes || is_closed(&mut stream), "{request}");
    }
}

#[test]
fn a_request_for_a_foreign_host_is_403_except_for_metrics_and_health() {
    let hosts = Hosts::new(["canary.ns.svc".to_owned()]);
    let agent = serve_on(bind().only_for(hosts), 1, 3, generous_limits());
    let status = |path: &str, hosts: &str| {
        let request = format!("GET {path} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        exchange(&mut connect(agent.address), &request).expect("an answer").status
    };
    for foreign in ["Host: evil.example\r\n", "Host: canary.ns.svc.evil.example:9877\r\n", "Host: \u{e9}vil\r\n"] {
        for path in ["/accept", "/", "/api/v1/peers", "/metrics/", "//metrics", "http://localhost/accept"] {
            assert_eq!(status(path, foreign), 403, "{path} {foreign}");
        }
        for path in ["/metrics", "/healthz", "/readyz", "/metrics?x=1"] {
            assert_eq!(status(path, foreign), 200, "{path} {foreign}");
        }
    }
    assert_eq!(status("http://evil.example/accept", "Host: localhost\r\n"), 403);
    for own in
        ["Host: localhost:1234\r\n", "Host: Canary.NS.svc.\r\n", "Host: 10.0.0.1\r\n", "Host: [fd00::1]:80\r\n", ""]
    {
        assert_eq!(status("/accept", own), 200, "{own}");
    }
    assert_eq!(status("http://localhost/accept", "Host: localhost\r\n"), 200);
    for path in ["/accept", "/metrics", "/healthz"] {
        assert_eq!(status(path, "Host: localhost\r\nHost: localhost\r\n"), 400, "{path}");
    }
    let request = "GET /accept HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let refused = exchange(&mut connect(agent.address), request).expect("an answer");
    assert!(refused.body.contains("--allow-host"), "{}", refused.body);
}

#[test]
fn every_answer_forbids_guessing_its_content_type() {
    let agent = serve(1, 3, generous_limits());
    for path in ["/metrics", "/healthz", "/empty", "/nowhere"] {
        let answer = get(agent.address, path).expect("an answer");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let request = "DELETE /metrics HTTP/1.1\r\nHost: canary\r\n\r\n";
    let refused = exchange(&mut connect(agent.address), request).expect("an answer");
    assert_eq!((refused.status, refused.header("x-content-type-options")), (405, Some("nosniff")));
}

#[test]
fn the_body_of_a_refused_request_is_drained() {
    let agent = serve(1, 3, generous_limits());
    let mut stream = connect(agent.address);
    let head = "POST / HTTP/1.1\r\nHost: canary\r\nContent-Length: 30000\r\n\r\n";
    assert_eq!(exchange(&mut stream, head).expect("an answer").status, 405);
    assert!(is_closed(&mut stream), "the server has closed its side");
    // A server that closed its socket with this unread would reset the connection, and the answer
    // might be lost.
    for _ in 0..30 {
        stream.write_all(&[b'x'; 1_000]).expect("the rest is sent");
    }
}

#[test]
fn head_has_no_body_and_the_connection_can_be_used_again() {
    let agent = serve(1, 1_000, generous_limits());
    let mut stream = connect(agent.address);
    let head = exchange(&mut stream, "HEAD /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    assert_eq!((head.status, head.header("content-length")), (200, Some("3")));
    let head = exchange(&mut stream, "HEAD /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    assert_eq!(agent.observed.rendered_bytes.load(Ordering::SeqCst), 0, "nothing is rendered for a HEAD");
    let get = exchange(&mut stream, "GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    assert_eq!(get.body, "ok\n");
}

#[test]
fn a_stream_arrives_complete_and_the_connection_can_be_used_again() {
    let agent = serve(2, 20_000, generous_limits());
    let mut stream = connect(agent.address);
    for _ in 0..3 {
        let response = exchange(&mut stream, "GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        assert!(response.body == lines(20_000), "the body is what was rendered");
    }
    assert_eq!(agent.stats.connections(), 1);
}

#[test]
fn http_1_0_gets_a_stream_that_ends_with_the_connection() {
    let agent = serve(1, 5_000, generous_limits());
    let response = exchange(&mut connect(agent.address), "GET /metrics HTTP/1.0\r\n\r\n").expect("an answer");
    assert_eq!((response.status, response.header("transfer-encoding")), (200, None));
    assert!(response.head.starts_with("http/1.0 200") && response.body == lines(5_000));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let agent = serve(1, 2_000, generous_limits());
    let stream = connect(agent.address);
    let requests = ["/healthz", "/metrics", "/nowhere", "/metrics", "/healthz"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: canary\r\n\r\n"));
    (&stream).write_all(requests.concat().as_bytes()).expect("the requests are sent");
    let mut answers = BufReader::new(&stream);
    let mut next = || receive(&mut answers, false).expect("an answer");
    assert_eq!(next().body, "ok\n");
    assert!(next().body == lines(2_000));
    assert_eq!(next().status, 404);
    assert!(next().body == lines(2_000));
    assert_eq!(next().body, "ok\n");
}

#[test]
fn a_half_closed_connection_is_answered() {
    let agent = serve(1, 5_000, generous_limits());
    let stream = connect(agent.address);
    (&stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    stream.shutdown(Shutdown::Write).expect("the writing side closes");
    assert!(receive(&mut BufReader::new(&stream), false).expect("an answer").body == lines(5_000));
}

#[test]
fn a_head_above_the_limit_is_431_and_one_below_is_answered() {
    let agent = serve(1, 3, generous_limits());
    let request = |bytes: usize| {
        let start = "GET /healthz HTTP/1.1\r\nHost: canary\r\nX-Fill: ";
        format!("{start}{}\r\n\r\n", "f".repeat(bytes - start.len() - 4))
    };
    assert_eq!(exchange(&mut connect(agent.address), &request(8_000)).expect("an answer").status, 200);
    assert_eq!(exchange(&mut connect(agent.address), &request(9_000)).expect("an answer").status, 431);
    assert_eq!(exchange(&mut connect(agent.address), &request(40_000)).expect("an answer").status, 431);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert_eq!(exchange(&mut connect(agent.address), &many).expect("an answer").status, 431);
    assert_eq!(exchange(&mut connect(agent.address), "nonsense\r\n\r\n").expect("an answer").status, 400);
}

#[test]
fn a_connection_that_is_idle_or_sends_its_head_too_slowly_is_closed() {
    let time = SHORT * 5;
    let agent = serve(1, 3, ServeLimits { request_head_time: time, ..generous_limits() });
    let (mut silent, mut slow) = (connect(agent.address), connect(agent.address));
    let mut used = connect(agent.address);
    // If this test is delayed before its request, the server closes the connection as idle, and the
    // test tries the next.
    eventually("a connection is answered", || {
        let answer = exchange(&mut used, "GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n");
        let answered = answer.is_ok_and(|response| response.status == 200);
        if !answered {
            used = connect(agent.address);
        }
        answered
    });
    // Each byte is in time, but the head is not.
    let head = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "f".repeat(4_000));
    let cut = head.bytes().any(|byte| {
        std::thread::sleep(time / 20);
        slow.write_all(&[byte]).is_err()
    });
    assert!(cut, "a slow head never ends");
    assert!(is_closed(&mut silent) && is_closed(&mut used) && is_closed(&mut slow));
    eventually("all places are free", || agent.stats.connections() == 0);
}

#[test]
fn a_response_that_is_not_read_times_out() {
    let agent = serve(1, 1_000_000, ServeLimits { response_time: SHORT, ..generous_limits() });
    let mut scraper = connect(agent.address);
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    eventually("its answer begins", || agent.observed.rendered_bytes.load(Ordering::SeqCst) > 0);
    eventually("its place is free", || agent.stats.connections() == 0);
    assert_eq!(agent.observed.bodies.load(Ordering::SeqCst), 0);
    assert!(receive(&mut BufReader::new(&scraper), false).is_err(), "the body ends before its end");
}

#[test]
fn a_scraper_that_disconnects_frees_its_place() {
    let agent = serve(1, 1_000_000, generous_limits());
    for _ in 0..40 {
        let mut client = connect(agent.address);
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
        std::io::Read::read_exact(&mut client, &mut [0; 1_000]).expect("the beginning of a body");
    }
    eventually("all places are free", || agent.stats.connections() == 0);
    assert_eq!(agent.observed.bodies.load(Ordering::SeqCst), 0);
    assert_eq!(get(agent.address, "/healthz").expect("an answer").status, 200);
    assert_eq!(agent.stats.requests_refused(), 0);
}

#[test]
fn shutdown_frees_the_port_and_ends_all_connections() {
    // The server has an address of its own: another test may get a port of 127.0.0.1 that is free
    // again.
    let bound = Server::bind("127.7.7.7:0".parse().expect("an address")).expect("a socket");
    let agent = serve_on(bound, 3, 1_000_000, ServeLimits { shutdown_time: SHORT, ..generous_limits() });
    let mut idle = connect(agent.address);
    let mut scraper = connect(agent.address);
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    eventually("both are accepted", || {
        agent.stats.connections() == 2 && agent.observed.bodies.load(Ordering::SeqCst) == 1
    });
    agent.server.shutdown();
    assert!(is_closed(&mut idle));
    assert_eq!(agent.stats.connections(), 0);
    assert_eq!(agent.stats.frame_buffers(), 0, "every frame is freed");
    TcpListener::bind(agent.address).expect("the port is free");
}

#[test]
fn shutdown_does_not_wait_for_idle_connections() {
    let agent = serve(2, 3, ServeLimits { shutdown_time: WAIT_MAX * 3, ..generous_limits() });
    let mut used = connect(agent.address);
    exchange(&mut used, "GET /healthz HTTP/1.1\r\nHost: canary\r\n\r\n").expect("an answer");
    let mut silent = connect(agent.address);
    eventually("both are accepted", || agent.stats.connections() == 2);
    let begun = Instant::now();
    agent.server.shutdown();
    assert!(begun.elapsed() < WAIT_MAX);
    assert!(is_closed(&mut used) && is_closed(&mut silent));
}

#[test]
fn shutdown_completes_an_answer_in_progress() {
    let agent = serve(1, 200_000, ServeLimits { shutdown_time: WAIT_MAX, ..generous_limits() });
    let mut scraper = connect(agent.address);
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("a request is sent");
    eventually("its answer begins", || agent.observed.rendered_bytes.load(Ordering::SeqCst) > 0);
    let reader = std::thread::spawn(move || {
        let whole = receive(&mut BufReader::new(&scraper), false).expect("the whole answer").body == lines(200_000);
        (whole, is_closed(&mut scraper))
    });
    agent.server.shutdown();
    assert_eq!(reader.join().expect("no panic"), (true, true), "complete, then closed");
}

#[test]
fn a_taken_address_and_an_impossible_number_of_workers_are_refused() {
    let agent = serve(1, 3, generous_limits());
    assert!(matches!(Server::bind(agent.address), Err(ServeError::AddressInUse { listen }) if listen == agent.address));
    for workers in [0, 65] {
        let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let routes = std::sync::Arc::new(NoRoutes);
        let error = bound.start(workers, routes).expect_err("no server");
        assert!(error.to_string().contains("--http-workers"), "{error}");
    }
}

struct NoRoutes;

impl kube_canary::http::Routes for NoRoutes {
    fn route(&self, _path: &str, _accept: &str) -> kube_canary::http::Reply {
        kube_canary::http::Reply::Full { status: 404, content_type: "text/plain", body: Vec::new() }
    }
}
