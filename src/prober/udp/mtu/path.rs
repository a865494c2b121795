//! What is known of the path MTU of a slot: 8 bytes.

use crate::prober::Flow;

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PathState {
    /// No packet of the full size has been answered, and no hole is certain.
    #[default]
    Unknown,
    /// The full size passes.
    Full,
    /// Large packets vanish without an error.
    HoleSilent,
    /// Large packets vanish, and the network says that they are too big.
    HoleSaid,
}

/// The path MTU of a slot, towards its peer. All sizes are those of the IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest size that is known to pass. 0 if the state is unknown.
    pub path_mtu_bytes: u16,
    /// The full size, which is the MTU of the route. 0 if it was not probed yet.
    pub full_bytes: u16,
    /// The MTU that the network said. 0 if it said none.
    pub said_bytes: u16,
    /// The state of the path.
    pub state: PathState,
    /// Bits 0 to 3: the flow. Bit 4: the slot is probed. Bit 5: its address is an IPv6 address.
    flags: u8,
}

const _: () = assert!(size_of::<PathMtu>() == 8);

const FLOW: u8 = 0x0f;
const ACTIVE: u8 = 0x10;
const IPV6: u8 = 0x20;
const _: () = assert!(crate::limits::FLOWS_MAX <= FLOW + 1);

impl PathMtu {
    /// A slot of which nothing is known.
    pub(super) const NEW: Self =
        Self { path_mtu_bytes: 0, full_bytes: 0, said_bytes: 0, state: PathState::Unknown, flags: 0 };

    /// Returns whether there is a hole.
    pub const fn has_hole(&self) -> bool {
        matches!(self.state, PathState::HoleSilent | PathState::HoleSaid)
    }

    /// Returns the source port on which the hole was found. Other flows may take other paths.
    pub const fn flow(&self) -> Flow {
        Flow(self.flags & FLOW)
    }

    pub(super) const fn is_active(self) -> bool {
        self.flags & ACTIVE != 0
    }

    pub(super) const fn is_ipv6(self) -> bool {
        self.flags & IPV6 != 0
    }

    pub(super) const fn set_active(&mut self, active: bool) {
        self.flags = self.flags & !ACTIVE | if active { ACTIVE } else { 0 };
    }

    pub(super) const fn set_route(&mut self, full: u16, ipv6: bool) {
        self.full_bytes = full;
        self.flags = self.flags & !IPV6 | if ipv6 { IPV6 } else { 0 };
    }

    pub(super) const fn set_flow(&mut self, flow: Flow) {
        self.flags = self.flags & !FLOW | flow.0 & FLOW;
    }

    /// Forgets the path, whose address has changed.
    pub(super) const fn forget(&mut self) {
        *self = Self { flags: self.flags & ACTIVE, ..Self::NEW };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_path_are_apart() {
        let mut path = PathMtu::NEW;
        path.set_route(9_000, true);
        path.set_flow(Flow(15));
        path.set_active(true);
        assert_eq!((path.flow(), path.is_active(), path.is_ipv6()), (Flow(15), true, true));
        path.set_flow(Flow(0));
        assert_eq!((path.flow(), path.is_active(), path.is_ipv6()), (Flow(0), true, true));
        path.forget();
        assert_eq!((path.flow(), path.is_active(), path.is_ipv6()), (Flow(0), true, false));
    }
}
