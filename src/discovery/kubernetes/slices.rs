//! EndpointSlices in, one [`PeerList`] out. No I/O.
//!
//! Traps of the API: an endpoint may stand in two slices at once while the controller moves it; within a slice the
//! order means nothing; `ready` is always true with `publishNotReadyAddresses`; a slice may have null for a list; and
//! pods of one node (an old one on its way out, its successor) are two endpoints of one name.
//!
//! Cost: 28 bytes and the node name per endpoint, in a handful of allocations per slice. Which endpoint is newer is
//! not in the API, so we count: an endpoint keeps the number it got when its address was first seen.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::api::{Conditions, Object, Port, or_empty};
use crate::discovery::{Network, PeerList, PeerSpec, Readiness};
use crate::limits;

/// The port's name in our Service.
const PORT_NAME: &str = "http";
/// No zone: an index that no zone has.
const NO_ZONE: u16 = u16::MAX;

const _: () = assert!(limits::ENDPOINTS_PER_SLICE_MAX < NO_ZONE as usize, "a zone per endpoint can be numbered");

/// One endpoint with one address.
struct Endpoint {
    /// When first seen, counted over all endpoints.
    sequence: u32,
    /// End of its node name in [`Slice::names`]; it starts where the one before ends.
    name_end: u32,
    address: IpAddr,
    readiness: Readiness,
    zone: u16,
}

const _: () = assert!(size_of::<Endpoint>() == 28, "as the head of this file says");

/// What is kept of an EndpointSlice.
struct Slice {
    created: Box<str>,
    /// The node names, one after the other.
    names: Box<str>,
    /// Each zone once.
    zones: Box<[Box<str>]>,
    endpoints: Box<[Endpoint]>,
    port: Option<u16>,
}

impl Slice {
    /// The endpoints with their names.
    fn named(&self) -> impl Iterator<Item = (&str, &Endpoint)> {
        let mut start = 0;
        self.endpoints.iter().map(move |endpoint| {
            let end = endpoint.name_end as usize;
            (&self.names[std::mem::replace(&mut start, end)..end], endpoint)
        })
    }
}

/// The slices of one Service, merged on request.
#[derive(Default)]
pub struct Store {
    slices: BTreeMap<Box<str>, Slice>,
    next_sequence: u32,
}

impl Store {
    /// Puts in or replaces a slice.
    ///
    /// # Errors
    /// It has no name or there are too many: the object cannot be kept.
    pub fn put(&mut self, object: &Object) -> Result<(), String> {
        let name = object_name(object)?;
        if !self.slices.contains_key(name) && self.slices.len() == limits::SLICES_MAX {
            return Err(format!("more than {} EndpointSlices", limits::SLICES_MAX));
        }
        match compact(object) {
            Some(slice) => self.slices.insert(name.into(), slice),
            None => self.slices.remove(name),
        };
        Ok(())
    }

    /// Takes a slice out.
    ///
    /// # Errors
    /// It has no name.
    pub fn delete(&mut self, object: &Object) -> Result<(), String> {
        self.slices.remove(object_name(object)?);
        Ok(())
    }

    /// Numbers the endpoints that are new, in the order of their slices' creation; those that `before` knows keep their
    /// number. To be called after every change, with the store as it was or, after one event, with the replaced slice's
    /// numbers still in [`Store::sequences`].
    pub fn number(&mut self, before: &Sequences) {
        self.next_sequence = self.next_sequence.max(before.next);
        let mut order: Vec<&mut Slice> = self.slices.values_mut().collect();
        order.sort_by(|a, b| a.created.cmp(&b.created));
        for slice in order {
            let names = &slice.names;
            let mut start = 0;
            for endpoint in &mut slice.endpoints {
                let end = endpoint.name_end as usize;
                let name = &names[std::mem::replace(&mut start, end)..end];
                endpoint.sequence = before.find(name, endpoint.address).unwrap_or_else(|| {
                    self.next_sequence += 1;
                    self.next_sequence
                });
            }
        }
    }

    /// Which endpoints have which numbers.
    pub fn sequences(&self) -> Sequences {
        let mut known: Vec<(IpAddr, u64, u32)> = self
            .slices
            .values()
            .flat_map(Slice::named)
            .map(|(name, endpoint)| (endpoint.address, hash(name), endpoint.sequence))
            .collect();
        known.sort_unstable();
        Sequences { known, next: self.next_sequence }
    }

    /// The merged list: every endpoint once, the newest last.
    pub fn peers(&self) -> PeerList {
        let mut all: Vec<(u32, &str, &Endpoint, &Slice)> = self
            .slices
            .values()
            .flat_map(|slice| slice.named().map(move |(name, endpoint)| (endpoint.sequence, name, endpoint, slice)))
            .collect();
        // The same endpoint in two slices: the better state is the one that the controller wrote last, or will.
        all.sort_unstable_by_key(|(_, name, endpoint, _)| (endpoint.address, *name, endpoint.readiness));
        all.dedup_by(|next, kept| {
            let same = (next.1, next.2.address) == (kept.1, kept.2.address);
            if same {
                kept.0 = kept.0.min(next.0);
            }
            same
        });
        all.sort_unstable_by_key(|(sequence, ..)| *sequence);
        if all.len() > limits::PEER_SLOTS_MAX {
            log::warn!(
                "{} of {} endpoints are left out: there are no more slots",
                all.len() - limits::PEER_SLOTS_MAX,
                all.len()
            );
            all.truncate(limits::PEER_SLOTS_MAX);
        }
        let peers = all
            .into_iter()
            .map(|(_, name, endpoint, slice)| PeerSpec {
                node: name.to_owned(),
                address: endpoint.address,
                zone: slice.zones.get(usize::from(endpoint.zone)).map(ToString::to_string),
                readiness: endpoint.readiness,
                http_port: slice.port,
                network: Network::Pod,
            })
            .collect();
        PeerList { peers }
    }

    /// Whether there is no endpoint at all.
    pub fn is_empty(&self) -> bool {
        self.slices.values().all(|slice| slice.endpoints.is_empty())
    }
}

/// The numbers of a store's endpoints, by address and node; a snapshot.
#[derive(Default)]
pub struct Sequences {
    known: Vec<(IpAddr, u64, u32)>,
    next: u32,
}

impl Sequences {
    fn find(&self, name: &str, address: IpAddr) -> Option<u32> {
        let key = (address, hash(name));
        let at = self.known.partition_point(|(a, h, _)| (*a, *h) < key);
        self.known.get(at).filter(|(a, h, _)| (*a, *h) == key).map(|(_, _, sequence)| *sequence)
    }
}

/// FNV-1a. A collision would need one address on two nodes, and costs an order, no more.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn object_name<'o>(object: &'o Object) -> Result<&'o str, String> {
    let name = object.metadata.as_ref().map_or("", |m| or_empty(m.name.as_ref()));
    if name.is_empty() { Err("an EndpointSlice without a name".into()) } else { Ok(name) }
}

/// What to keep of a slice; None where its addresses are not IP addresses.
fn compact(object: &Object) -> Option<Slice> {
    let wants_ipv6 = match or_empty(object.address_type.as_ref()) {
        "IPv4" => false,
        "IPv6" => true,
        _ => return None,
    };
    let given = object.endpoints.as_deref().unwrap_or_default();
    let mut names = String::new();
    let mut zones: Vec<Box<str>> = Vec::new();
    let mut endpoints = Vec::with_capacity(given.len().min(limits::ENDPOINTS_PER_SLICE_MAX));
    let mut refused = 0_usize;
    for endpoint in given {
        let text = endpoint.addresses.as_ref().and_then(|a| a.first()).map_or("", |a| a.get());
        let address = text.parse::<IpAddr>().ok().filter(|a| a.is_ipv6() == wants_ipv6 && !a.is_unspecified());
        let target = endpoint.target_ref.as_ref().map_or("", |t| or_empty(t.name.as_ref()));
        let node = [or_empty(endpoint.node_name.as_ref()), target, text].into_iter().find(|name| !name.is_empty());
        let (Some(address), Some(node)) = (address, node.filter(|n| n.len() <= limits::NAME_BYTES_MAX)) else {
            refused += 1;
            continue;
        };
        if endpoints.len() == limits::ENDPOINTS_PER_SLICE_MAX {
            refused += 1;
            continue;
        }
        names.push_str(node);
        endpoints.push(Endpoint {
            sequence: 0,
            #[expect(clippy::cast_possible_truncation, reason = "1,000 names of 253 bytes")]
            name_end: names.len() as u32,
            address,
            readiness: readiness(endpoint.conditions.unwrap_or_default()),
            zone: zone_index(&mut zones, or_empty(endpoint.zone.as_ref())),
        });
    }
    let metadata = object.metadata.as_ref()?;
    if refused > 0 {
        log::warn!(
            "kubernetes discovery: EndpointSlice {}: {refused} endpoint(s) without a usable {} address or name, or \
             beyond {} of them, skipped",
            or_empty(metadata.name.as_ref()),
            or_empty(object.address_type.as_ref()),
            limits::ENDPOINTS_PER_SLICE_MAX,
        );
    }
    Some(Slice {
        created: or_empty(metadata.creation_timestamp.as_ref()).into(),
        names: names.into(),
        zones: zones.into(),
        endpoints: endpoints.into(),
        port: port(object.ports.as_deref().unwrap_or_default()),
    })
}

fn zone_index(zones: &mut Vec<Box<str>>, zone: &str) -> u16 {
    if zone.is_empty() || zone.len() > limits::NAME_BYTES_MAX {
        return NO_ZONE;
    }
    let at = zones.iter().position(|z| **z == *zone).unwrap_or_else(|| {
        zones.push(zone.into());
        zones.len() - 1
    });
    u16::try_from(at).unwrap_or(NO_ZONE)
}

/// `terminating`, else `serving`. `ready` only where `serving` is absent (an API server before 1.20): with
/// `publishNotReadyAddresses` it is true for every pod. Absent means true (discovery.k8s.io/v1).
fn readiness(conditions: Conditions) -> Readiness {
    if conditions.terminating == Some(true) {
        Readiness::Terminating
    } else if conditions.serving.or(conditions.ready).unwrap_or(true) {
        Readiness::Ready
    } else {
        Readiness::Unready
    }
}

/// The port named `http`, else the only one.
fn port(ports: &[Port]) -> Option<u16> {
    let port = match ports {
        [only] => Some(only),
        many => many.iter().find(|p| or_empty(p.name.as_ref()) == PORT_NAME),
    }?;
    u16::try_from(port.port?).ok().filter(|p| *p != 0)
}

#[cfg(test)]
mod tests;
