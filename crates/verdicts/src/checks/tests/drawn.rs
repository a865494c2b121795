//! Meshes drawn at random, each with one fault or none.

use super::*;

/// A generator of pseudorandom numbers, splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).expect("small")
    }

    fn is(&mut self, chance: f64) -> bool {
        ((self.next() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }
}

/// Draws the attempts of a recent window, each bad by chance.
fn drawn(random: &mut Random, chance: f64, is_slow: bool) -> Check<'static> {
    let tried = 6 + random.below(7);
    let outcomes: Vec<bool> = (0..tried).map(|_| random.is(chance)).collect();
    let count = |bad: bool| u32::try_from(outcomes.iter().rev().take_while(|is| **is == bad).count()).expect("few");
    let bad = u32::try_from(outcomes.iter().filter(|bad| **bad).count()).expect("few");
    let check = Check {
        tried: u32::try_from(tried).expect("few"),
        ..if is_slow { slow("dns", bad) } else { failing("dns", bad) }
    };
    Check { good_in_row: count(false), failed_in_row: if is_slow { 0 } else { count(true) }, ..check }
}

#[test]
fn one_fault_is_found_in_nearly_all_meshes_and_nothing_in_well_ones() {
    let (mut drawn_of, mut right) = ([0_u32; 6], [0_u32; 6]);
    for seed in 0..2_000 {
        let random = &mut Random(seed);
        let (nodes, fault) = (2 + random.below(39), random.below(6));
        let background = [0.0, 0.001, 0.01][random.below(3)];
        // A zone needs others beside it.
        let (nodes, in_zone) =
            if fault == 2 { (nodes.max(6), 2 + random.below(nodes.max(6) / 2 - 1)) } else { (nodes, 0) };
        let bad = random.below(nodes);
        let share = [0.5, 1.0 / 3.0][random.below(2)];
        let is_slow = fault == 4;
        let chance = |node: usize| match fault {
            0 => 1.0,
            1 if node == bad => 1.0,
            2 if node < in_zone => 1.0,
            3 | 4 => share,
            _ => background,
        };
        let checks: Vec<Check<'_>> = (0..nodes).map(|node| drawn(random, chance(node), is_slow)).collect();
        let mut mesh = with(&["dns"], 0);
        for (node, check) in checks.iter().enumerate() {
            let zone = if node < in_zone { "a" } else { "b" };
            mesh.add_row(node, zone, 60.0, check);
        }
        mesh.matrix.finish();
        let expected: Vec<String> = match fault {
            0 | 3 | 4 => vec!["check *->dns".into()],
            1 => vec![format!("check n{bad}->dns")],
            2 => vec!["check a->dns".into()],
            _ => Vec::new(),
        };
        drawn_of[fault] += 1;
        let found = mesh.found();
        right[fault] += u32::from(found == expected);
    }
    let shares: Vec<f64> = right.iter().zip(drawn_of).map(|(right, all)| f64::from(*right) / f64::from(all)).collect();
    // Target, node, zone, one of two or three backends, a slow one of these, and no fault.
    let least = [0.99, 0.99, 0.99, 0.97, 0.97, 0.997];
    assert!(shares.iter().zip(least).all(|(share, least)| *share >= least), "{shares:?}");
}

/// The attempts of a node, one every five seconds, each with its time and whether it failed.
type Course = Vec<(f64, bool)>;

/// Returns the report of a node at this time: its recent window has two halves of 30 s, of which
/// the second is not over yet.
fn window(course: &Course, phase: f64, now: f64) -> Check<'static> {
    let begin = ((now - phase) / 30.0).floor() * 30.0 + phase - 30.0;
    let past = || course.iter().filter(|(at, _)| *at <= now);
    let recent: Vec<bool> = past().filter(|(at, _)| *at >= begin).map(|(_, failed)| *failed).collect();
    let in_row = |failed: bool| past().rev().take_while(|(_, is)| *is == failed).count().min(255);
    let [tried, failed] = [recent.len(), recent.iter().filter(|failed| **failed).count()];
    let [tried, failed, good_in_row, failed_in_row] =
        [tried, failed, in_row(false), in_row(true)].map(|count| u32::try_from(count).expect("few"));
    Check { tried, good_in_row, failed_in_row, ..failing("dns", failed) }
}

#[test]
fn a_fault_is_found_in_time_alone_and_is_over_soon_after_its_end() {
    const BEGIN: f64 = 100.0;
    const END: f64 = 300.0;
    for (seed, (nodes, share, limits)) in (0_u64..).zip([
        (3, 1.0, [15.0, 30.0]),
        (12, 0.5, [15.0, 30.0]),
        (40, 1.0, [10.0, 20.0]),
        (40, 0.1, [45.0, 60.0]),
    ]) {
        let random = &mut Random(seed);
        let courses: Vec<(f64, Course)> = (0..nodes)
            .map(|_| {
                let phase = random.below(300) as f64 / 10.0;
                let fails = |at: f64| (BEGIN..END).contains(&at);
                let times = (0..80).map(|turn| f64::from(turn) * 5.0 + phase / 6.0);
                (phase, times.map(|at| (at, fails(at) && random.is(share))).collect())
            })
            .collect();
        let mut last_held = 0.0;
        let mut first_held = END;
        for now in (60..400).step_by(5).map(f64::from) {
            let mut mesh = with(&["dns"], 0);
            for (node, (phase, course)) in courses.iter().enumerate() {
                mesh.add_row(node, "z", 45.0, &window(course, *phase, now));
            }
            mesh.matrix.finish();
            let found = mesh.found();
            assert!(found.is_empty() || found == ["check *->dns"], "{nodes} {share} at {now}: {found:?}");
            assert!(found.is_empty() || now > BEGIN, "{nodes} {share} at {now}");
            if !found.is_empty() {
                (first_held, last_held) = (now.min(first_held), now);
            }
        }
        assert!(first_held - BEGIN <= limits[0], "{nodes} {share}: found after {} s", first_held - BEGIN);
        assert!(last_held - END <= limits[1], "{nodes} {share}: over after {} s", last_held - END);
    }
}

/// Draws when a node's attempts end and how: each fails within this time, after 2 s, and is then
/// made again after half of the usual time.
fn course_with_timeouts(random: &mut Random, spacing: f64, fault: &std::ops::Range<f64>) -> Course {
    let (mut at, mut course) = (random.below(100) as f64 / 100.0 * spacing, Vec::new());
    while at < 400.0 {
        let failed = fault.contains(&at);
        course.push((at + if failed { 2.0 } else { 0.0 }, failed));
        at += if failed { spacing / 2.0 } else { spacing };
    }
    course
}

/// In each round of a judge, the zone that fails is named or nothing is. Single nodes of it are, as
/// long as another one of them has just begun to fail, in few rounds at most.
#[test]
fn a_zone_that_begins_to_fail_is_named_in_time_and_its_nodes_are_not() {
    let (mut rounds, mut alone, mut late) = (0, 0, Vec::new());
    for seed in 0..400_u64 {
        let random = &mut Random(seed);
        let (nodes, in_zone) = [(5, 2), (5, 3), (12, 3), (30, 10)][random.below(4)];
        let spacing = [5.0, 10.0][random.below(2)];
        let begin = 100.0 + random.below(100) as f64 / 10.0;
        let draw = |node: usize, random: &mut Random| {
            let fault = if node < in_zone { begin..200.0 } else { 0.0..0.0 };
            (random.below(300) as f64 / 10.0, course_with_timeouts(random, spacing, &fault))
        };
        let courses: Vec<(f64, Course)> = (0..nodes).map(|node| draw(node, random)).collect();
        let mut first = None;
        for now in (100..190).map(f64::from) {
            let mut mesh = with(&["dns"], 0);
            for (node, (phase, course)) in courses.iter().enumerate() {
                let zone = if node < in_zone { "a" } else { "b" };
                mesh.add_row(node, zone, 45.0, &window(course, *phase, now));
            }
            mesh.matrix.finish();
            let found = mesh.found();
            rounds += 1;
            alone += u32::from(!found.is_empty() && found != ["check a->dns"]);
            if found == ["check a->dns"] {
                first.get_or_insert(now - begin);
            }
        }
        late.push(first.unwrap_or(f64::INFINITY));
    }
    late.sort_by(f64::total_cmp);
    println!("{alone} of {rounds} rounds name nodes alone; found after {:?} s", [late[200], late[380], late[399]]);
    assert!(alone * 1_000 <= rounds, "{alone} of {rounds}");
    assert!(late[380] <= 25.0 && late[399] <= 40.0, "{late:?}");
}
