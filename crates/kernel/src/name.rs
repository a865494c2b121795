//! The address of a socket as the kernel has it: `struct sockaddr`.

use std::ffi::c_int;
use std::net::{SocketAddr, SocketAddrV6};

use zerocopy::FromBytes;

/// `struct sockaddr_in6`. In a `struct sockaddr_in`, the address is in the place of the flow.
#[derive(Clone, Copy, Debug, Default, FromBytes)]
#[repr(C)]
pub(crate) struct Name {
    family: u16,
    /// In network byte order.
    port: u16,
    v4: [u8; 4],
    v6: [u8; 16],
    scope: u32,
}

impl Name {
    const V4_BYTES: u32 = 16;
    /// Bytes of the longest name.
    pub(crate) const V6_BYTES: u32 = 28;

    /// Returns the name of an address, and its length.
    pub(crate) fn from_address(address: SocketAddr) -> (Self, u32) {
        let port = address.port().to_be();
        match address {
            SocketAddr::V4(v4) => (Self { family: V4, port, v4: v4.ip().octets(), ..Self::default() }, Self::V4_BYTES),
            SocketAddr::V6(v6) => {
                let name = Self { family: V6, port, v6: v6.ip().octets(), scope: v6.scope_id(), ..Self::default() };
                (name, Self::V6_BYTES)
            }
        }
    }

    /// Reads a name from the bytes of its `struct sockaddr`, as far as they go.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut whole = [0; Self::V6_BYTES as usize];
        let length = bytes.len().min(whole.len());
        whole[..length].copy_from_slice(&bytes[..length]);
        let family = u16::from_ne_bytes(*whole.first_chunk()?);
        let required = if family == V6 { Self::V6_BYTES } else { Self::V4_BYTES };
        (length >= required as usize).then_some(())?;
        Some(Self {
            family,
            port: u16::from_ne_bytes(*whole[2..].first_chunk()?),
            v4: *whole[4..].first_chunk()?,
            v6: *whole[8..].first_chunk()?,
            scope: u32::from_ne_bytes(*whole[24..].first_chunk()?),
        })
    }

    /// Returns the address of a complete name.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.read(Self::V6_BYTES)
    }

    /// Returns the address of a name of which the kernel has written `length` bytes.
    pub(crate) fn read(&self, length: u32) -> Option<SocketAddr> {
        let port = u16::from_be(self.port);
        match self.family {
            V4 if length >= Self::V4_BYTES => Some((self.v4, port).into()),
            V6 if length >= Self::V6_BYTES => Some(SocketAddrV6::new(self.v6.into(), port, 0, self.scope).into()),
            _ => None,
        }
    }
}

/// `AF_INET`, as an address has it.
const V4: u16 = 2;
/// `AF_INET6`, as an address has it.
const V6: u16 = 10;
const _: () = assert!(size_of::<Name>() == 28);
const _: () = assert!(V4 as c_int == libc::AF_INET && V6 as c_int == libc::AF_INET6);
