//! Beside scapy's STAMP.

use kube_canary::prober::udp::stamp::packet::{REQUEST_BYTES, write_request};
use kube_canary::prober::udp::stamp::{ErrorEstimate, NtpTime, StampReply};
use kube_canary::units::Nanos;

use crate::{reflector, tools};

const NOW: Nanos = Nanos(1_795_467_890_250_000_000);
const PADDING: [u8; 24] = *b"the identity of a probe!";

/// Runs `stamp.py`. Returns what it prints.
fn stamp(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/stamp.py");
    let output = tools::command("python").arg(script).args(arguments).output().expect("python");
    tools::text(&output)
}

fn request(bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    write_request(
        &mut out,
        4_000_000_000,
        51_966,
        NtpTime::from_unix(NOW),
        ErrorEstimate::new(Nanos(1_000_000), true),
        &PADDING,
    );
    out
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

#[test]
fn scapy_finds_every_field_right_in_the_answers_of_an_agent() {
    let address = "127.77.1.1";
    let _agent = reflector::agent(address, "127.0.0.1");
    let answers = stamp(&["ask", address, &reflector::PORT.to_string()]);
    assert_eq!(answers.trim(), "26", "answers that it has checked");
}

#[test]
fn scapy_reads_our_requests() {
    for bytes in [REQUEST_BYTES, 1_400] {
        let request = request(bytes);
        let value = &request[48..];
        let expected = [
            "seq 4000000000".to_owned(),
            "ts 1795467890".to_owned(),
            // 1 ms is 4,294,968 × 2^-32 s, so at most 132 × 2^15 × 2^-32 s.
            "err_estimate 1 0 15 132".to_owned(),
            "ssid 51966".to_owned(),
            "mbz 0".to_owned(),
            format!("tlv 128 1 {} {}", value.len(), hexadecimal(value)),
        ];
        let read = stamp(&["read", &hexadecimal(&request)]);
        assert_eq!(read.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn we_read_the_answers_that_scapy_writes() {
    let answer = stamp(&["answer", &hexadecimal(&request(REQUEST_BYTES))]);
    let digits = answer.trim().as_bytes().chunks(2);
    let bytes: Vec<u8> =
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    let reply = StampReply::read(&bytes).unwrap();
    assert_eq!((reply.count, reply.ssid, reply.sender_sequence, reply.sender_ttl), (41, 51_966, 4_000_000_000, 57));
    assert_eq!(reply.error, ErrorEstimate { synchronized: true, ptp: false, scale: 17, multiplier: 9 });
    assert_eq!(reply.padding, Some(&PADDING));
    // scapy has timestamps as floating-point numbers, of which the last bit is half a microsecond.
    let near = |time: NtpTime, after: u64| time.to_unix().0.abs_diff(NOW.0 + after) < 2_000;
    assert!(near(reply.received_at, 2_000_000_000) && near(reply.reflected_at, 2_500_000_000), "{reply:?}");
    assert!(reply.dwell().unwrap().0.abs_diff(500_000_000) < 2_000, "{:?}", reply.dwell());
}
