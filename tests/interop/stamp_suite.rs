//! Beside stamp-suite, from crates.io.

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::time::Duration;

use kube_canary::prober::udp::stamp::packet::{REQUEST_BYTES, write_request};
use kube_canary::prober::udp::stamp::{ErrorEstimate, NtpTime, StampReply};
use kube_canary::sys::clock;
use kube_canary::units::Nanos;
use serde_json::Value;

use crate::common::until::until;
use crate::reflector::{self, PORT};
use crate::tools;

/// A wait as long as this only ends a test that would hang.
const FOREVER: Duration = Duration::from_mins(1);

#[test]
fn as_a_sender_it_accepts_all_answers_of_an_agent() {
    let address = "127.77.1.2";
    let _agent = reflector::agent(address, "127.0.0.1");
    let runs = [("NTP", "1", None), ("NTP", "2", Some("24")), ("PTP", "3", Some("100")), ("NTP", "4", Some("1000"))];
    for (format, ssid, padding) in runs {
        let mut sender = tools::command("stamp-suite");
        sender.args(["--remote-addr", address, "--remote-port", &PORT.to_string(), "--local-addr", "127.0.0.1"]);
        sender.args(["--count", "50", "--send-delay", "5", "--timeout", "60", "--ssid", ssid]);
        sender.args(["--clock-source", format, "--output-format", "json"]);
        if let Some(bytes) = padding {
            sender.args(["--extra-padding", bytes]);
        }
        let printed = tools::text(&sender.output().expect("stamp-suite"));
        let summary: Value = serde_json::from_str(printed.lines().last().expect("a summary")).expect("JSON");
        let figure = |path: &str| summary.pointer(path).and_then(Value::as_u64);
        for (path, expected) in [
            ("/packets_sent", 50),
            ("/packets_received", 50),
            ("/packets_lost", 0),
            ("/measurements/unknown_replies", 0),
            ("/measurements/duplicate_replies", 0),
            ("/measurements/last_reflector_sequence", 49),
            ("/measurements/tlv_validation/observed_tlvs", if padding.is_some() { 50 } else { 0 }),
            ("/measurements/tlv_validation/rejected_replies", 0),
            ("/measurements/tlv_validation/flags/unrecognized", 0),
            ("/measurements/tlv_validation/flags/malformed", 0),
        ] {
            assert_eq!(figure(path), Some(expected), "{path} of {format} {padding:?}: {summary:#}");
        }
    }
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended by itself, there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it as a reflector at an address of loopback, and waits until it answers.
fn reflecting(address: &str) -> Running {
    let mut reflector = tools::command("stamp-suite");
    reflector.args(["--is-reflector", "--stateful-reflector", "--local-addr", address]);
    reflector.args(["--local-port", &PORT.to_string()]).env("RUST_LOG", "error");
    let mut running = Running(reflector.stdout(Stdio::null()).spawn().expect("stamp-suite"));
    // Until it has its socket, requests are refused or lost.
    let first = connected(address, Duration::from_millis(50));
    while first.send(&request(0, 1).0).and_then(|_| first.recv(&mut [0; 256])).is_err() {
        assert_eq!(running.0.try_wait().expect("a child"), None, "it has ended");
    }
    running
}

fn connected(address: &str, timeout: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect((address, PORT)).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket
}

#[test]
fn as_a_reflector_it_answers_every_probe_of_an_agent() {
    let address = "127.77.0.2";
    let _running = reflecting(address);
    let agent = reflector::agent("127.77.1.3", address);
    let link = until("fifty answers", || {
        let link = agent.metrics().link("other", "udp");
        if link.received >= 50.0 { Ok(link) } else { Err(format!("{link:?}")) }
    });
    assert!(link.is_clean(), "{link:?}");
    let report = agent.json("/api/v1/peers");
    let link = &report["peers"][0];
    assert_eq!((&link["protocol"], &link["node"]), (&"udp".into(), &"other".into()), "{link}");
    // Every answer is of this host, so its round trip is below the timeout and above nothing.
    let rtt = link["recent"]["rtt_p50_seconds"].as_f64().expect("a round-trip time");
    assert!(rtt > 0.0 && rtt < 30.0, "{link}");
}

#[test]
fn as_a_reflector_it_answers_our_requests_and_we_read_its_answers() {
    let address = "127.77.0.1";
    let _running = reflecting(address);
    let socket = connected(address, FOREVER);
    for sequence in 0..50 {
        let (request, padding) = request(sequence, 4_711);
        socket.send(&request).unwrap();
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        assert_eq!(length, REQUEST_BYTES);
        let reply = StampReply::read(&bytes[..length]).unwrap();
        assert_eq!((reply.count, reply.ssid, reply.sender_sequence), (sequence, 4_711, sequence));
        assert_eq!((reply.padding, reply.sender_ttl), (Some(&padding), 64));
        assert_eq!(bytes[44], 0, "it has understood the padding");
        let dwell = reply.dwell().expect("plausible");
        assert!(dwell < FOREVER.into(), "{dwell:?}");
        let ago = clock::realtime().0.abs_diff(reply.received_at.to_unix().0);
        assert!(Nanos(ago) < FOREVER.into(), "the same clock: {ago} ns");
    }
}

fn request(sequence: u32, ssid: u16) -> ([u8; REQUEST_BYTES], [u8; 24]) {
    let (mut out, mut padding) = ([0; REQUEST_BYTES], [0x5a; 24]);
    padding[..4].copy_from_slice(&sequence.to_be_bytes());
    let now = NtpTime::from_unix(clock::realtime());
    write_request(&mut out, sequence, ssid, now, ErrorEstimate::UNKNOWN, &padding);
    (out, padding)
}
