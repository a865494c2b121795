use super::halves::RECENT_HALF_PROBES;
use super::*;
use crate::limits::IN_FLIGHT_PER_PEER_MAX;
use crate::peers::Network;
use crate::prober::{Event, Observation};
use std::net::IpAddr;

const SLOT: SlotId = SlotId(70);
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn received(rtt: u64, reordered: bool) -> Event {
    Event::Received { rtt: Nanos(rtt), reordered, sequence: 0, stamp: Stamp::Kernel }
}

fn statistics() -> Statistics {
    let s = Statistics::new(Scale::default(), Nanos::from_millis(1_000));
    s.apply(Change::Join { slot: SLOT });
    s.apply(Change::Probe { slot: SLOT, address: ADDRESS, zone: ZoneId(2), network: Network::Pod, terminating: false });
    s
}

#[test]
fn an_agent_serves_the_probes_of_others_if_it_probes_by_udp_or_tcp() {
    for (methods, serves) in [
        (vec![Method::Icmp], false),
        (vec![Method::Icmp, Method::Tcp], true),
        (vec![Method::Udp], true),
        (vec![Method::Tcp], true),
    ] {
        let s = Statistics::for_methods(
            Scale::default(),
            Nanos::from_millis(1_000),
            Methods::new(methods.clone()),
            Methods::ALL,
        );
        s.set_listening_since(Nanos(5));
        assert_eq!(s.listening_for(Nanos(12)), serves.then_some(Nanos(7)), "{methods:?}");
    }
}

#[test]
fn events_count_for_the_peer_and_for_its_zone() {
    let s = statistics();
    for event in [
        Event::Sent,
        received(30_000, true),
        Event::Sent,
        Event::Lost,
        Event::Late,
        Event::Duplicate,
        Event::Corrupt,
        Event::NotSent(SendError::NoRoute),
        Event::Terminating { answered: false },
    ] {
        s.record(Method::Icmp, Observation::probe(SLOT, event));
    }
    let peer = s.method(Method::Icmp).slot(SLOT).unwrap().read();
    assert_eq!((peer.sent, peer.received, peer.lost, peer.late), (2, 1, 1, 1));
    assert_eq!((peer.duplicate, peer.reordered, peer.corrupt), (1, 1, 1));
    assert_eq!((peer.send_errors[0], peer.terminating), (1, [0, 1]));
    assert_eq!((s.send_errors(SendError::NoRoute), s.send_errors(SendError::Other)), (1, 0));
    assert_eq!([true, false].map(|answered| s.terminating(answered)), [0, 1]);
    let pair = s.method(Method::Icmp).zone(ZoneId(2), Via::ALL[0]).unwrap();
    let (zone, mut rtt) = (pair.read(), HistogramReading::default());
    pair.read_rtt(&mut rtt);
    assert_eq!((zone.sent, zone.received, zone.lost, rtt.count()), (2, 1, 1, 1));
    let ZoneReading { late, duplicate, reordered, corrupt, send_errors, terminating, .. } = zone;
    assert_eq!([late, duplicate, reordered, corrupt, send_errors, terminating], [1; 6]);
    assert!(peer.created >= s.created() && zone.created >= s.created() && s.created() > 1_600_000_000);
    assert!(
        s.method(Method::Icmp).zone(ZoneId(1), Via::ALL[0]).is_none()
            && s.method(Method::Icmp).slot(SlotId::at(PEER_SLOTS_MAX)).is_none()
    );
    assert_eq!(s.method(Method::Icmp).slot(SlotId(200)).unwrap().read(), PeerReading::default());
    assert_eq!(Stamp::ALL.map(|stamp| s.stamps(stamp)), [1, 0]);
}

#[test]
fn a_refusal_is_of_the_recent_window_in_which_it_came() {
    let s = Statistics::for_methods(Scale::default(), Nanos::from_millis(1_000), Methods::ALL, Methods::ALL);
    s.apply(Change::Join { slot: SLOT });
    let is_refused_at = |seconds: u64| {
        s.tick(Nanos::from_millis(seconds * 1_000));
        s.method(Method::Tcp).is_refused(SLOT)
    };
    assert!(!is_refused_at(1));
    s.record(Method::Tcp, Observation::Refused(SLOT));
    // The half that it came in, the next one, and no further.
    assert_eq!([2, 32, 62].map(is_refused_at), [true, true, false]);
    s.record(Method::Tcp, Observation::Refused(SLOT));
    s.apply(Change::Join { slot: SLOT });
    assert!(!is_refused_at(63), "another peer has the slot");
}

#[test]
fn a_new_holder_of_a_slot_starts_at_zero_and_its_zone_goes_on() {
    let s = statistics();
    s.record(Method::Icmp, Observation::probe(SLOT, Event::Sent));
    s.record(Method::Icmp, Observation::probe(SLOT, Event::Lost));
    s.apply(Change::Join { slot: SLOT });
    assert_eq!(s.method(Method::Icmp).slot(SLOT).unwrap().read().sent, 0);
    assert_eq!(s.method(Method::Icmp).zone(ZoneId(2), Via::ALL[0]).unwrap().read().sent, 1);
}

#[test]
fn a_zone_that_takes_the_number_of_another_inherits_nothing_and_what_it_has_not_is_gone() {
    let s = statistics();
    let probe = |address: &str| Change::Probe {
        slot: SLOT,
        address: address.parse().unwrap(),
        zone: ZoneId(2),
        network: Network::Pod,
        terminating: false,
    };
    s.apply(probe("fd00::1"));
    let zone = |via| s.method(Method::Icmp).zone(ZoneId(2), via).map(ZoneStatistics::read);
    let [v4, v6] = [ADDRESS, "fd00::1".parse().unwrap()].map(|address| Via::to(address, Network::Pod));
    s.record(Method::Icmp, Observation::probe(SLOT, received(30_000, false)));
    s.record(Method::Icmp, Observation::probe(SLOT, Event::Lost));
    assert_eq!((zone(v4).unwrap().sent, zone(v6).unwrap().sent), (0, 2));
    s.apply(Change::Zone { zone: ZoneId(2) });
    assert_eq!((zone(v4), zone(v6)), (None, None));
    s.apply(probe("fd00::2"));
    let begun = ZoneReading { created: zone(v6).unwrap().created, ..ZoneReading::default() };
    assert_eq!((zone(v4), zone(v6)), (None, Some(begun)));
    s.record(Method::Icmp, Observation::probe(SLOT, Event::Lost));
    assert_eq!(zone(v6).unwrap().lost, 1);
    s.apply(probe("fd00::2"));
    assert_eq!(zone(v6).unwrap().lost, 1, "a further peer of the zone resets nothing");
}

#[test]
fn the_99th_percentile_of_an_agent_is_over_the_probes_of_all_its_peers() {
    let s = Statistics::for_methods(Scale::default(), Nanos::from_millis(1_000), Methods::ALL, Methods::ALL);
    let slots = [0, 1, 2].map(SlotId);
    let p99 = |method| s.method(method).recent_rtt_p99_seconds(slots.into_iter());
    s.tick(Nanos(1));
    for slot in slots {
        s.apply(Change::Join { slot });
    }
    assert_eq!(p99(Method::Icmp), None);
    for (slot, times) in [(0, 60), (1, 60), (2, 1)] {
        for _ in 0..times {
            s.record(
                Method::Icmp,
                Observation::probe(SlotId(slot), received(if slot == 2 { 50_000_000 } else { 30_000 }, false)),
            );
        }
    }
    let near = |exact: f64| p99(Method::Icmp).is_some_and(|found| (found / exact).log2().abs() <= 1.0 / 8.0);
    assert!(near(30e-6), "one of 121 is beyond: {:?}", p99(Method::Icmp));
    s.record(Method::Icmp, Observation::probe(SlotId(2), received(50_000_000, false)));
    assert!(near(0.05), "two are not: {:?}", p99(Method::Icmp));
    assert_eq!(p99(Method::Udp), None);
    s.tick(Nanos::from_millis(61_000));
    assert_eq!(p99(Method::Icmp), None, "nothing older than a minute");
}

#[test]
fn recent_statistics_cover_the_last_half_to_whole_minute() {
    let s = statistics();
    let second = |n: u64| Nanos(n * 1_000_000_000);
    for t in 1..=300 {
        s.tick(second(t));
        s.record(Method::Icmp, Observation::probe(SLOT, Event::Sent));
        s.record(Method::Icmp, Observation::probe(SLOT, if t < 200 { received(1_000, false) } else { Event::Lost }));
        let recent = s.method(Method::Icmp).recent(SLOT, second(t)).unwrap();
        assert!(recent.sent <= 61 && (t < 60 || recent.sent >= 30), "{t}: {recent:?}");
    }
    let recent = s.method(Method::Icmp).recent(SLOT, second(300)).unwrap();
    assert_eq!(recent.received, 0, "nothing older than a minute is left");
    assert_eq!(recent.lost, recent.sent);
    assert!((30.0..=60.0).contains(&recent.seconds));
}

#[test]
fn recent_statistics_are_exact_at_the_shortest_interval_too() {
    let interval = Nanos::from_millis(10);
    let s = Statistics::new(Scale::default(), interval);
    s.apply(Change::Join { slot: SLOT });
    let mut now = Nanos(5_000_000_000);
    // As many probes as can be in flight when a half begins, all answered in it.
    for _ in 0..IN_FLIGHT_PER_PEER_MAX {
        s.record(Method::Icmp, Observation::probe(SLOT, Event::Sent));
    }
    s.tick(now);
    (0..IN_FLIGHT_PER_PEER_MAX).for_each(|_| s.record(Method::Icmp, Observation::probe(SLOT, received(1_000, false))));
    let (begun, before_it) = (now, u32::try_from(IN_FLIGHT_PER_PEER_MAX).unwrap());
    let (mut count, mut before) = (0, 0.0);
    loop {
        s.tick(now);
        s.record(Method::Icmp, Observation::probe(SLOT, Event::Sent));
        s.record(Method::Icmp, Observation::probe(SLOT, received(1_000, false)));
        count += 1;
        let recent = s.method(Method::Icmp).recent(SLOT, now).unwrap();
        if recent.seconds < before {
            break;
        }
        assert_eq!(recent.received, count + before_it, "{now:?}: {recent:?}");
        assert!((recent.seconds - now.since(begun).as_secs_f64()).abs() < 1e-9);
        before = recent.seconds;
        now = now.plus(interval);
    }
    // Each half is 1/34 of a minute.
    assert_eq!(count - 1, (2 * 6_000_u32).div_ceil(34), "two halves, then the older is dropped");
    assert!(count / 2 <= RECENT_HALF_PROBES);
}

#[test]
fn a_recent_window_differs_from_that_of_a_minute_ago_after_any_number_of_windows() {
    let s = statistics();
    // No tick comes between the first half and half 65,534.
    s.tick(Nanos(30_000_000_000));
    let half = |number: u64| Nanos(number * 30_000_000_000);
    for number in 65_534..=65_537 {
        s.tick(half(number));
        s.record(Method::Icmp, Observation::probe(SLOT, Event::Sent));
        let recent = s.method(Method::Icmp).recent(SLOT, half(number)).unwrap();
        assert_eq!(recent.sent, if number == 65_534 { 1 } else { 2 }, "{number}");
    }
    s.tick(half(65_538));
    assert_eq!(s.method(Method::Icmp).recent(SLOT, half(65_538)).unwrap().sent, 1, "of the half before");
    s.tick(half(65_539));
    assert_eq!(s.method(Method::Icmp).recent(SLOT, half(65_539)).unwrap().sent, 0);
}

#[test]
fn a_slot_stays_within_its_bytes() {
    let bytes = [Some(48), Some(256), None].map(|links| {
        let scale = Scale::new(BucketBounds::default(), Scale::schema_of(links), std::time::Duration::from_secs(1));
        Statistics::new(scale, Nanos::from_millis(1_000)).resident_bytes_per_peer()
    });
    println!("statistics per slot: {bytes:?} bytes with 48 and 256 links, and in a full mesh");
    assert!(bytes[0] <= 1_100 && bytes[1] <= 600 && bytes[2] <= 208, "{bytes:?}");
}

#[test]
fn a_link_without_a_histogram_counts_its_answers_and_takes_less_memory() {
    let of = |timed| Statistics::for_methods(Scale::default(), Nanos::from_millis(1_000), Methods::ALL, timed);
    let s = of(Methods::ICMP);
    s.apply(Change::Join { slot: SLOT });
    s.tick(Nanos(1));
    for method in Method::ALL {
        for rtt in [30_000, 50_000_000] {
            s.record(method, Observation::probe(SLOT, Event::Sent));
            s.record(method, Observation::probe(SLOT, received(rtt, false)));
        }
        let link = s.method(method).slot(SLOT).unwrap();
        assert_eq!((link.read().received, link.rtt_quantile(0.5).is_some()), (2, method == Method::Icmp), "{method:?}");
        let recent = s.method(method).recent(SLOT, Nanos(2)).unwrap();
        assert!(recent.rtt_p50_seconds < Some(1e-4) && recent.rtt_p99_seconds > Some(0.05), "{method:?}: {recent:?}");
    }
    let bytes = [Methods::ALL, Methods::ICMP].map(|timed| of(timed).resident_bytes_per_peer());
    println!("statistics per peer: {bytes:?} bytes with all histograms, and with those of ICMP alone");
    assert!(bytes[1] + 700 <= bytes[0], "{bytes:?}");
}

#[test]
fn the_losses_of_an_outage_are_in_a_row_though_one_is_known_after_the_first_answer() {
    let s = Statistics::for_methods(Scale::default(), Nanos::from_millis(1_000), Methods::ALL, Methods::ALL);
    s.apply(Change::Join { slot: SLOT });
    s.tick(Nanos(1));
    for method in Method::ALL {
        let outcomes = [Event::Lost; 5].into_iter().chain([received(30_000, false), Event::Lost, Event::Lost]);
        for outcome in outcomes {
            s.record(method, Observation::probe(SLOT, Event::Sent));
            s.record(method, Observation::probe(SLOT, outcome));
        }
        let recent = s.method(method).recent(SLOT, Nanos(2)).unwrap();
        assert_eq!((recent.lost_in_row, recent.answered_since), (7, 1), "{method:?}");
    }
}
