//! The Service of the agents: requests that come back to this agent.

use tokio::net::UdpSocket;

use super::*;
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, Reflection, Reflector};
use crate::units::Nanos;

/// Passes the request of a check to a reflector that knows no members, as the agent's own does with
/// one that comes back to it.
fn comes_back(client: SocketAddr, request: &[u8]) {
    let mut reflector = Reflector::new(8_080, Nanos(0));
    let at = NtpTime::from_unix(Nanos(1_795_467_890_000_000_000));
    let reflection = Reflection { received_at: at, reflected_at: at, error: ErrorEstimate::UNKNOWN, ttl: 64, node: 1 };
    let mut out = [0; crate::limits::STAMP_ANSWER_BYTES_MAX];
    assert!(reflector.answer(client, request, &reflection, Nanos(0), &mut out).is_err());
    assert_eq!(reflector.strangers(Nanos(0)).count(), 0, "a check is no probe of a stranger");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_back_to_its_sender_does_not_count() {
    for forged in [false, true] {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap();
        let serve = async {
            let mut request = [0; 512];
            let (length, client) = server.recv_from(&mut request).await.unwrap();
            // Another pod does not know the number.
            request[0] ^= u8::from(forged);
            comes_back(client, &request[..length]);
        };
        let target = CheckTarget::ServiceUdp(loopback(to.port()));
        let found = tokio::join!(attempt(&target, to, &CONTEXT), serve).0;
        let end = if forged { Err(CheckFailure::Timeout) } else { Ok(()) };
        assert_eq!((found.end, found.is_own_answer), (end, !forged));
    }
}
