//! Opens the sockets of the methods in use, and makes their probers.
//!
//! Each prober is boxed where it is made, in a function of its own that is not inlined. By value,
//! its kilobytes are copied from frame to frame, and the pages of the stack stay resident: 50 KB.

use std::net::SocketAddr;

use super::{REPLIES_WAIT, RunError, system};
use crate::config::RunSettings;
use crate::limits::NEW_PEER_SILENCE;
use crate::peers::Method;
use crate::prober::socket::Sockets;
use crate::prober::{self, IcmpProber, MonotonicClock, Prober, Probers, Sources, TcpProber, UdpProber, tcp, udp};
use crate::sys::clock;

/// Opens the sockets of all methods in use, and describes them for the log. Must be called within a
/// tokio runtime.
pub(super) fn probers(settings: &RunSettings) -> Result<(Probers, String), RunError> {
    let mut described = Vec::new();
    let probing = prober::Settings {
        interval: settings.interval.into(),
        timeout: settings.timeout.into(),
        payload_bytes: settings.payload_bytes,
        node: settings.node_name.clone(),
        doubts: settings.discovery.answers(),
        replies_wait: REPLIES_WAIT,
    };
    let sources = Sources::new(settings.listen.ip(), &settings.pod_addresses);
    let has = |method| settings.probes.has(method);
    let icmp = has(Method::Icmp).then(|| icmp_prober(&probing, &mut described)).transpose()?;
    let udp = has(Method::Udp).then(|| udp_prober(settings, &sources, &probing, &mut described)).transpose()?;
    let tcp = has(Method::Tcp).then(|| tcp_prober(settings, sources, &probing, &mut described)).transpose()?;
    let (udp, explorer) = udp.unzip();
    let probers = Probers::new(icmp, udp, explorer, tcp);
    Ok((probers.map_err(system("make the pacing timer"))?, described.join("; ")))
}

#[inline(never)]
fn icmp_prober(probing: &prober::Settings, described: &mut Vec<String>) -> Result<Box<IcmpProber>, RunError> {
    let sockets = Sockets::open(probing.payload_bytes, &MonotonicClock)?;
    described.push(format!("ICMP sockets: {}", sockets.describe()));
    Ok(Box::new(Prober::new(sockets, MonotonicClock, probing)))
}

#[inline(never)]
fn udp_prober(
    settings: &RunSettings,
    sources: &Sources,
    probing: &prober::Settings,
    described: &mut Vec<String>,
) -> Result<(Box<UdpProber>, Box<udp::Explorer>), RunError> {
    let listen = SocketAddr::new(settings.listen.ip(), settings.udp_port);
    let sockets = udp::UdpSockets::open(listen, sources, settings.flows, &MonotonicClock)?;
    described.push(format!("UDP sockets: {}", sockets.describe()));
    let port = sockets.reflector_port();
    let probing = udp::UdpSettings {
        interval: probing.interval,
        timeout: probing.timeout,
        node: probing.node.clone(),
        doubts: probing.doubts,
        new_peer_silence: NEW_PEER_SILENCE.into(),
        replies_wait: probing.replies_wait,
        port,
        flows: settings.flows,
    };
    let mut explorer = explorer(&probing);
    if !sockets.abilities().errors {
        explorer.tracer.stop();
    }
    Ok((Box::new(udp::UdpProber::new(sockets, MonotonicClock, &probing)), explorer))
}

#[inline(never)]
fn explorer(probing: &udp::UdpSettings) -> Box<udp::Explorer> {
    Box::new(udp::Explorer::new(probing.flows, probing.port, probing.timeout, clock::monotonic()))
}

#[inline(never)]
fn tcp_prober(
    settings: &RunSettings,
    sources: Sources,
    probing: &prober::Settings,
    described: &mut Vec<String>,
) -> Result<Box<TcpProber>, RunError> {
    let sockets = tcp::Sockets::listen(SocketAddr::new(settings.listen.ip(), settings.tcp_port))?.sending_from(sources);
    let addresses: Vec<String> = sockets.addresses().map(|address| address.to_string()).collect();
    described.push(format!("TCP handshakes at {}", addresses.join(" and ")));
    let probing = tcp::Settings {
        interval: probing.interval,
        timeout: probing.timeout,
        port: sockets.addresses().next().map_or(settings.tcp_port, |address| address.port()),
        node: probing.node.clone(),
        doubts: probing.doubts,
        new_peer_silence: NEW_PEER_SILENCE.into(),
        retries_lost: true,
        unsent_wait: tcp::UNSENT_WAIT,
        wait: probing.replies_wait,
    };
    Ok(Box::new(tcp::Prober::new(sockets, MonotonicClock, &probing)))
}
