//! VLAN: removes tags of received frames, and adds those of sent ones; no stage between sees a tag.

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_wire::{EtherType, vlan};

use super::context::{Context, Tags};
use super::settings::PortMap;
use crate::model::InterfaceId;

/// The stage of ports that have VLANs: it leaves in the burst what came by one interface, and keeps
/// the rest for its next calls, with an empty burst, until nothing comes out.
pub struct Vlan {
    /// Packets without their tags, and the VLAN number of each.
    rest: Burst,
    numbers: [Option<u16>; Burst::CAPACITY],
}

impl Default for Vlan {
    fn default() -> Self {
        Self {
            rest: Burst::new(),
            numbers: [None; Burst::CAPACITY],
        }
    }
}

impl Vlan {
    /// Takes the first packets that are of one VLAN out of the rest; returns its number.
    fn next(&mut self, burst: &mut Burst) -> Option<u16> {
        let number = self.numbers[0];
        let (mut index, mut left) = (0, 0);
        let mut one = std::mem::take(&mut self.rest);
        (burst.now, burst.port) = (one.now, one.port);
        let numbers = &mut self.numbers;
        one.retain(&mut self.rest, |_| {
            let own = numbers[index];
            index += 1;
            if own != number {
                numbers[left] = own;
                left += 1;
            }
            own == number
        });
        (self.rest.now, self.rest.port) = (one.now, one.port);
        *burst = one;
        number
    }
}

/// The interface of a port that frames of a VLAN number come by; 0: without a tag.
fn interface(map: &PortMap, number: u16) -> Option<InterfaceId> {
    match number {
        0 => map.untagged,
        number => {
            let known = map.vlans.binary_search_by_key(&number, |vlan| vlan.0);
            known.ok().map(|at| map.vlans[at].1)
        }
    }
}

impl Stage<Context<'_>> for Vlan {
    #[cold]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        if self.rest.is_empty() {
            for (packet, number) in burst.iter_mut().zip(&mut self.numbers) {
                *number = untag(packet);
            }
            std::mem::swap(&mut self.rest, burst);
        }
        while !self.rest.is_empty() {
            let number = self.next(burst);
            let map = context.view.settings.ports.get(usize::from(burst.port));
            let found = number.and_then(|number| interface(map?, number));
            if let Some(id) = found.filter(|id| context.installed.has(*id)) {
                return context.packets.begin(id, Tags::Off);
            }
            let reason = match number {
                Some(0) => context.reasons.no_interface,
                Some(_) => context.reasons.unknown_vlan,
                None => context.reasons.truncated,
            };
            out.drop_burst(reason, burst);
        }
    }

    fn held(&self) -> u64 {
        self.rest.len() as u64
    }
}

/// The part of tag control information that is the VLAN's number. All ones is reserved (IEEE 802.1Q
/// 9.6).
const ID: u16 = 0xfff;

/// Takes the tag off, from the metadata or from the frame, and gives its VLAN number; 0 where there
/// was no tag, or only a priority tag (IEEE 802.1Q 9.6); [`ID`] for a service tag (802.1ad), whose
/// numbers are separate. `None` where the frame ends inside its tag.
pub(super) fn untag(packet: &mut Packet) -> Option<u16> {
    let number = |is_ours, tci| if is_ours { tci & ID } else { ID };
    if packet.meta().offload.intersects(Offload::VLAN) {
        let meta = packet.meta_mut();
        let is_ours = !meta.offload.intersects(Offload::VLAN_8021AD);
        meta.offload.remove(Offload::VLAN | Offload::VLAN_8021AD);
        return Some(number(is_ours, meta.vlan_tci));
    }
    let ethertype = match packet.data().get(12..14) {
        Some(two) => EtherType(u16::from_be_bytes([two[0], two[1]])),
        None => return Some(0),
    };
    if !ethertype.is_vlan() {
        return Some(0);
    }
    let tci = vlan::remove(packet.data_mut())?;
    packet.trim_front(vlan::TAG_LEN);
    let meta = packet.meta_mut();
    meta.csum_start = meta.csum_start.saturating_sub(vlan::TAG_LEN as u16);
    Some(number(ethertype == EtherType::VLAN, tci))
}

/// Puts a tag into a frame. False where it has no room, or no whole Ethernet header.
pub(super) fn tag(packet: &mut Packet, tci: u16) -> bool {
    if packet.prepend(vlan::TAG_LEN).is_none() {
        return false;
    }
    if !vlan::insert(packet.data_mut(), EtherType::VLAN, tci) {
        packet.trim_front(vlan::TAG_LEN);
        return false;
    }
    let meta = packet.meta_mut();
    meta.csum_start = meta.csum_start.saturating_add(vlan::TAG_LEN as u16);
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_core::packet::{Pool, PoolCache, PoolConfig};

    fn packet(bytes: &[u8]) -> (Pool, Packet) {
        let pool = Pool::new(&PoolConfig::new("vlan", 64)).unwrap();
        let mut packet = PoolCache::new(std::slice::from_ref(&pool))
            .get(&pool)
            .unwrap();
        packet.set_data(bytes);
        (pool, packet)
    }

    #[test]
    fn what_is_tagged_and_untagged_is_as_before() {
        let bytes: Vec<u8> = (0..60).collect();
        let (_pool, mut packet) = packet(&bytes);
        packet.meta_mut().csum_start = 34;
        assert!(tag(&mut packet, 0x2064));
        assert_eq!(packet.data()[12..16], [0x81, 0, 0x20, 0x64]);
        assert_eq!(packet.meta().csum_start, 38);
        assert_eq!(untag(&mut packet), Some(0x064));
        assert_eq!((packet.data(), packet.meta().csum_start), (&*bytes, 34));
        assert_eq!(untag(&mut packet), Some(0));
    }

    #[test]
    fn a_tag_in_the_metadata_is_one_too() {
        let (_pool, mut packet) = packet(&[0; 60]);
        let meta = packet.meta_mut();
        meta.vlan_tci = 0xe007;
        meta.offload.insert(Offload::VLAN);
        assert_eq!(untag(&mut packet), Some(7));
        assert!(!packet.meta().offload.intersects(Offload::VLAN));
        let meta = packet.meta_mut();
        meta.offload.insert(Offload::VLAN | Offload::VLAN_8021AD);
        assert_eq!(untag(&mut packet), Some(ID));
    }

    #[test]
    fn frames_that_end_too_early_are_told() {
        let mut bytes = [0; 17];
        bytes[12] = 0x81;
        let (_pool, mut packet) = packet(&bytes);
        assert_eq!(untag(&mut packet), None);
        packet.truncate(13);
        assert_eq!(untag(&mut packet), Some(0)); // no EtherType: the parser will say so
        assert!(!tag(&mut packet, 1));
        assert_eq!(packet.len(), 13);
    }
}
