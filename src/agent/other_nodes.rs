//! An address may have gone to another node since it was listed. The answers to UDP probes say
//! whose they are.

use std::net::IpAddr;

use super::ProbeLoop;
use crate::peers::{Change, Directory, SlotId, name_in_reports};
use crate::prober::Probers;

impl ProbeLoop {
    /// Tells the UDP prober which node a new slot is of.
    pub(super) fn expect(probers: &mut Probers, change: Change, directory: &Directory) {
        if let (Change::Join { slot }, Some(udp)) = (change, &mut probers.udp)
            && let Some(peer) = directory.peer(slot)
        {
            // DNS gives no name: the address stands for it until the node tells its own.
            let is_named = peer.node().parse::<IpAddr>().is_err();
            udp.expect(slot, if is_named { name_in_reports(peer.node()) } else { 0 });
        }
    }

    /// Tells statistics and probers for which peers another node answers. Nothing that their
    /// addresses answer counts, by whichever method.
    pub(super) fn displace(&mut self) {
        let Some(udp) = self.probers.udp.as_mut().filter(|udp| udp.has_news()) else { return };
        // The next turn tries again.
        let Ok(mut directory) = self.view.directory.try_write() else { return };
        udp.take_news();
        let mut changes = Vec::new();
        for slot in (0..self.slots).map(SlotId::at) {
            let is_other = udp.other_node_answers(slot);
            changes.extend(directory.answers_as_other(slot, is_other));
            if is_other
                && !std::mem::replace(&mut self.told_of_other, true)
                && let Some(peer) = directory.peer(slot)
            {
                let (node, address) = (peer.node(), peer.address());
                log::warn!("another node than {node} answers at {address}, so nothing there counts for {node}");
            }
        }
        for change in changes {
            self.view.statistics.apply(change);
            self.probers.apply(change);
        }
    }
}
