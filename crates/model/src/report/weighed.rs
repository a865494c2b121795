//! The weight of few probes when losses are compared.

/// Losses are compared as if this many more probes had been answered.
///
/// A lost handshake is repeated sooner than a usual one is due. So of a fault of 30 %, six of eight
/// handshakes may be lost, which must be no worse than 18 of 60 echo requests.
const ANSWERED_BEFORE: f32 = 20.0;

/// Returns the loss by which links, and the protocols of one, are compared: 0 to 1. Few lost probes
/// weigh less than the same share of many. The larger, the worse.
pub fn weighed_loss(lost: u32, probes: u32) -> f32 {
    lost as f32 / (probes as f32 + ANSWERED_BEFORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lost_handshakes_weigh_less_than_a_like_share_of_echo_requests() {
        for (handshakes, echoes) in [((1, 6), (10, 60)), ((6, 8), (18, 60)), ((3, 4), (9, 30))] {
            assert!(weighed_loss(handshakes.0, handshakes.1) < weighed_loss(echoes.0, echoes.1));
        }
        assert!(weighed_loss(12, 12) > weighed_loss(5, 60), "TCP alone is cut off");
        assert!(weighed_loss(1, 6) > weighed_loss(0, 60));
    }
}
