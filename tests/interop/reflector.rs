//! Our reflector behind a plain socket.

use std::net::UdpSocket;
use std::thread;

use kube_canary::limits::STAMP_ANSWER_BYTES_MAX;
use kube_canary::prober::stamp::{ErrorEstimate, NtpTime, Reflection, Reflector, set_reflected_at};
use kube_canary::sys::{clock, ntp};

/// Answers 127.0.0.1 until the process ends. Returns the port.
pub fn spawn() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("bound").port();
    let mut reflector = Reflector::new(port, clock::monotonic());
    assert!(reflector.set_members(["127.0.0.1".parse().expect("an address")].into_iter()));
    thread::spawn(move || {
        let (mut request, mut answer) = ([0; 9_000], [0; STAMP_ANSWER_BYTES_MAX]);
        loop {
            let (length, from) = socket.recv_from(&mut request).expect("a request");
            let received_at = NtpTime::from_unix(clock::realtime());
            let error = ErrorEstimate::of_clock(ntp::realtime_error());
            let with = Reflection { received_at, reflected_at: received_at, error, ttl: 64 };
            let Ok(length) = reflector.answer(from, &request[..length], &with, clock::monotonic(), &mut answer) else {
                continue;
            };
            set_reflected_at(&mut answer, NtpTime::from_unix(clock::realtime()));
            socket.send_to(&answer[..length], from).expect("loopback takes it");
        }
    });
    port
}
