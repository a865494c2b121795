use std::collections::BTreeMap;

use super::*;
use crate::splitmix::Random;

/// The draws of a script.
trait Draws {
    fn below(&mut self, bound: u64) -> u64;
    fn chance(&mut self, percent: u64) -> bool;
}

impl Draws for Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    There,
    Back,
    Answered,
}

/// What may happen in a script, in percent of the probes.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    there: u64,
    back: u64,
    /// Answers that are delayed for longer than others, and perhaps beyond the timeout.
    answers_late: u64,
    /// Requests that later ones overtake.
    requests_late: u64,
    requests_doubled: u64,
    answers_doubled: u64,
    /// The reflector restarts, and counts from zero.
    restarts: u64,
    /// Of this many probes, the last is an extra one. 0: none is.
    extra: u64,
}

impl Weather {
    fn is_extra(self, probe: u64) -> bool {
        self.extra > 0 && probe % self.extra == self.extra - 1
    }
}

const INTERVAL: u64 = 1_000;
const TIMEOUT: u64 = 1_000;
const PATIENCE: u64 = 2_000;
/// Probes of a script. After them, all are answered for as long as it takes to judge the losses.
const PROBES: u64 = 250;

/// What the ways have said, and the truth: losses there and back.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    said: [u32; 2],
    truth: [u32; 2],
    /// Flows that were said to lose in a direction in which they lose nothing.
    wrong_flows: u32,
}

/// Plays one script. Numbers of probes are every third of the process.
#[expect(clippy::too_many_lines, reason = "one script from its beginning to its end")]
fn play(seed: u64, weather: Weather, interval: u64) -> Outcome {
    let mut random = Random(seed);
    let probes = PROBES + 5 + 3 * PATIENCE / interval;
    // Near the end of its range, and so is the count if the reflector does not restart.
    let first = 0_u32.wrapping_sub(100);
    let (mut count, mut since_restart) = (if weather.restarts == 0 { first } else { 5_000 }, 0);
    let mut arrivals = BTreeMap::new();
    let mut fates = Vec::new();
    let mut unique = 0;
    for i in 0..probes {
        let sent = i * interval;
        let calm = !(5..PROBES).contains(&i);
        let fate = match random.below(100) {
            _ if calm => Fate::Answered,
            draw if draw < weather.there => Fate::There,
            draw if draw < weather.there + weather.back => Fate::Back,
            _ => Fate::Answered,
        };
        fates.push(fate);
        if fate == Fate::There {
            continue;
        }
        let late = if !calm && random.chance(weather.requests_late) { random.below(3 * interval) } else { 0 };
        for _ in 0..=u64::from(!calm && random.chance(weather.requests_doubled)) {
            unique += 1;
            arrivals.insert((sent + 1 + late, unique), i);
        }
    }
    // What the reflector counts, in the order of arrival. Then the answers, by their time.
    let (mut answers, mut delayed_there) = (BTreeMap::new(), vec![false; fates.len()]);
    let mut newest = 0;
    for ((at, _), probe) in arrivals {
        // Two restarts that are close cannot be seen by any count.
        since_restart += 1;
        if since_restart > 40 && random.chance(weather.restarts) {
            (count, since_restart) = (0, 0);
        }
        let index = usize::try_from(probe).unwrap();
        delayed_there[index] |= probe < newest;
        newest = newest.max(probe);
        let calm = !(5..PROBES).contains(&probe);
        if fates[index] == Fate::Answered {
            let late = if !calm && random.chance(weather.answers_late) { random.below(2 * TIMEOUT + 500) } else { 0 };
            for _ in 0..=u64::from(!calm && random.chance(weather.answers_doubled)) {
                unique += 1;
                answers.insert((at + 1 + late + random.below(3), unique), (probe, count));
            }
        }
        count = count.wrapping_add(1);
    }
    let mut ways = Ways::default();
    let (mut answered, mut lost) = (vec![false; fates.len()], vec![false; fates.len()]);
    let mut outcome = Outcome::default();
    let mut next_to_expire = 0_u64;
    let mut flows = [[false; 16]; 2];
    let mut said_flows = [[false; 16]; 2];
    let (mut sent_until, mut oldest) = (0_u64, 0_u64);
    let sequence = |probe: u64| first.wrapping_add(u32::try_from(probe).unwrap());
    for ((at, _), (probe, count)) in answers {
        while sent_until < probes && sent_until * interval <= at {
            sent_until += 1;
        }
        // All that has timed out until now, in the order of sending.
        while next_to_expire < probes && next_to_expire * interval + PATIENCE < at {
            let index = usize::try_from(next_to_expire).unwrap();
            if !answered[index] && !lost[index] {
                lost[index] = true;
                let is_extra = weather.is_extra(next_to_expire);
                ways.lost(sequence(next_to_expire), u8::try_from(next_to_expire % 16).unwrap(), is_extra);
            }
            next_to_expire += 1;
        }
        let index = usize::try_from(probe).unwrap();
        if answered[index] {
            ways.hear(count, false);
        } else if lost[index] {
            // A late answer to a counted loss changes nothing.
        } else if at - probe * interval > TIMEOUT {
            // It is counted as lost at this moment. No direction is claimed for it.
            answered[index] = true;
            ways.hear(count, true);
        } else {
            answered[index] = true;
            while oldest < sent_until
                && let index = usize::try_from(oldest).unwrap()
                && (answered[index] || lost[index])
            {
                oldest += 1;
            }
            let undecided = (oldest < sent_until).then_some(oldest * 3);
            if let Some(directions) = ways.answered(probe * 3, sequence(probe), count, undecided) {
                assert!(directions.there + directions.back > 0 || weather.extra > 0);
                outcome.said[0] += directions.there;
                outcome.said[1] += directions.back;
                let said = &mut said_flows[usize::from(!directions.out)];
                for (flow, said) in said.iter_mut().enumerate() {
                    *said |= directions.flows >> flow & 1 == 1;
                }
            }
        }
    }
    for (index, fate) in fates.iter().enumerate().filter(|(index, _)| lost[*index]) {
        let way = usize::from(!(*fate == Fate::There || delayed_there[index]));
        outcome.truth[way] += u32::from(!weather.is_extra(index as u64));
        flows[way][index % 16] = true;
    }
    for (said, flows) in said_flows.iter().zip(&flows) {
        outcome.wrong_flows += u32::try_from((0..16).filter(|flow| said[*flow] && !flows[*flow]).count()).unwrap();
    }
    outcome
}

fn intervals(seed: u64) -> u64 {
    [10, 100, INTERVAL, 5_000][usize::try_from(seed % 4).unwrap()]
}

#[test]
fn losses_in_both_directions_are_counted_exactly() {
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let weather = Weather {
            there: random.below(40),
            back: random.below(40),
            answers_late: random.below(20),
            answers_doubled: random.below(20),
            ..Weather::default()
        };
        let outcome = play(seed, weather, intervals(seed));
        assert_eq!(outcome.said, outcome.truth, "{seed}: {weather:?}");
        assert_eq!(outcome.wrong_flows, 0, "{seed}: {weather:?}");
    }
}

#[test]
fn losses_of_extra_probes_are_left_out_and_those_of_the_others_are_counted_as_far_as_they_are_certain() {
    let (mut said, mut truth) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let (there, back) = (random.below(40), if random.chance(50) { 0 } else { random.below(40) });
        let extra = 2 + random.below(4);
        let weather = Weather { there, back, answers_late: random.below(20), extra, ..Weather::default() };
        let outcome = play(seed, weather, intervals(seed));
        if back == 0 && weather.answers_late == 0 {
            assert_eq!(outcome.said, outcome.truth, "{seed}: {weather:?}");
        }
        assert!((0..2).all(|way| outcome.said[way] <= outcome.truth[way]), "{seed}: {outcome:?}, {weather:?}");
        assert_eq!(outcome.wrong_flows, 0, "{seed}: {weather:?}");
        (said, truth) = (said + outcome.said.iter().sum::<u32>(), truth + outcome.truth.iter().sum::<u32>());
    }
    println!("{said} of {truth} losses beside extra probes have a direction");
    assert!(said * 10 >= truth * 7, "{said} of {truth}");
}

#[test]
fn a_restart_of_the_reflector_leaves_directions_open_and_makes_none_up() {
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let (there, back) = if random.chance(50) { (random.below(40), 0) } else { (0, random.below(40)) };
        let weather = Weather { there, back, restarts: random.below(6), answers_late: 5, ..Weather::default() };
        let outcome = play(seed, weather, intervals(seed));
        for (said, truth) in outcome.said.iter().zip(outcome.truth) {
            assert!(*said <= truth, "{seed}: {outcome:?}, {weather:?}");
        }
    }
}

#[test]
fn whatever_happens_no_more_is_said_than_was_lost() {
    let (mut said, mut wrong, mut truth) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let weather = Weather {
            there: random.below(30),
            back: random.below(30),
            answers_late: random.below(20),
            answers_doubled: random.below(20),
            requests_late: random.below(10),
            requests_doubled: random.below(10),
            restarts: random.below(3),
            extra: 0,
        };
        let outcome = play(seed, weather, intervals(seed));
        let [there, back] = outcome.truth;
        assert!(outcome.said[0] + outcome.said[1] <= there + back, "{seed}: {outcome:?}, {weather:?}");
        said += outcome.said[0] + outcome.said[1];
        wrong += outcome.said[0].saturating_sub(there) + outcome.said[1].saturating_sub(back);
        truth += there + back;
    }
    // A doubled request of which an answer is lost looks like a lost answer.
    assert!(wrong * 50 < said && said * 4 > truth, "{wrong} wrong of {said} said of {truth}");
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "a part of a draw")]
fn a_peer_that_lies_makes_nothing_up_beyond_the_losses() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let (mut ways, mut lost, mut said) = (Ways::default(), 0, 0);
        for probe in 0..200_u32 {
            let draw = random.next();
            match draw % 5 {
                0 | 1 => {
                    ways.lost(probe, (draw >> 8 & 0x1f) as u8, false);
                    lost += 1;
                }
                2 => ways.hear((draw >> 16) as u32, draw & 64 == 0),
                _ => {
                    let count = if draw & 32 == 0 { probe } else { (draw >> 16) as u32 };
                    let oldest = if draw & 64 == 0 { None } else { Some(draw >> 60) };
                    if let Some(it) = ways.answered(u64::from(probe), probe, count, oldest) {
                        said += it.there + it.back;
                    }
                }
            }
            assert!(said <= lost);
        }
    }
}

#[test]
fn a_single_loss_gives_its_flow_a_direction() {
    for (there, counts, extra) in
        [(true, [7, 8, 9], false), (false, [7, 9, 10], false), (true, [7, 8, 9], true), (false, [7, 9, 10], true)]
    {
        let mut ways = Ways::default();
        for (sequence, count) in [3, 5, 6].into_iter().zip(counts) {
            assert_eq!(ways.answered(u64::from(sequence), sequence, count, Some(4)), None);
        }
        assert_eq!(ways.judge(Some(4)), None, "the probe between them is not decided");
        ways.lost(4, 11, extra);
        let count = |is_it: bool| u32::from(is_it && !extra);
        let expected = LossDirections { there: count(there), back: count(!there), flows: 1 << 11, out: there };
        assert_eq!(ways.judge(Some(6)), Some(expected));
        assert_eq!(ways.judge(None), None);
    }
    assert_eq!(size_of::<Ways>(), 80);
}
