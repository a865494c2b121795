//! Attempts at STAMP reflectors, and by ICMP echo.

use tokio::net::UdpSocket;

use super::*;
use crate::discovery::name_in_reports;
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, Reflection, Reflector};
use crate::units::Nanos;

/// Makes an attempt at a server that answers the request by these datagrams.
async fn reflected(answers: impl Fn(SocketAddr, &[u8]) -> Vec<Vec<u8>>) -> Attempt {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap();
    let serve = async {
        let mut request = [0; 512];
        let (length, client) = server.recv_from(&mut request).await.unwrap();
        for answer in answers(client, &request[..length]) {
            server.send_to(&answer, client).await.unwrap();
        }
    };
    let target = CheckTarget::Udp(loopback(to.port()));
    tokio::join!(attempt(&target, to, &CONTEXT), serve).0
}

/// Answers as the agent of this node does.
fn answer(client: SocketAddr, request: &[u8], node: &str) -> Vec<u8> {
    answer_after(Nanos(0), client, request, node)
}

/// The same of an agent that has the request for this time.
fn answer_after(dwell: Nanos, client: SocketAddr, request: &[u8], node: &str) -> Vec<u8> {
    let mut reflector = Reflector::new(8_080, Nanos(0));
    assert!(reflector.set_members([client.ip()].into_iter()));
    let at = NtpTime::from_unix(Nanos(1_795_467_890_000_000_000));
    let reflected_at = NtpTime::from_unix(Nanos(1_795_467_890_000_000_000).plus(dwell));
    let node = name_in_reports(node);
    let reflection = Reflection { received_at: at, reflected_at, error: ErrorEstimate::UNKNOWN, ttl: 64, node };
    let mut out = [0; crate::limits::STAMP_ANSWER_BYTES_MAX];
    let length = reflector.answer(client, request, &reflection, Nanos(0), &mut out).unwrap();
    assert_eq!(reflector.heard(client.ip(), Nanos(0)), 0, "a check is not counted as a probe");
    out[..length].to_vec()
}

#[tokio::test]
async fn an_answer_of_a_reflector_counts_and_names_its_node() {
    for (node, is_own) in [("n1", false), ("own", true)] {
        let found = reflected(|client, request| vec![answer(client, request, node)]).await;
        assert_eq!((found.end, found.is_own_answer), (Ok(()), is_own));
        assert!(has_phases(&found, &[CheckPhase::FirstByte]));
    }
    let without_tlvs = reflected(|client, request| vec![answer(client, request, "own")[..44].to_vec()]).await;
    assert_eq!((without_tlvs.end, without_tlvs.is_own_answer), (Ok(()), false));
    let copied = reflected(|_, request| {
        let mut copy = request.to_vec();
        copy[24..38].copy_from_slice(&request[..14]);
        vec![copy]
    });
    assert_eq!(copied.await.end, Ok(()), "a reflector without state");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_lost_twice_is_sent_again() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap();
    let serve = async {
        let mut request = [0; 512];
        let (length, _) = server.recv_from(&mut request).await.unwrap();
        let first = request[..length].to_vec();
        let mut from = None;
        for _ in 0..2 {
            let (length, client) = server.recv_from(&mut request).await.unwrap();
            assert_eq!(request[..length], first);
            from = Some(client);
        }
        let client = from.unwrap();
        server.send_to(&answer(client, &first, "n1"), client).await.unwrap();
    };
    let target = CheckTarget::Udp(loopback(to.port()));
    assert_eq!(tokio::join!(attempt(&target, to, &CONTEXT), serve).0.end, Ok(()));
}

#[tokio::test]
async fn the_time_at_the_reflector_is_not_that_of_the_way() {
    let time = async |dwell: Nanos| {
        let found = reflected(|client, request| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            vec![answer_after(dwell, client, request, "n1")]
        });
        found.await.phases[CheckPhase::FirstByte as usize].expect("an answer")
    };
    let fifty = Nanos::from_millis(50);
    assert!(time(Nanos(0)).await >= fifty);
    // More than there was is not believed to be less than nothing.
    assert_eq!(time(Nanos::from_millis(60_000)).await, Nanos(0));
}

#[tokio::test(start_paused = true)]
async fn answers_to_other_requests_are_skipped() {
    for (at, what) in [(14, "SSID"), (24, "sequence number"), (60, "padding")] {
        let forge = |client: SocketAddr, request: &[u8]| {
            let mut forged = answer(client, request, "n1");
            forged[at] ^= 1;
            forged
        };
        let found = reflected(|client, request| vec![forge(client, request)]).await;
        assert_eq!(found.end, Err(CheckFailure::Timeout), "{what}");
    }
    let short = reflected(|client, request| vec![answer(client, request, "n1")[..43].to_vec()]).await;
    assert_eq!(short.end, Err(CheckFailure::Timeout));
    assert_eq!(reflected(|_, _| Vec::new()).await.end, Err(CheckFailure::Timeout), "silence");
}

#[tokio::test]
async fn a_flood_of_forged_answers_ends_the_attempt() {
    let flood = |skipped: usize| {
        move |client: SocketAddr, request: &[u8]| {
            let mut datagrams = vec![vec![0; 44]; skipped];
            datagrams.push(answer(client, request, "n1"));
            datagrams
        }
    };
    assert_eq!(reflected(flood(100)).await.end, Ok(()));
    assert_eq!(reflected(flood(128)).await.end, Err(CheckFailure::Malformed));
}

#[tokio::test]
async fn an_echo_is_answered_unless_sockets_are_not_permitted() {
    let permitted = |protocol, kind| socket2::Socket::new(socket2::Domain::IPV4, kind, Some(protocol)).is_ok();
    let kinds = [socket2::Type::DGRAM, socket2::Type::RAW];
    let can_open = kinds.into_iter().any(|kind| permitted(socket2::Protocol::ICMPV4, kind));
    let target = CheckTarget::Icmp(Host::Address([127, 0, 0, 1].into()));
    let found = attempt(&target, "127.0.0.1:0".parse().unwrap(), &CONTEXT).await;
    assert_eq!(found.end, if can_open { Ok(()) } else { Err(CheckFailure::NotSent) });
    assert_eq!(has_phases(&found, &[CheckPhase::FirstByte]), can_open);
}
