//! Opens the sockets of the methods in use, and makes their probers.
//!
//! Each prober is boxed where it is made, in a function of its own that is not inlined. By value,
//! its kilobytes are copied from frame to frame, and the pages of the stack stay resident: 50 KB.

use std::net::SocketAddr;

use super::{REPLIES_WAIT, RunError};
use crate::config::RunSettings;
use crate::limits::NEW_PEER_SILENCE;
use crate::peers::Method;
use crate::prober::icmp::IcmpSockets;
use crate::prober::{Icmp, IcmpProber, MonotonicClock, Probers, Settings, Sources, TcpProber, UdpProber, tcp, udp};
use crate::sys::clock;
use crate::sys::error::system;
use crate::units::Nanos;

/// Opens the sockets of all methods in use, and describes them for the log. Must be called within a
/// tokio runtime.
pub(super) fn probers(settings: &RunSettings) -> Result<(Probers, String), RunError> {
    let mut described = Vec::new();
    let probing = Settings {
        interval: settings.interval.into(),
        timeout: settings.timeout.into(),
        node: settings.node_name.clone(),
        doubts: settings.discovery.answers(),
        new_peer_silence: NEW_PEER_SILENCE.into(),
        replies_wait: REPLIES_WAIT,
    };
    let sources = Sources::new(settings.listen.ip(), &settings.pod_addresses);
    let has = |method| settings.probes.has(method);
    let icmp = has(Method::Icmp).then(|| icmp_prober(settings, &probing, &mut described)).transpose()?;
    let udp = has(Method::Udp).then(|| udp_prober(settings, &sources, &probing, &mut described)).transpose()?;
    let tcp = has(Method::Tcp).then(|| tcp_prober(settings, sources, &probing, &mut described)).transpose()?;
    let (udp, explorer) = udp.unzip();
    let probers = Probers::new(icmp, udp, explorer, tcp);
    Ok((probers.map_err(system("make the pacing timer"))?, described.join("; ")))
}

#[inline(never)]
fn icmp_prober(
    settings: &RunSettings,
    probing: &Settings,
    described: &mut Vec<String>,
) -> Result<Box<IcmpProber>, RunError> {
    let sockets = IcmpSockets::open(settings.payload_bytes, &MonotonicClock)?;
    described.push(format!("ICMP sockets: {}", sockets.describe()));
    Ok(Box::new(Icmp::prober(sockets, MonotonicClock, probing, settings.payload_bytes)))
}

#[inline(never)]
fn udp_prober(
    settings: &RunSettings,
    sources: &Sources,
    probing: &Settings,
    described: &mut Vec<String>,
) -> Result<(Box<UdpProber>, Box<udp::Explorer>), RunError> {
    let listen = SocketAddr::new(settings.listen.ip(), settings.udp_port);
    let sockets = udp::UdpSockets::open(listen, sources, settings.flows, &MonotonicClock)?;
    described.push(format!("UDP sockets: {}", sockets.describe()));
    let port = sockets.reflector_port();
    let mut explorer = explorer((settings.flows, port), probing.timeout);
    if !sockets.abilities().errors {
        explorer.tracer.stop();
    }
    Ok((Box::new(udp::Udp::prober(sockets, MonotonicClock, probing, (port, settings.flows))), explorer))
}

#[inline(never)]
fn explorer((flows, port): (u8, u16), timeout: Nanos) -> Box<udp::Explorer> {
    Box::new(udp::Explorer::new(flows, port, timeout, clock::monotonic()))
}

#[inline(never)]
fn tcp_prober(
    settings: &RunSettings,
    sources: Sources,
    probing: &Settings,
    described: &mut Vec<String>,
) -> Result<Box<TcpProber>, RunError> {
    let sockets =
        tcp::TcpSockets::listen(SocketAddr::new(settings.listen.ip(), settings.tcp_port))?.sending_from(sources);
    let addresses: Vec<String> = sockets.addresses().map(|address| address.to_string()).collect();
    described.push(format!("TCP handshakes at {}", addresses.join(" and ")));
    let handshakes = tcp::Handshakes {
        port: sockets.addresses().next().map_or(settings.tcp_port, |address| address.port()),
        retries_lost: true,
        unsent_wait: tcp::UNSENT_WAIT,
    };
    Ok(Box::new(tcp::Tcp::prober(sockets, MonotonicClock, probing, handshakes)))
}
