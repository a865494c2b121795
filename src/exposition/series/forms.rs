//! In which form peers and zone pairs are exported, so that all series together stay within the budget.
//!
//! Pure: what there is to export and the time come as arguments. The forms are a ladder of pairs, the dearest and most telling
//! first; whoever no longer fits goes down at once, and comes up again only where there has been room, and a margin, for
//! [`SERIES_RETURN_TIME`]: a series that flaps is worse than none, for every rate over it breaks.

use crate::limits::{SERIES_MARGIN_PERCENT, SERIES_RETURN_TIME, SERIES_WORST_PERCENT, SERIES_ZONES_PERCENT};
use crate::units::Nanos;

/// Counters of a peer that are always there: sent, received, lost, late, duplicate, reordered, corrupt.
pub const PEER_COUNTERS: usize = 7;
/// Counters of a zone pair: sent, received, lost.
pub const ZONE_COUNTERS: usize = 3;
/// Sum and count.
pub const SUMS: usize = 2;
/// Room that every exported peer has for what comes later: both results of a terminating peer, which a drain or a rollout
/// brings for many at once and which then stay, and one reason of send errors.
pub const PEER_RESERVE: usize = TERMINATING_RESERVE + SEND_ERRORS_RESERVE;
const TERMINATING_RESERVE: usize = 2;
/// Reasons of send errors that every exported peer has room for.
pub const SEND_ERRORS_RESERVE: usize = 1;
/// What one of the worst peers takes, its reserve included.
pub const WORST_COST: usize = PEER_COUNTERS + SUMS + PEER_RESERVE;

/// How peers are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peers {
    /// All, with histograms.
    #[default]
    Histograms,
    /// All, their round-trip times as sum and count.
    Sums,
    /// In that form the worst alone.
    Worst,
}

/// How zone pairs are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zones {
    /// With histograms.
    #[default]
    Histograms,
    /// Round-trip times as sum and count.
    Sums,
    /// Without round-trip times.
    Counters,
}

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// Of zone pairs.
    pub zones: Zones,
    /// Of peers.
    pub peers: Peers,
}

/// What does not change while the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Series of a scrape, at most.
    pub budget: usize,
    /// The agent's own, which are always there.
    pub own: usize,
    /// Of one histogram of round-trip times.
    pub histogram: usize,
}

/// What there is to export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Peers, those included that have left and are not forgotten.
    pub peers: usize,
    /// Zone pairs.
    pub zones: usize,
}

const fn forms(zones: Zones, peers: Peers) -> Forms {
    Forms { zones, peers }
}

/// The first that fits is taken. All peers with counters come before the zones' histograms, which sums over peers can
/// nearly make up for; with the worst peers alone they cannot, and zones get theirs back where they take no more than
/// their share.
const LADDER: [Forms; 7] = [
    forms(Zones::Histograms, Peers::Histograms),
    forms(Zones::Histograms, Peers::Sums),
    forms(Zones::Sums, Peers::Histograms),
    forms(Zones::Sums, Peers::Sums),
    forms(Zones::Histograms, Peers::Worst),
    forms(Zones::Sums, Peers::Worst),
    LAST,
];
/// Fits always: as many zone pairs and peers as there is room for.
const LAST: Forms = forms(Zones::Counters, Peers::Worst);

impl Costs {
    /// Series of a zone pair.
    pub const fn zone(&self, form: Zones) -> usize {
        match form {
            Zones::Histograms => ZONE_COUNTERS + self.histogram,
            Zones::Sums => ZONE_COUNTERS + SUMS,
            Zones::Counters => ZONE_COUNTERS,
        }
    }

    /// Series of a peer, its reserve included.
    pub const fn peer(&self, form: Peers) -> usize {
        match form {
            Peers::Histograms => PEER_COUNTERS + self.histogram + PEER_RESERVE,
            Peers::Sums | Peers::Worst => WORST_COST,
        }
    }

    /// Zone pairs that can be exported in this form: peers keep room for the worst of them.
    pub const fn zone_places(&self, form: Zones) -> usize {
        let worst = percent(self.budget, SERIES_WORST_PERCENT);
        self.budget.saturating_sub(self.own + worst) / self.zone(form)
    }

    /// What is left beside so many zone pairs.
    pub const fn room_for_peers(&self, zones: usize, form: Zones) -> usize {
        self.budget.saturating_sub(self.own + zones * self.zone(form))
    }

    /// Whether it all fits, each with so many percent of what it takes.
    fn fit(&self, demand: Demand, forms: Forms, zones_percent: usize, peers_percent: usize) -> bool {
        if forms == LAST {
            return true;
        }
        let zones = percent(demand.zones * self.zone(forms.zones), zones_percent);
        let has_share = forms.zones != Zones::Histograms || zones <= percent(self.budget, SERIES_ZONES_PERCENT);
        let peers = match forms.peers {
            Peers::Worst => percent(self.budget, SERIES_WORST_PERCENT),
            form => percent(demand.peers * self.peer(form), peers_percent),
        };
        has_share && self.own + zones + peers <= self.budget
    }
}

const fn percent(of: usize, percent: usize) -> usize {
    (of * percent).div_ceil(100)
}

/// Which rung we are on, and since when there has been room for a higher one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ladder {
    rung: usize,
    roomy: Option<(usize, Nanos)>,
}

impl Ladder {
    /// The forms as of `now`. Time does not go back from one call to the next.
    pub fn decide(&mut self, now: Nanos, costs: &Costs, demand: Demand) -> Forms {
        let current = LADDER[self.rung];
        if !costs.fit(demand, current, 100, 100) {
            // Not one that is larger in anything: that would have to wait.
            let smaller = |forms: &Forms| forms.zones >= current.zones && forms.peers >= current.peers;
            let fits = |forms: &Forms| smaller(forms) && costs.fit(demand, *forms, 100, 100);
            *self = Self { rung: LADDER.iter().position(fits).unwrap_or(LADDER.len() - 1), roomy: None };
            return LADDER[self.rung];
        }
        // Where all peers have a place among the worst, nothing is won by it at the cost of the zones.
        let zones = demand.zones.min(costs.zone_places(current.zones));
        let is_short = demand.peers * WORST_COST > costs.room_for_peers(zones, current.zones);
        let has_room = |rung: usize| {
            let forms = LADDER[rung];
            if forms.zones > current.zones && !is_short {
                return false;
            }
            let margin = |grows| if grows { 100 + SERIES_MARGIN_PERCENT } else { 100 };
            costs.fit(demand, forms, margin(forms.zones < current.zones), margin(forms.peers < current.peers))
        };
        // Of what there has been room for all the time, the least.
        let best = (0..self.rung).find(|rung| has_room(*rung));
        let before = self.roomy.filter(|(rung, _)| has_room(*rung));
        self.roomy = best.map(|best| before.map_or((best, now), |(rung, since)| (rung.max(best), since)));
        if let Some((rung, since)) = self.roomy
            && now.since(since) >= SERIES_RETURN_TIME.into()
        {
            *self = Self { rung, roomy: None };
        }
        LADDER[self.rung]
    }

    /// Whether all peers return, if there is room for them a while longer.
    pub fn awaits_all_peers(&self) -> bool {
        self.roomy.is_some_and(|(rung, _)| LADDER[rung].peers != Peers::Worst)
    }

    /// Peers have gone that would return with all others: that takes the whole time from now on.
    pub fn wait_anew(&mut self, now: Nanos) {
        if self.awaits_all_peers() {
            self.roomy = self.roomy.map(|(rung, _)| (rung, now));
        }
    }
}

/// Whether something small is exported that has no reserve: gone at once, back after room for a time, as the forms.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    shown: bool,
    roomy: Option<Nanos>,
    fingerprint: u64,
}

impl Default for Extra {
    fn default() -> Self {
        Self { shown: true, roomy: None, fingerprint: 0 }
    }
}

/// What there is of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDemand {
    /// Series.
    pub series: usize,
    /// Room for them.
    pub room: usize,
    /// Whether they did not fit the last time.
    pub has_overflown: bool,
    /// Another where something may have become one of those series that was exported in its own right.
    pub fingerprint: u64,
}

impl Extra {
    /// Whether it is exported as of `now`.
    pub fn decide(&mut self, now: Nanos, demand: ExtraDemand) -> bool {
        let ExtraDemand { series, room, has_overflown, fingerprint } = demand;
        if self.shown {
            self.shown = series <= room && !has_overflown;
            self.roomy = None;
        } else if percent(series, 100 + SERIES_MARGIN_PERCENT) > room {
            self.roomy = None;
        } else {
            self.roomy = self.roomy.filter(|_| self.fingerprint == fingerprint);
            let since = *self.roomy.get_or_insert(now);
            self.shown = now.since(since) >= SERIES_RETURN_TIME.into();
        }
        self.fingerprint = fingerprint;
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{SERIES_BUDGET_DEFAULT, SERIES_BUDGET_MIN};

    const COSTS: Costs = Costs { budget: SERIES_BUDGET_DEFAULT, own: 100, histogram: 19 };

    fn minutes(n: u64) -> Nanos {
        Nanos::from_millis(n * 60_000)
    }

    fn first(costs: &Costs, peers: usize, zones: usize) -> Forms {
        Ladder::default().decide(Nanos(0), costs, Demand { peers, zones })
    }

    #[test]
    fn the_default_budget_holds_what_the_documentation_says() {
        use Peers::{Histograms, Sums, Worst};
        for (peers, zones, expected) in [
            (11, 3, forms(Zones::Histograms, Histograms)),
            (12, 3, forms(Zones::Histograms, Sums)),
            (27, 3, forms(Zones::Histograms, Sums)),
            (24, 9, forms(Zones::Sums, Sums)),
            (24, 20, forms(Zones::Sums, Sums)),
            (10, 10, forms(Zones::Sums, Histograms)),
            (34, 3, forms(Zones::Histograms, Worst)),
            (5_000, 3, forms(Zones::Histograms, Worst)),
            (5_000, 10, forms(Zones::Sums, Worst)),
            (5_000, 80, forms(Zones::Counters, Worst)),
            (5_000, 256, forms(Zones::Counters, Worst)),
        ] {
            assert_eq!(first(&COSTS, peers, zones), expected, "{peers} peers, {zones} zone pairs");
        }
    }

    #[test]
    fn nothing_ever_takes_more_than_the_budget_and_the_worst_always_have_room() {
        for budget in [SERIES_BUDGET_MIN, 250, 500, 1_000, 50_000] {
            for (own, histogram) in [(100, 19), (110, 4), (110, 19)] {
                let costs = Costs { budget, own, histogram };
                for peers in (0..200).chain([5_000, 16_384]) {
                    for zones in (0..=256).step_by(7) {
                        let Forms { zones: zone_form, peers: peer_form } = first(&costs, peers, zones);
                        let zones = zones.min(costs.zone_places(zone_form));
                        let room = costs.room_for_peers(zones, zone_form);
                        assert!(own + zones * costs.zone(zone_form) <= budget);
                        match peer_form {
                            Peers::Worst => assert!(room >= WORST_COST, "{costs:?} {zones}"),
                            form => assert!(peers * costs.peer(form) <= room, "{costs:?} {peers} {zones}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn down_at_once_and_up_after_five_minutes_of_room_and_a_margin() {
        let mut ladder = Ladder::default();
        let mut at = |time: Nanos, peers| ladder.decide(time, &COSTS, Demand { peers, zones: 3 }).peers;
        assert_eq!(at(minutes(0), 5), Peers::Histograms);
        assert_eq!(at(minutes(1), 24), Peers::Sums);
        assert_eq!(at(minutes(2), 100), Peers::Worst);
        // 24 have room and a margin; 26 have room alone.
        for minute in 3..20 {
            assert_eq!(at(minutes(minute), 26), Peers::Worst, "{minute}");
        }
        assert_eq!(at(minutes(20), 24), Peers::Worst);
        assert_eq!(at(minutes(24), 26), Peers::Worst, "it begins anew");
        assert_eq!(at(minutes(25), 24), Peers::Worst);
        assert_eq!(at(Nanos(minutes(30).0 - 1), 24), Peers::Worst);
        assert_eq!(at(minutes(30), 24), Peers::Sums);
        // Of the higher rungs the one that there was room for all the time.
        assert_eq!(at(minutes(31), 100), Peers::Worst);
        assert_eq!(at(minutes(32), 24), Peers::Worst);
        assert_eq!(at(minutes(36), 5), Peers::Worst);
        assert_eq!(at(minutes(37), 5), Peers::Sums);
        assert_eq!(at(minutes(42), 5), Peers::Sums);
        assert_eq!(at(minutes(47), 5), Peers::Histograms);
    }

    #[test]
    fn what_goes_down_takes_nothing_up_at_once() {
        let mut ladder = Ladder::default();
        let mut at = |time, peers| ladder.decide(time, &COSTS, Demand { peers, zones: 9 });
        assert_eq!(at(minutes(0), 24), forms(Zones::Sums, Peers::Sums));
        // With the worst peers alone zones may have histograms again, but not yet.
        assert_eq!(at(minutes(1), 200), forms(Zones::Sums, Peers::Worst));
        // 198 of 200 series are no margin.
        assert_eq!(at(minutes(60), 200), forms(Zones::Sums, Peers::Worst));
        let mut ladder = Ladder::default();
        let mut at = |time, peers| ladder.decide(time, &COSTS, Demand { peers, zones: 8 });
        assert_eq!(at(minutes(0), 24), forms(Zones::Sums, Peers::Sums));
        assert_eq!(at(minutes(1), 200), forms(Zones::Sums, Peers::Worst));
        assert_eq!(at(minutes(2), 200), forms(Zones::Sums, Peers::Worst));
        assert_eq!(at(minutes(7), 200), forms(Zones::Histograms, Peers::Worst));
    }

    #[test]
    fn an_extra_goes_at_once_and_comes_back_late() {
        let mut extra = Extra::default();
        let mut at = |minute, series, fingerprint| {
            extra.decide(minutes(minute), ExtraDemand { series, room: 20, fingerprint, has_overflown: false })
        };
        assert!(at(0, 20, 0));
        assert!(!at(1, 21, 0));
        assert!(!at(2, 18, 0));
        assert!(!at(6, 19, 0), "no margin");
        assert!(!at(8, 18, 0));
        assert!(!at(12, 18, 1), "something has just been hidden");
        assert!(!at(16, 18, 1));
        assert!(at(17, 18, 1));
        let overflown = ExtraDemand { series: 18, room: 20, fingerprint: 1, has_overflown: true };
        assert!(!extra.decide(minutes(18), overflown));
    }
}
