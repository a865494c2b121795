//! The check of a STAMP reflector by one request.
//!
//! A reflector of another program may know no TLVs, and answer without our padding. The sequence
//! number, of 32 random bits, then proves that the answer is to our request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::attempt::Attempt;
use super::failure::failure_of_io;
use super::icmp::KEY;
use crate::discovery::{name_in_reports, random};
use crate::limits::{STAMP_ANSWER_BYTES_MAX, STAMP_STRANGERS_EVERY};
use crate::peers::SlotId;
use crate::prober::Label;
use crate::prober::udp::stamp::packet::{CHECK_REQUEST_BYTES, write_check_request};
use crate::prober::udp::stamp::{Named, NtpTime, StampReply, returned};
use crate::sys::clock;
use crate::units::Nanos;

/// Datagrams that are read for one answer. Others are forged, or answers that come late.
pub(super) const DATAGRAMS_MAX: usize = 128;

/// When a request without an answer is sent again.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// When the agent has noticed that a request has come back to itself, and when it has on a busy
/// machine: it reads what strangers send less often than what members send.
const RETURNED: [Duration; 2] = [Duration::from_millis(2_500), Duration::from_millis(2_900)];
const _: () = assert!(RETURNED[0].as_millis() > AGAIN[0].as_millis() + STAMP_STRANGERS_EVERY.as_millis());

/// The session of all checks. A new one for each would take the places of other sessions in the
/// reflectors.
static SSID: LazyLock<u16> = LazyLock::new(|| random::id().max(1));

/// Sends one request from a port of its own, and waits for its answer.
pub async fn check(to: SocketAddr, own_node: &str, found: &mut Attempt) -> Result<(), CheckFailure> {
    let own = name_in_reports(own_node);
    let exchange = async { exchange(to, own).await.map_err(|error| failure_of_io(&error)) };
    let answer = found.timed(CheckPhase::FirstByte, exchange).await?;
    found.is_own_answer = answer.named == Named::Node(own);
    // A reflector may answer when it has time: agents do so with their next probe. That is not the
    // network's.
    let time = &mut found.phases[CheckPhase::FirstByte as usize];
    *time = time.map(|time| time.since(answer.dwell));
    Ok(())
}

/// What an answer says beside its arrival.
struct StampAnswer {
    named: Named,
    /// How long the request was at the reflector.
    dwell: Nanos,
}

async fn exchange(to: SocketAddr, own: u64) -> io::Result<StampAnswer> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    let begun = Instant::now();
    let sequence = u32::from(random::id()) << 16 | u32::from(random::id());
    let label = Label { number: 0, slot: SlotId(0), sequence: (sequence & 0xffff) as u16 };
    let padding = KEY.identity(label, to.ip());
    let mut request = [0; CHECK_REQUEST_BYTES];
    write_check_request(&mut request, sequence, *SSID, NtpTime::from_unix(clock::realtime()), &padding);
    socket.send(&request).await?;
    let mut buffer = [0; STAMP_ANSWER_BYTES_MAX];
    // What is lost is sent again, as TCP does it. Some networks drop each packet that comes back to
    // its sender, and choose another backend for the next one.
    let again = AGAIN.map(|after| begun + after);
    let mut waits = again.into_iter().chain(RETURNED.map(|after| begun + after)).peekable();
    for _ in 0..DATAGRAMS_MAX {
        let length = loop {
            let Some(until) = waits.peek() else { break socket.recv(&mut buffer).await? };
            if let Ok(received) = timeout_at(*until, socket.recv(&mut buffer)).await {
                break received?;
            }
            if waits.next().is_some_and(|wait| again.contains(&wait)) {
                socket.send(&request).await?;
            } else if returned::is_last(*SSID, sequence) {
                return Ok(StampAnswer { named: Named::Node(own), dwell: Nanos(0) });
            }
        };
        let Some(reply) = StampReply::read(&buffer[..length]) else { continue };
        // Reflectors without RFC 8972 return no SSID.
        let is_ours = reply.sender_sequence == sequence && (reply.ssid == *SSID || reply.ssid == 0);
        if is_ours && reply.padding.is_none_or(|copy| *copy == padding) {
            // Without the padding nothing shows that the name was asked for.
            let named = if reply.padding.is_some() { reply.named } else { Named::Unknown };
            return Ok(StampAnswer { named, dwell: reply.dwell().unwrap_or_default() });
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
