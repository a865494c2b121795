//! The MTU of the route to an address, as the node was configured: rtnetlink(7).
//!
//! The socket option `IP_MTU` would also obey what the kernel has learned from "fragmentation
//! needed". A hole would then shrink the full size until it is none.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Bytes that are read of an answer. What is wanted of a device is near its beginning.
const ANSWER_BYTES: usize = 2_048;
/// Bytes of the header of a message, of that of a route, and of that of a device.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const LINK_BYTES: usize = 16;
/// The bytes of a request for the route to an IPv6 address, which is the longest.
const REQUEST_BYTES: usize = HEADER_BYTES + ROUTE_BYTES + ATTRIBUTE_HEADER_BYTES + 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// The answer must be the configured route, and not what the kernel has made of it for this
/// destination (`RTM_F_FIB_MATCH`).
const CONFIGURED: u32 = 0x2000;
/// The part of an attribute's type that is its number.
const TYPE_MASK: u16 = 0x3fff;
/// The MTU among the attributes `RTA_METRICS`.
const METRIC_MTU: u16 = 2;

/// Asks the kernel for routes.
#[derive(Debug)]
pub struct KernelRoutes(OwnedFd);

impl KernelRoutes {
    /// Opens a socket to the kernel, which needs no privilege.
    ///
    /// # Errors
    /// The kernel's error, for example if no descriptor is left.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol is 0, which is that of routes.
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?))
    }

    /// Returns the MTU of the route to `to`. `None` without a route. It takes two calls of the
    /// kernel, or four.
    pub fn mtu(&self, to: IpAddr) -> Option<u32> {
        let (v4, v6);
        let (family, address): (_, &[u8]) = match to {
            IpAddr::V4(to) => {
                v4 = to.octets();
                (libc::AF_INET, &v4)
            }
            IpAddr::V6(to) => {
                v6 = to.octets();
                (libc::AF_INET6, &v6)
            }
        };
        let mut route = [0; ROUTE_BYTES + ATTRIBUTE_HEADER_BYTES + 16];
        let length = ROUTE_BYTES + ATTRIBUTE_HEADER_BYTES + address.len();
        route[0] = u8::try_from(family).ok()?;
        route[1] = u8::try_from(8 * address.len()).ok()?;
        route[8..ROUTE_BYTES].copy_from_slice(&CONFIGURED.to_ne_bytes());
        let attribute = route.get_mut(ROUTE_BYTES..length)?;
        attribute[..2].copy_from_slice(&u16::try_from(ATTRIBUTE_HEADER_BYTES + address.len()).ok()?.to_ne_bytes());
        attribute[2..4].copy_from_slice(&libc::RTA_DST.to_ne_bytes());
        attribute[4..].copy_from_slice(address);
        let mut answer = [0; ANSWER_BYTES];
        let found = self.ask(libc::RTM_GETROUTE, route.get(..length)?, libc::RTM_NEWROUTE, &mut answer)?;
        let RouteWay { device, mtu } = RouteWay::read(found.get(ROUTE_BYTES..)?)?;
        let mut link = [0; LINK_BYTES];
        link[4..8].copy_from_slice(&device.to_ne_bytes());
        let found = self.ask(libc::RTM_GETLINK, &link, libc::RTM_NEWLINK, &mut answer)?;
        let of_device = attributes(found.get(LINK_BYTES..)?).find(|(kind, _)| *kind == libc::IFLA_MTU);
        let of_device = number(of_device?.1)?;
        Some(mtu.map_or(of_device, |mtu| mtu.min(of_device)))
    }

    /// Sends a request and returns the body of the answer. The kernel has answered when the call
    /// that sends returns.
    fn ask<'a>(&self, kind: u16, body: &[u8], expected: u16, answer: &'a mut [u8; ANSWER_BYTES]) -> Option<&'a [u8]> {
        let mut request = [0; REQUEST_BYTES];
        let length = HEADER_BYTES + body.len();
        request[..4].copy_from_slice(&u32::try_from(length).ok()?.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&u16::try_from(libc::NLM_F_REQUEST).ok()?.to_ne_bytes());
        request.get_mut(HEADER_BYTES..length)?.copy_from_slice(body);
        // An answer that was left over must not be taken for the next one.
        while recv(&self.0, &mut answer[..], RecvFlags::empty()).is_ok() {}
        send(&self.0, request.get(..length)?, SendFlags::empty()).ok()?;
        let (bytes, _) = recv(&self.0, &mut answer[..], RecvFlags::empty()).ok()?;
        let answer = answer.get(..bytes)?;
        let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
        (kind == expected).then(|| answer.get(HEADER_BYTES..))?
    }
}

/// The device of a route, and the MTU that is set for it.
struct RouteWay {
    device: u32,
    mtu: Option<u32>,
}

impl RouteWay {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (mut device, mut mtu) = (None, None);
        for (kind, value) in attributes(bytes) {
            match kind {
                libc::RTA_OIF => device = number(value),
                // The device of the first next hop: bytes 4 to 7.
                libc::RTA_MULTIPATH => device = device.or_else(|| number(value.get(4..8)?)),
                libc::RTA_METRICS => {
                    let set = attributes(value).find(|(kind, _)| *kind == METRIC_MTU);
                    mtu = set.and_then(|(_, value)| number(value)).filter(|mtu| *mtu > 0);
                }
                _ => {}
            }
        }
        Some(Self { device: device?, mtu })
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Returns the type and the value of each attribute, up to the first that is cut.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_host_has_the_mtu_of_the_loopback_device() {
        let routes = KernelRoutes::open().unwrap();
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let expected = text.trim().parse().unwrap();
        assert_eq!(routes.mtu("127.0.0.1".parse().unwrap()), Some(expected));
        assert_eq!(routes.mtu("255.255.255.255".parse().unwrap()).filter(|mtu| *mtu < 68), None);
        assert_eq!(routes.mtu("127.0.0.2".parse().unwrap()), Some(expected), "the next answer is not mixed up");
    }

    #[test]
    fn attributes_are_read_up_to_a_cut() {
        let mut bytes = Vec::new();
        for (kind, value) in [(4_u16, &7_u32.to_ne_bytes()[..]), (0x8008, &[8, 0, 2, 0, 0x14, 5, 0, 0])] {
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
        }
        let way = RouteWay::read(&bytes).unwrap();
        assert_eq!(way.device, 7);
        assert_eq!(way.mtu, Some(u32::from_ne_bytes([0x14, 5, 0, 0])));
        for cut in 0..bytes.len() {
            let way = RouteWay::read(&bytes[..cut]);
            assert_eq!(way.is_some(), cut >= 8, "{cut}");
            assert!(way.is_none_or(|way| way.mtu.is_none()));
        }
        assert!(RouteWay::read(&[0; 64]).is_none(), "a length of zero ends it");
    }
}
