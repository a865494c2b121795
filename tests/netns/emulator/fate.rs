//! The fate of a packet on the link: as a script says, or random from a seed.
//!
//! A random fate depends only on the seed, the address and the sequence number. So it depends on no
//! timing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use crate::random::Random;

/// The path of an echo request to the peer, and the path of its reply back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// The copies of the request that arrive at the peer, which answers each. Empty:
    /// the request is lost.
    pub arrivals: Vec<Arrival>,
}

/// A request at the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The delay of the request.
    pub after: Duration,
    /// The delay of each copy of the reply. Empty: the reply is lost.
    pub replies: Vec<Duration>,
}

impl Fate {
    /// The request does not arrive.
    pub const REQUEST_LOST: Self = Self { arrivals: Vec::new() };

    /// One reply after `delay`, half of which is in each direction.
    pub fn after(delay: Duration) -> Self {
        Self::of(delay, &[delay])
    }

    /// The request arrives; the reply does not.
    pub fn reply_lost(delay: Duration) -> Self {
        Self::of(delay, &[])
    }

    /// The network doubles the reply, and the copy takes longer.
    pub fn reply_doubled(delay: Duration, copy: Duration) -> Self {
        Self::of(delay, &[delay, copy])
    }

    /// The network doubles the request, and the peer answers both.
    pub fn request_doubled(delay: Duration, copy: Duration) -> Self {
        Self { arrivals: [delay, copy].into_iter().flat_map(|delay| Self::after(delay).arrivals).collect() }
    }

    fn of(delay: Duration, whole: &[Duration]) -> Self {
        let after = delay / 2;
        Self {
            arrivals: vec![Arrival { after, replies: whole.iter().map(|delay| delay.saturating_sub(after)).collect() }],
        }
    }

    /// The times between the request and its replies, in the order of the fate.
    pub fn replies(&self) -> impl Iterator<Item = Duration> {
        self.arrivals.iter().flat_map(|arrival| arrival.replies.iter().map(|back| arrival.after + *back))
    }
}

/// One direction of a random link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    pub delay: Duration,
    /// A uniform random delay, added to the fixed one, of at most this.
    pub jitter: Duration,
    /// Percent of packets that are lost.
    pub lost: u64,
    /// Percent of packets that are doubled. The copy has a delay of its own.
    pub doubled: u64,
    /// Percent of packets that are delayed by `held_for`, so that later ones overtake them.
    pub held: u64,
    pub held_for: Duration,
}

impl Way {
    fn copies(&self, random: &mut Random) -> Vec<Duration> {
        let number = if random.chance(self.lost) { 0 } else { 1 + usize::from(random.chance(self.doubled)) };
        (0..number).map(|_| self.time(random)).collect()
    }

    fn time(&self, random: &mut Random) -> Duration {
        let jitter = u64::try_from(self.jitter.as_nanos()).expect("a short time");
        let held = if random.chance(self.held) { self.held_for } else { Duration::ZERO };
        self.delay + Duration::from_nanos(random.below(jitter + 1)) + held
    }
}

/// A link with random fates, by direction.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub seed: u64,
    pub request: Way,
    pub reply: Way,
}

impl Link {
    /// Returns the fate of the probe `sequence` to `peer`.
    pub fn fate(&self, peer: IpAddr, sequence: u16) -> Fate {
        // DefaultHasher::new is unkeyed: the same in every process.
        let mut hasher = DefaultHasher::new();
        (self.seed, peer, sequence).hash(&mut hasher);
        let mut random = Random(hasher.finish());
        let arrivals = self.request.copies(&mut random).into_iter();
        Fate { arrivals: arrivals.map(|after| Arrival { after, replies: self.reply.copies(&mut random) }).collect() }
    }
}

#[test]
fn an_outcome_depends_only_on_the_seed() {
    let way = Way { delay: Duration::from_millis(5), jitter: Duration::from_millis(5), lost: 20, ..Way::default() };
    let fates = |seed| {
        let link = Link { seed, request: way, reply: Way { doubled: 30, ..way } };
        move |sequence| link.fate([198, 18, 1, 1].into(), sequence)
    };
    let (forward, backward, other): (Vec<_>, Vec<_>, Vec<_>) =
        ((0..500).map(fates(1)).collect(), (0..500).rev().map(fates(1)).collect(), (0..500).map(fates(2)).collect());
    assert!(forward.iter().eq(backward.iter().rev()));
    assert_ne!(forward, other);
    let number = |of: fn(&Fate) -> bool| forward.iter().filter(|fate| of(fate)).count();
    let counts = [number(|fate| fate.arrivals.is_empty()), number(|fate| fate.replies().count() == 2)];
    // The counts of 500: a fifth, and 0.8 × 0.8 × 0.3. They follow from the seed, so they are fixed
    // figures.
    assert!((70..130).contains(&counts[0]) && (60..140).contains(&counts[1]), "{counts:?}");
    assert!(forward.iter().flat_map(Fate::replies).all(|delay| (10..=20).contains(&delay.as_millis())));
}
