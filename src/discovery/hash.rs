//! Where a name is on each ring, and what stands for it in a report. Every agent of a mesh must
//! agree, whatever its version, CPU and libraries. So these hashes never change, as `DefaultHasher`
//! may.

use siphasher::sip::SipHasher24;

/// Returns the hash of a name. It mixes in little-endian words of eight bytes, each by a
/// multiplication. The length distinguishes padding from zero bytes.
fn name_hash(name: &str) -> u64 {
    let mut hash = name.len() as u64;
    for chunk in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// 2014).
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the position on the first ring, where watchers are found first, those of
/// other zones before all.
pub fn on_ring(name: &str) -> u64 {
    name_hash(name)
}

/// Returns the position on the second ring. It is used for watchers from other zones if the first
/// ring has none close enough. Then it gives further targets to watchers with capacity left.
pub fn on_second_ring(name: &str) -> u64 {
    mix(name_hash(name) ^ 0x5851_f42d_4c95_7f2d)
}

/// Returns a number in 0..65536 that is independent of both positions.
pub fn lot(name: &str) -> u64 {
    mix(name_hash(name) ^ 0x1405_7b7e_f767_814f) >> 48
}

/// Returns the rank of a name or an address among those that may judge, the smallest first. It is
/// independent of both positions.
pub fn rank(name: &str) -> u64 {
    mix(name_hash(name) ^ 0x2545_f491_4f6c_dd1d)
}

/// Returns what stands for a name in compact reports. Another name with the same hash cannot be
/// found, so whoever chooses names, as pods do with DNS, cannot pass for another node.
pub fn in_reports(name: &str) -> u64 {
    SipHasher24::new().hash(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent of another version must find every node at the same place. These
    /// numbers must never change.
    #[test]
    fn positions_of_names_never_change() {
        let positions = |name| (on_ring(name), on_second_ring(name), lot(name));
        assert_eq!(positions("node-1"), (0x50d5_6e6e_09aa_6db4, 0xef0e_cf30_3206_b12e, 25814));
        assert_eq!(rank("node-1"), 0x6a61_e3d7_506b_14d4);
        assert_eq!(in_reports("node-1"), 0x66c6_bac1_a280_94a0);
        assert_eq!(positions("ip-10-0-0-7.eu-central-1.compute"), (0x51da_7874_828f_1431, 0x6451_240c_d70d_9ed2, 8096));
    }

    #[test]
    fn names_that_differ_in_padding_alone_differ() {
        assert_ne!(on_ring("a"), on_ring("a\0"));
    }
}
