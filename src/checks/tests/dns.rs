//! Attempts at servers of the DNS.

use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::advance;

use super::*;

/// Flags of an answer, without its response code.
const ANSWER: u16 = 0x8180;
const TRUNCATED: u16 = 0x0200;

/// Makes an answer to `query` with these flags and one address, or none.
fn answer(query: &[u8], flags: u16, has_address: bool) -> Vec<u8> {
    // Without EDNS, if the question has it.
    let mut message = query[..query.len() - 11 * usize::from(query[11])].to_vec();
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    message[6..12].copy_from_slice(&[0, u8::from(has_address), 0, 0, 0, 0]);
    if has_address {
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 1]);
    }
    message
}

/// Makes an attempt at a server that answers each question by these datagrams.
async fn asked(record: DnsRecord, answers: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> Attempt {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap();
    let serve = async {
        let mut query = [0; 512];
        loop {
            let (length, client) = server.recv_from(&mut query).await.unwrap();
            for answer in answers(&query[..length]) {
                server.send_to(&answer, client).await.unwrap();
            }
        }
    };
    let context = Context { record, ..CONTEXT };
    tokio::select! {
        found = attempt(&CheckTarget::ClusterDns, to, &context) => found,
        () = serve => unreachable!("it serves for ever"),
    }
}

#[tokio::test]
async fn each_response_code_has_its_reason() {
    for (code, has_address, end) in [
        (0, true, Ok(())),
        (0, false, Ok(())),
        (1, false, Err(CheckFailure::ServerFailure)),
        (2, false, Err(CheckFailure::ServerFailure)),
        (3, false, Err(CheckFailure::NoSuchName)),
        (4, false, Err(CheckFailure::ServerFailure)),
        (5, false, Err(CheckFailure::QueryRefused)),
        (15, false, Err(CheckFailure::ServerFailure)),
    ] {
        let found = asked(DnsRecord::A, |query| vec![answer(query, ANSWER | code, has_address)]).await;
        assert_eq!(found.end, end, "{code}");
        assert!(has_phases(&found, &[CheckPhase::FirstByte]), "{code}");
    }
    let found = asked(DnsRecord::Aaaa, |query| {
        assert_eq!(query[query.len() - 15..query.len() - 11], [0, 28, 0, 1]);
        vec![answer(query, ANSWER, false)]
    });
    assert_eq!(found.await.end, Ok(()), "no data is an answer");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_to_the_question_is_a_timeout() {
    type Forge = fn(&[u8]) -> Vec<u8>;
    let forgeries: [(&str, Forge); 6] = [
        ("nothing", |_| Vec::new()),
        ("another id", |query| {
            let mut message = answer(query, ANSWER, true);
            message[0] ^= 1;
            message
        }),
        ("another question", |query| {
            let mut message = answer(query, ANSWER, true);
            message[13] ^= 1;
            message
        }),
        ("the question", <[u8]>::to_vec),
        ("a cut record", |query| {
            let message = answer(query, ANSWER, true);
            message[..message.len() - 1].to_vec()
        }),
        ("a name without an end", |query| [&answer(query, ANSWER, true)[..query.len() - 11], &[63; 600]].concat()),
    ];
    for (what, forge) in forgeries {
        let found = asked(DnsRecord::A, |query| vec![forge(query)]).await;
        assert_eq!(found, ended(CheckFailure::Timeout), "{what}");
    }
    assert_eq!(asked(DnsRecord::A, |_| Vec::new()).await.end, Err(CheckFailure::Timeout), "silence");
}

#[tokio::test]
async fn the_answer_counts_among_forged_ones_up_to_a_limit() {
    let with_forged = |count: usize| {
        move |query: &[u8]| {
            let mut forged = answer(query, ANSWER | 3, false);
            forged[1] ^= 1;
            let mut datagrams = vec![forged; count];
            datagrams.push(answer(query, ANSWER, true));
            datagrams
        }
    };
    assert_eq!(asked(DnsRecord::A, with_forged(100)).await.end, Ok(()));
    assert_eq!(asked(DnsRecord::A, with_forged(128)).await.end, Err(CheckFailure::Malformed));
}

#[tokio::test]
async fn a_server_whose_port_is_closed_refuses() {
    // A connected socket gets nothing from others: its port is closed to them, and not free.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect("127.0.0.1:9").await.unwrap();
    let found = attempt(&CheckTarget::ClusterDns, socket.local_addr().unwrap(), &CONTEXT).await;
    assert_eq!(found.end, Err(CheckFailure::Refused));
}

#[tokio::test]
async fn a_name_that_cannot_be_asked_for_is_no_failure_of_the_server() {
    let target = CheckTarget::Dns { name: "a..b".into(), server: None };
    let found = attempt(&target, "127.0.0.1:53".parse().unwrap(), &CONTEXT).await;
    assert_eq!(found.end, Err(CheckFailure::Other));
}

/// The worker was busy until after the timeout, and the answer arrived before it looked.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_counts_after_a_late_timeout() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap();
    let serve = async {
        let mut query = [0; 512];
        let (length, client) = server.recv_from(&mut query).await.unwrap();
        server.send_to(&answer(&query[..length], ANSWER, true), client).await.unwrap();
        advance(Duration::from_mins(1)).await;
    };
    let (found, ()) = tokio::join!(attempt(&CheckTarget::ClusterDns, to, &CONTEXT), serve);
    assert_eq!(found.end, Ok(()));
}

/// Makes an attempt at a server whose answer by UDP is truncated. `by_tcp` writes to the
/// connection.
async fn asked_by_tcp(by_tcp: impl AsyncFnOnce(TcpStream, &[u8])) -> Attempt {
    // Both need the same port.
    let (listener, server) = loop {
        let (listener, to) = listen().await;
        if let Ok(server) = UdpSocket::bind(to).await {
            break (listener, server);
        }
    };
    let to = server.local_addr().unwrap();
    let serve = async {
        let mut query = [0; 512];
        let (length, client) = server.recv_from(&mut query).await.unwrap();
        server.send_to(&answer(&query[..length], ANSWER | TRUNCATED, false), client).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap().into();
        stream.read_exact(&mut query[..length]).await.unwrap();
        by_tcp(stream, &query[..length]).await;
    };
    tokio::join!(attempt(&CheckTarget::ClusterDns, to, &CONTEXT), serve).0
}

#[tokio::test]
async fn a_truncated_answer_is_read_by_tcp() {
    let good = async |mut stream: TcpStream, query: &[u8]| {
        let message = answer(query, ANSWER, true);
        stream.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
        stream.write_all(&message).await.unwrap();
    };
    let found = asked_by_tcp(good).await;
    assert!(found.end.is_ok() && has_phases(&found, &[CheckPhase::FirstByte]), "{found:?}");
    // Of a long answer only the beginning is needed.
    let long = async |mut stream: TcpStream, query: &[u8]| {
        stream.write_u16(60_000).await.unwrap();
        stream.write_all(&answer(query, ANSWER, true)).await.unwrap();
        stream.write_all(&[0; 2_000]).await.unwrap();
        read_to_end(&mut stream).await;
    };
    assert_eq!(asked_by_tcp(long).await.end, Ok(()));
}

#[tokio::test]
async fn an_answer_by_tcp_that_breaks_off_or_is_none_has_its_reason() {
    let closed = async |stream: TcpStream, _: &[u8]| drop(stream);
    assert_eq!(asked_by_tcp(closed).await.end, Err(CheckFailure::Closed));
    let cut = async |mut stream: TcpStream, query: &[u8]| {
        stream.write_u16(200).await.unwrap();
        stream.write_all(query).await.unwrap();
    };
    assert_eq!(asked_by_tcp(cut).await.end, Err(CheckFailure::Closed));
    for flags in [0, ANSWER | TRUNCATED] {
        let other = async |mut stream: TcpStream, query: &[u8]| {
            let message = answer(query, flags, true);
            stream.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
            stream.write_all(&message).await.unwrap();
        };
        assert_eq!(asked_by_tcp(other).await.end, Err(CheckFailure::Malformed), "{flags:x}");
    }
    let empty = async |mut stream: TcpStream, _: &[u8]| stream.write_u16(0).await.unwrap();
    assert_eq!(asked_by_tcp(empty).await.end, Err(CheckFailure::Malformed));
}

#[test]
fn the_full_name_of_the_api_service_follows_from_the_search_list() {
    let settings = |search: &[&str]| crate::discovery::dns::Settings {
        servers: vec!["10.96.0.10:53".parse().unwrap()],
        search: search.iter().map(|domain| (*domain).to_owned()).collect(),
        ndots: 5,
        timeout: Duration::from_secs(5),
        attempts: 2,
    };
    let name = |search: &[&str]| SystemDns::from(settings(search)).cluster_name;
    assert_eq!(
        name(&["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"]).as_deref(),
        Some("kubernetes.default.svc.cluster.local.")
    );
    assert_eq!(name(&["example.com"]), None);
}
