//! Once a list is applied, nothing is allocated and nothing freed: neither per probe nor per turn,
//! whatever the fate of the probes.
//!
//! The counter observes the leak finder, which is the allocator of every test binary.

#[path = "../scenario/clock.rs"]
#[expect(dead_code, reason = "no test steps the clock here")]
mod clock;
mod counting;
#[path = "../common/icmp.rs"]
mod icmp;
#[path = "../common/leaks.rs"]
mod leaks;
mod loopback;
mod methods;
mod minute;
mod report;
mod scrape;
mod wire;

use std::net::IpAddr;
use std::time::Duration;

use kube_canary::discovery::{PeerList, PeerSpec, Readiness};
use kube_canary::peers::{Applied, Directory, OwnNode};
use kube_canary::prober::{Clock, EchoWire, Icmp, Prober};
use kube_canary::statistics::Statistics;
use kube_canary::units::Nanos;
use tokio::runtime::Runtime;

/// A list of these addresses, with names like those of nodes, in three zones.
fn list(addresses: impl Iterator<Item = (usize, IpAddr, Readiness)>) -> PeerList {
    let spec = |(index, address, readiness)| PeerSpec {
        zone: Some(format!("zone-{}", index % 3)),
        readiness,
        ..PeerSpec::pod(format!("node-{index}"), address)
    };
    PeerList { peers: addresses.map(spec).collect() }
}

/// Lets the runtime wait. The first time, it allocates its own state. It also frees the state of
/// the sockets that it no longer watches. A slow machine may have come here without any wait.
fn wait_once(runtime: &Runtime) {
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
}

/// Applies a list as the agent does.
fn apply<W: EchoWire, C: Clock>(
    list: PeerList,
    directory: &mut Directory,
    statistics: &Statistics,
    prober: &mut Prober<Icmp<W>, C>,
    now: Nanos,
) {
    let own = OwnNode { node: "self".into(), ..OwnNode::default() };
    let Applied { changes, without_slot } = directory.apply(list, &own, now);
    assert_eq!(without_slot, 0);
    for change in changes {
        statistics.apply(change);
        prober.apply(change);
    }
}
