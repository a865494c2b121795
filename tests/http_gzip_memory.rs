//! The memory that compressed responses leave mapped. This test is alone in a process, where
//! nothing else maps memory.

#[path = "common/gunzip.rs"]
mod gunzip;
mod http_support;

use std::fs;
use std::io::{BufReader, Write};

use http_support::{connect, generous_limits, lines, receive_body, receive_head, serve};
use kube_canary::limits::GZIP_BYTES;

/// Returns the whole address space of this process, in bytes.
fn mapped() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    line.trim().strip_suffix(" kB").and_then(|kilobytes| kilobytes.parse::<usize>().ok()).expect("a number") * 1_024
}

#[test]
fn the_memory_of_a_compressed_response_is_unmapped_when_it_ends() {
    const RESPONSES: usize = 1_000;
    let agent = serve(1, 300, generous_limits());
    let scrape = |is_read: bool| {
        let mut answer = BufReader::new(connect(agent.address));
        let request = b"GET /metrics HTTP/1.1\r\nHost: canary\r\nAccept-Encoding: gzip\r\n\r\n";
        answer.get_mut().write_all(request).expect("a request is sent");
        let head = receive_head(&mut answer).expect("a head");
        assert_eq!(head.header("content-encoding"), Some("gzip"));
        if is_read {
            let body = receive_body(&mut answer, &head).expect("a body");
            assert!(gunzip::gunzip(&body).expect("a gzip stream") == lines(300).into_bytes());
        }
    };
    // Some of what the first responses use stays with the process: buffers of malloc, of this
    // thread and of the worker.
    (0..20).for_each(|number| scrape(number % 2 == 0));
    let before = mapped();
    (0..RESPONSES).for_each(|number| scrape(number % 2 == 0));
    let grown = mapped().saturating_sub(before);
    assert!(grown < RESPONSES * GZIP_BYTES / 20, "{grown} bytes more are mapped after {RESPONSES} responses");
}
