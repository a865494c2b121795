//! The session of a source, and what it has heard from strangers, in a compact report.

use std::net::IpAddr;

use super::super::{Session, Source, Stranger};
use super::{Bytes, narrow, varint};
use crate::limits::STRANGERS_MAX;

/// Addresses of a session: one of each family.
const ADDRESSES_MAX: usize = 2;

/// Writes both, as far as there are any.
pub(super) fn write(head: &mut Vec<u8>, source: &Source<'_>) {
    if let Some(Session { ssid, addresses }) = &source.session {
        head.extend(ssid.to_le_bytes());
        let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        head.push(narrow(u32::try_from(addresses.len()).unwrap_or_default()));
        for it in addresses {
            address(head, *it);
        }
    }
    if !source.strangers.is_empty() {
        let strangers = &source.strangers[..source.strangers.len().min(STRANGERS_MAX)];
        head.push(narrow(u32::try_from(strangers.len()).unwrap_or_default()));
        for stranger in strangers {
            head.extend(stranger.ssid.to_le_bytes());
            address(head, stranger.address);
            varint(head, stranger.requests.into());
        }
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    let bytes: &[u8] = match &address {
        IpAddr::V4(v4) => &v4.octets(),
        IpAddr::V6(v6) => &v6.octets(),
    };
    out.push(u8::try_from(bytes.len()).unwrap_or_default());
    out.extend_from_slice(bytes);
}

impl Bytes<'_> {
    fn address(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            4 => Some(IpAddr::from(self.array::<4>()?)),
            16 => Some(IpAddr::from(self.array::<16>()?)),
            _ => None,
        }
    }

    pub(super) fn session(&mut self) -> Option<Session> {
        let ssid = u16::from_le_bytes(self.array()?);
        let count = usize::from(self.byte()?);
        if count > ADDRESSES_MAX {
            return None;
        }
        let addresses = (0..count).map(|_| self.address()).collect::<Option<_>>()?;
        Some(Session { ssid, addresses })
    }

    pub(super) fn strangers(&mut self) -> Option<Vec<Stranger>> {
        let count = usize::from(self.byte()?);
        if count == 0 || count > STRANGERS_MAX {
            return None;
        }
        let stranger = |_| {
            let ssid = u16::from_le_bytes(self.array()?);
            Some(Stranger { ssid, address: self.address()?, requests: self.count()? })
        };
        (0..count).map(stranger).collect()
    }
}
