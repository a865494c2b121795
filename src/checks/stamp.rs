//! The check of a STAMP reflector by one request.
//!
//! A reflector of another program may know no TLVs, and answer without our padding. The sequence
//! number, of 32 random bits, then proves that the answer is to our request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::net::UdpSocket;

use super::attempt::Attempt;
use super::failure::failure_of_io;
use super::icmp::KEY;
use crate::discovery::{name_in_reports, random};
use crate::limits::STAMP_ANSWER_BYTES_MAX;
use crate::peers::SlotId;
use crate::prober::Label;
use crate::prober::udp::stamp::packet::{CHECK_REQUEST_BYTES, write_check_request};
use crate::prober::udp::stamp::{Named, NtpTime, StampReply};
use crate::sys::clock;

/// Datagrams that are read for one answer. Others are forged, or answers that come late.
pub(super) const DATAGRAMS_MAX: usize = 128;

/// The session of all checks. A new one for each would take the places of other sessions in the
/// reflectors.
static SSID: LazyLock<u16> = LazyLock::new(|| random::id().max(1));

/// Sends one request from a port of its own, and waits for its answer.
pub async fn check(to: SocketAddr, own_node: &str, found: &mut Attempt) -> Result<(), CheckFailure> {
    let exchange = async { exchange(to).await.map_err(|error| failure_of_io(&error)) };
    let named = found.timed(CheckPhase::FirstByte, exchange).await?;
    found.is_own_answer = named == Named::Node(name_in_reports(own_node));
    Ok(())
}

async fn exchange(to: SocketAddr) -> io::Result<Named> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    let sequence = u32::from(random::id()) << 16 | u32::from(random::id());
    let label = Label { number: 0, slot: SlotId(0), sequence: (sequence & 0xffff) as u16 };
    let padding = KEY.identity(label, to.ip());
    let mut request = [0; CHECK_REQUEST_BYTES];
    write_check_request(&mut request, sequence, *SSID, NtpTime::from_unix(clock::realtime()), &padding);
    socket.send(&request).await?;
    let mut buffer = [0; STAMP_ANSWER_BYTES_MAX];
    for _ in 0..DATAGRAMS_MAX {
        let length = socket.recv(&mut buffer).await?;
        let Some(reply) = StampReply::read(&buffer[..length]) else { continue };
        // Reflectors without RFC 8972 return no SSID.
        let is_ours = reply.sender_sequence == sequence && (reply.ssid == *SSID || reply.ssid == 0);
        if is_ours && reply.padding.is_none_or(|copy| *copy == padding) {
            // Without the padding nothing shows that the name was asked for.
            return Ok(if reply.padding.is_some() { reply.named } else { Named::Unknown });
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
