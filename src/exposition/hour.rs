//! `/api/v1/hour/PEER`: the last hour of a peer, as one series for each protocol and network that
//! the peer is probed on. `/api/v1/hour/*` is that of all peers together ([`LinksHour`]).
//!
//! The document is built as a whole because it is small: 60 steps of three short numbers are 1.5
//! KB, and a peer has at most four series.

use std::rc::Rc;
use std::sync::PoisonError;

use serde::{Serialize, Serializer};

use super::View;
use crate::http::path::decoded;
use crate::limits::{HOUR_PEERS_MAX, HOUR_STEP, NAME_BYTES_MAX};
use crate::report::{Protocol, Rounded};
use crate::statistics::{HourReading, HourStep, LinksHour};
use crate::sys::clock;
use crate::units::Nanos;

/// Stands for all peers. It is the name of no node.
const ALL: &str = "*";

/// The reason why there is no document for a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HourError {
    /// No peer of that name is probed or still remembered.
    #[error("no peer {0:?}")]
    UnknownPeer(String),
    /// The peer exists, but its hour is not kept.
    #[error("the last hour of {0:?} is not kept: it is kept of at most {HOUR_PEERS_MAX} links, and there are more")]
    NotKept(String),
}

#[derive(Debug, Serialize)]
struct Hour<'a> {
    source: &'a str,
    peer: &'a str,
    step_seconds: u64,
    series: Vec<Series>,
}

#[derive(Debug, Serialize)]
struct Series {
    network: &'static str,
    protocol: &'static str,
    end_unix_seconds: u64,
    loss: HourColumn,
    rtt_p50_seconds: HourColumn,
    rtt_p99_seconds: HourColumn,
}

/// One number of every step, written as an array.
#[derive(Clone, Debug)]
struct HourColumn(Rc<[HourStep]>, fn(HourStep) -> Option<f64>);

impl Serialize for HourColumn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|step| (self.1)(*step).map(Rounded)))
    }
}

/// A network and a protocol.
type NetworkAndProtocol = [&'static str; 2];

impl Series {
    fn new([network, protocol]: NetworkAndProtocol, end: Nanos, steps: Rc<[HourStep]>) -> Self {
        Self {
            network,
            protocol,
            end_unix_seconds: clock::realtime_of(end).as_secs(),
            loss: HourColumn(Rc::clone(&steps), |step| step.loss),
            rtt_p50_seconds: HourColumn(Rc::clone(&steps), |step| step.rtt_p50_seconds),
            rtt_p99_seconds: HourColumn(steps, |step| step.rtt_p99_seconds),
        }
    }
}

/// Returns the series of all links together.
fn together(hours: impl Iterator<Item = (NetworkAndProtocol, HourReading)>) -> Vec<Series> {
    let mut all: Vec<(NetworkAndProtocol, LinksHour)> = Vec::new();
    for (way, hour) in hours {
        let place = all.iter().position(|(other, _)| *other == way).unwrap_or_else(|| {
            all.push((way, LinksHour::over(&hour)));
            all.len() - 1
        });
        all[place].1.add(&hour);
    }
    all.into_iter().map(|(way, hour)| Series::new(way, hour.end, hour.steps().into())).collect()
}

/// Returns the document for a peer, or for all peers if its name is `*`. The name comes from a path
/// and may be percent-encoded.
///
/// # Errors
/// [`HourError`], if there is no peer of that name, or if its hour is not kept.
pub fn hour(view: &View, encoded_name: &str) -> Result<Vec<u8>, HourError> {
    let unknown = || HourError::UnknownPeer(encoded_name.chars().take(NAME_BYTES_MAX).collect());
    let name = decoded(encoded_name).filter(|name| name.len() <= NAME_BYTES_MAX).ok_or_else(unknown)?;
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    let are_all = name == ALL;
    let slots: Vec<_> = directory.peers().filter(|(_, peer)| are_all || peer.node() == name).collect();
    if slots.is_empty() {
        return Err(unknown());
    }
    let hours = slots
        .into_iter()
        .flat_map(|(slot, peer)| view.statistics.methods().iter().map(move |method| (slot, peer, method)))
        .filter(|(_, peer, method)| peer.via().allows(*method))
        .filter_map(|(slot, peer, method)| {
            let way = [peer.network().label(), Protocol::new(method, peer.family()).label()];
            Some((way, view.statistics.method(method).hour(slot)?))
        });
    let series = if are_all {
        together(hours)
    } else {
        hours.map(|(way, hour)| Series::new(way, hour.end, hour.steps().collect())).collect()
    };
    if series.is_empty() {
        return Err(HourError::NotKept(name));
    }
    let document = Hour { source: &view.node, peer: &name, step_seconds: HOUR_STEP.as_secs(), series };
    // Neither writing to a Vec nor serializing these structs can fail.
    let mut body = serde_json::to_vec(&document).unwrap_or_default();
    body.push(b'\n');
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(HourError::UnknownPeer("a\nb".into()).to_string(), "no peer \"a\\nb\"");
    }
}
