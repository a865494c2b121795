//! Attempts at HTTP servers, and at the Service of the agents.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::tls::Authority;
use super::*;

fn plain(port: u16) -> CheckTarget {
    CheckTarget::Http { is_secure: false, host: loopback(port), path: "/a?b=c".into() }
}

fn secure(port: u16) -> CheckTarget {
    CheckTarget::Http { is_secure: true, host: loopback(port), path: "/".into() }
}

fn service(port: u16) -> CheckTarget {
    CheckTarget::Service(loopback(port))
}

async fn take_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Makes an attempt at a server that answers with `text` and closes.
async fn answered(target: fn(u16) -> CheckTarget, text: &[u8]) -> Attempt {
    attempt_at(target, CONTEXT, |mut stream| async move {
        take_request(&mut stream).await;
        _ = stream.write_all(text).await;
    })
    .await
}

#[tokio::test]
async fn a_request_has_no_credentials_and_ends_the_connection() {
    let request = RefCell::default();
    let serve = async |mut stream: TcpStream| {
        request.replace(take_request(&mut stream).await);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    };
    let found = attempt_at(plain, CONTEXT, serve).await;
    assert!(found.end.is_ok() && has_phases(&found, &[CheckPhase::Connect, CheckPhase::FirstByte]), "{found:?}");
    let request = request.into_inner();
    let mut lines = request.trim_end().lines();
    assert_eq!(lines.next(), Some("GET /a?b=c HTTP/1.1"));
    assert!(lines.next().unwrap().starts_with("host: 127.0.0.1:"));
    let agent = concat!("user-agent: kube-canary/", env!("CARGO_PKG_VERSION"));
    assert_eq!(lines.collect::<Vec<_>>(), [agent, "accept: */*", "connection: close"]);
}

#[tokio::test]
async fn the_status_decides_and_a_redirect_is_not_followed() {
    for (status, end) in [
        (200, Ok(())),
        (204, Ok(())),
        (301, Ok(())),
        (302, Ok(())),
        (400, Err(CheckFailure::Status)),
        (401, Err(CheckFailure::Status)),
        (500, Err(CheckFailure::Status)),
        (999, Err(CheckFailure::Status)),
    ] {
        let text = format!("HTTP/1.1 {status} X\r\nLocation: http://127.0.0.2/\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answered(plain, text.as_bytes()).await.end, end, "{status}");
    }
    assert_eq!(answered(plain, b"HTTP/1.0 200 OK\r\n\r\nbody").await.end, Ok(()));
    // The answer after an interim one counts.
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 Busy\r\n\r\n";
    assert_eq!(answered(plain, interim).await.end, Err(CheckFailure::Status));
}

#[tokio::test]
async fn what_is_no_answer_by_http_has_its_reason() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(1_000));
    for (what, text, end) in [
        ("nothing", &b""[..], CheckFailure::Closed),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-", CheckFailure::Closed),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n", CheckFailure::Malformed),
        ("TLS", &[21, 3, 3, 0, 2, 2, 40, 0, 0, 0], CheckFailure::Malformed),
        ("HTTP/2", b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0", CheckFailure::Malformed),
        ("a word as status", b"HTTP/1.1 OK\r\n\r\n", CheckFailure::Malformed),
        ("a thousand fields", many.as_bytes(), CheckFailure::Malformed),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", CheckFailure::Malformed),
    ] {
        let found = answered(plain, text).await;
        assert_eq!(found.end, Err(end), "{what}");
        assert!(has_phases(&found, &[CheckPhase::Connect]), "{what}");
    }
    let at_accept = attempt_at(plain, CONTEXT, |stream| async { drop(stream) });
    assert_eq!(at_accept.await.end, Err(CheckFailure::Closed));
}

/// Makes an attempt at a server that sends `head` and then `piece` without end. Returns the number
/// of bytes that were taken from it, too.
async fn read_of_endless(head: &[u8], piece: &[u8]) -> (Attempt, usize) {
    let taken = Cell::new(0);
    let serve = async |mut stream: TcpStream| {
        take_request(&mut stream).await;
        stream.write_all(head).await.unwrap();
        taken.set(send_without_end(&mut stream, piece).await);
    };
    let found = attempt_at(plain, CONTEXT, serve).await;
    (found, taken.get())
}

#[tokio::test]
async fn an_endless_head_ends_soon() {
    let endless: [(&[u8], &[u8]); 4] = [
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"\r\n"),
    ];
    for (head, piece) in endless {
        let (found, _) = read_of_endless(head, piece).await;
        assert_eq!(found.end, Err(CheckFailure::Malformed), "{}", String::from_utf8_lossy(piece));
    }
}

#[tokio::test]
async fn a_body_is_not_waited_for() {
    let endless: [(&[u8], &[u8]); 2] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b"body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    ];
    for (head, piece) in endless {
        let (found, _) = read_of_endless(head, piece).await;
        assert!(found.end.is_ok() && has_phases(&found, &[CheckPhase::Connect, CheckPhase::FirstByte]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_silent_answer_is_a_timeout() {
    for (target, text) in [
        (plain as fn(u16) -> CheckTarget, &b""[..]),
        (plain, b"HTTP/1.1 200 OK\r\n\r\n"),
        (service, b""),
        (service, b"HTTP/1.1 200 OK\r\n\r\n{}"),
    ] {
        let found = attempt_at(target, CONTEXT, |mut stream| async move {
            take_request(&mut stream).await;
            for byte in text {
                tokio::time::sleep(Duration::from_secs(1)).await;
                _ = stream.write_all(&[*byte]).await;
            }
            read_to_end(&mut stream).await;
        });
        let found = found.await;
        assert_eq!(found.end, Err(CheckFailure::Timeout));
        assert!(has_phases(&found, &[CheckPhase::Connect]));
    }
}

#[tokio::test]
async fn https_has_both_phases_and_the_end_of_the_certificate() {
    let authority = Authority::new();
    for (status, end) in [("200 OK", Ok(())), ("503 Busy", Err(CheckFailure::Status))] {
        let server = authority.server("127.0.0.1", (2020, 2090));
        let found = attempt_at(secure, authority.context(), |stream| async move {
            let mut stream = server.accept(stream).await.unwrap();
            take_request(&mut stream).await;
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        });
        let found = found.await;
        assert_eq!(found.end, end);
        assert!(has_phases(&found, &[CheckPhase::Connect, CheckPhase::Handshake, CheckPhase::FirstByte]));
        assert!(found.certificate_not_after.is_some());
    }
    let untrusted = authority.server("10.0.0.1", (2020, 2090));
    let found = attempt_at(secure, authority.context(), |stream| async move {
        assert!(untrusted.accept(stream).await.is_err(), "no request is sent to another server");
    });
    assert_eq!(found.await.end, Err(CheckFailure::CertificateName));
    assert_eq!(answered_in_clear().await.end, Err(CheckFailure::Malformed));
}

async fn answered_in_clear() -> Attempt {
    attempt_at(secure, CONTEXT, |mut stream| async move {
        stream.read_u8().await.unwrap();
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        read_to_end(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn a_broken_tls_connection_is_closed_and_not_malformed() {
    let authority = Authority::new();
    let server = authority.server("127.0.0.1", (2020, 2090));
    let found = attempt_at(secure, authority.context(), |stream| async move {
        let mut stream = server.accept(stream).await.unwrap();
        take_request(&mut stream).await;
    });
    assert_eq!(found.await.end, Err(CheckFailure::Closed));
}

#[tokio::test]
async fn an_agent_behind_a_service_is_identified() {
    let identity = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let long = format!("{{\"node\":\"n1\",\"zone\":\"{}\"}}", "z".repeat(5_000));
    for (text, end, is_own) in [
        (identity(r#"{"node":"n1","zone":"z","later":[1]}"#), Ok(()), false),
        (identity(r#"{"node":"own"}"#), Ok(()), true),
        (identity(r#"{"node":"own"#), Err(CheckFailure::Malformed), false),
        (identity("<html>"), Err(CheckFailure::Malformed), false),
        (identity(r#"{"node":7}"#), Err(CheckFailure::Malformed), false),
        (identity(&long), Err(CheckFailure::Malformed), false),
        (identity(r#"{"node":"n1"}"#).replace("200 OK", "204 X"), Err(CheckFailure::Malformed), false),
        (identity("busy").replace("200 OK", "503 X"), Err(CheckFailure::Status), false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".into(), Err(CheckFailure::Closed), false),
    ] {
        let found = answered(service, text.as_bytes()).await;
        assert_eq!((found.end, found.is_own_answer), (end, is_own), "{text}");
        assert!(has_phases(&found, &[CheckPhase::Connect, CheckPhase::FirstByte]) || end.is_err());
    }
}
