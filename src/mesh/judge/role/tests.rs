//! A mesh of agents on a scripted clock. Each checks and judges at a phase of its own, and a dead
//! member takes a second of each check.

use std::time::Duration;

use super::*;

const TICK: u64 = 100;

fn s(seconds: u64) -> Nanos {
    Nanos::from_millis(seconds * 1_000)
}

/// An agent. Its index in the world is its rank.
struct Agent {
    role: Role,
    runs: bool,
    protocol: u32,
    side: u32,
    /// Whether the others list it. A dead one may stay listed.
    is_listed: bool,
    next_check: Nanos,
    /// The result of a check that is still waiting for dead members.
    checked: Option<(Nanos, Seen)>,
    next_round: Nanos,
    rounds: u32,
    checks: u64,
}

struct World {
    agents: Vec<Agent>,
    now: Nanos,
    /// How many agents judged at each tick since the last [`World::fewest_and_most`].
    judges: Vec<usize>,
}

impl World {
    fn with_agents(count: usize) -> Self {
        let agent = |index: usize| Agent {
            role: Role::new(JudgeTimes::default()),
            runs: true,
            protocol: 1,
            side: 0,
            is_listed: true,
            next_check: Nanos::from_millis(index as u64 * 734 % 2_000),
            checked: None,
            next_round: Nanos(0),
            rounds: 0,
            checks: 0,
        };
        Self { agents: (0..count).map(agent).collect(), now: Nanos(0), judges: Vec::new() }
    }

    /// Asks the better-ranked members one after the other, as an agent does. Returns what they
    /// answer, and how long that takes.
    fn check(&self, own: usize) -> (Seen, Nanos) {
        let others = (0..self.agents.len()).filter(|i| *i != own && self.agents[*i].is_listed);
        let best: Vec<usize> = others.take(16).collect();
        let place = best.partition_point(|i| *i < own);
        let is_small = best.len() < JUDGES;
        let mut seen = Seen { better: (place < 16).then_some(place), is_small, ..Seen::default() };
        let (asker, mut silent) = (&self.agents[own], 0);
        for other in best[..seen.better.unwrap_or(0)].iter().map(|i| &self.agents[*i]) {
            if asker.role.is_decided(seen.judges, seen.proven) {
                break;
            }
            let answers = other.runs && other.side == asker.side;
            silent += u64::from(!answers);
            if answers && other.role.judges && other.protocol == asker.protocol {
                seen.judges += 1;
                seen.proven += usize::from(other.rounds >= ROUNDS_PROVEN);
            }
        }
        (seen, s(silent))
    }

    fn tick(&mut self) {
        self.now = self.now.plus(Nanos::from_millis(TICK));
        let now = self.now;
        for own in 0..self.agents.len() {
            if !self.agents[own].runs {
                continue;
            }
            if self.agents[own].checked.is_none() && self.agents[own].next_check <= now {
                let (seen, takes) = self.check(own);
                self.agents[own].checked = Some((now.plus(takes), seen));
                self.agents[own].checks += 1;
            }
            let agent = &mut self.agents[own];
            if let Some((_, seen)) = agent.checked.take_if(|(at, _)| *at <= now) {
                if agent.role.checked(seen, now) == Some(RoleChange::Begins) {
                    (agent.rounds, agent.next_round) = (0, now.plus(s(3)));
                }
                agent.next_check = agent.role.next_check(seen, now);
            }
            if agent.role.judges && agent.next_round <= now {
                (agent.rounds, agent.next_round) = (agent.rounds + 1, now.plus(s(15)));
            }
        }
        self.judges.push(self.judging().len());
    }

    fn run(&mut self, seconds: u64) {
        (0..seconds * 1_000 / TICK).for_each(|_| self.tick());
    }

    fn judging(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|i| self.agents[*i].runs && self.agents[*i].role.judges).collect()
    }

    fn fewest_and_most(&mut self) -> (usize, usize) {
        let judges = std::mem::take(&mut self.judges);
        (judges.iter().copied().min().unwrap_or(0), judges.iter().copied().max().unwrap_or(0))
    }

    fn stop(&mut self, agents: impl IntoIterator<Item = usize>) {
        agents.into_iter().for_each(|i| self.agents[i].runs = false);
    }

    fn start(&mut self, own: usize) {
        let (role, now) = (Role::new(JudgeTimes::default()), self.now);
        let agent = &mut self.agents[own];
        *agent = Agent { role, runs: true, checked: None, next_check: now, rounds: 0, checks: 0, ..*agent };
    }

    /// The number of checks that each agent makes in this time.
    fn checks(&mut self, seconds: u64) -> Vec<u64> {
        self.agents.iter_mut().for_each(|agent| agent.checks = 0);
        self.run(seconds);
        self.agents.iter().map(|agent| agent.checks).collect()
    }
}

#[test]
fn larger_meshes_have_three_judges_after_20_s() {
    for count in [4, 16] {
        let mut world = World::with_agents(count);
        world.run(19);
        assert_eq!(world.fewest_and_most(), (0, 0), "too early");
        world.run(100);
        assert_eq!((world.judging().len(), world.fewest_and_most().1), (3, 3), "{count}");
    }
}

#[test]
fn all_members_of_a_mesh_of_up_to_three_judge_at_once() {
    for count in 1..=3 {
        let mut world = World::with_agents(count);
        world.run(3);
        assert_eq!(world.judging().len(), count);
        world.stop([count - 1]);
        world.run(60);
        world.start(count - 1);
        world.run(3);
        assert_eq!(world.judging().len(), count, "a restarted one too");
    }
}

#[test]
fn of_5000_members_the_three_best_judge_and_few_ask_them() {
    let mut world = World::with_agents(5_000);
    world.run(30);
    assert_eq!((world.judging(), world.fewest_and_most().1), (vec![0, 1, 2], 3));
    let checks = world.checks(60);
    let of = |ranks: std::ops::Range<usize>| {
        (*checks[ranks.clone()].iter().min().unwrap(), *checks[ranks].iter().max().unwrap())
    };
    // Ranks 1 to 3 and those beyond 16 find none to ask.
    assert!(of(3..8).0 >= 28 && of(3..8).1 <= 30, "{:?}", of(3..8));
    assert!(of(8..16).1 <= 1, "{:?}", of(8..16));
}

#[test]
fn the_next_in_rank_replaces_a_judge_that_dies_and_ends_without_a_gap_when_it_returns() {
    let mut world = World::with_agents(300);
    world.run(60);
    world.stop([1]);
    world.fewest_and_most();
    world.run(26 + 4);
    assert_eq!((world.judging(), world.fewest_and_most()), (vec![0, 2, 3], (2, 3)), "after at most 30 s");
    world.run(60);
    world.start(1);
    world.fewest_and_most();
    world.run(120);
    assert_eq!((world.judging(), world.fewest_and_most()), (vec![0, 1, 2], (3, 4)));
}

#[test]
fn three_judges_that_die_at_once_are_replaced_by_three() {
    let mut world = World::with_agents(40);
    world.run(60);
    world.stop(0..3);
    world.fewest_and_most();
    // Their places are listed and silent for as long, so each check takes 3 s longer.
    world.run(45);
    let judging = world.judging();
    assert!(judging.starts_with(&[3, 4, 5]) && world.fewest_and_most().1 <= 5, "{judging:?}");
    world.run(60);
    assert_eq!((world.judging(), world.fewest_and_most().0 >= 3), (vec![3, 4, 5], true));
}

#[test]
fn ranks_beyond_eight_judge_once_the_first_eight_are_dead_but_listed() {
    let mut world = World::with_agents(40);
    world.run(60);
    world.stop(0..9);
    world.run(60 + 20 + 15 * 2 + 30);
    world.run(60);
    world.fewest_and_most();
    world.run(60);
    assert_eq!((world.judging(), world.fewest_and_most()), (vec![9, 10, 11], (3, 3)));
    // The list forgets the dead, so others are among the best 16. They find three judges.
    (0..9).for_each(|i| world.agents[i].is_listed = false);
    world.run(120);
    assert_eq!((world.judging(), world.fewest_and_most()), (vec![9, 10, 11], (3, 3)));
}

#[test]
fn both_sides_of_a_partition_have_judges_and_the_mesh_has_three_again_afterwards() {
    let mut world = World::with_agents(12);
    world.run(60);
    (0..12).for_each(|i| world.agents[i].side = u32::from(i % 2 == 0));
    world.run(90);
    let of_side =
        |world: &World, side: usize| world.judging().into_iter().filter(|i| i % 2 == side).collect::<Vec<_>>();
    assert_eq!([0, 1].map(|side| of_side(&world, side)), [vec![0, 2, 4], vec![1, 3, 5]]);
    (0..12).for_each(|i| world.agents[i].side = 0);
    world.fewest_and_most();
    world.run(90);
    assert_eq!((world.judging(), world.fewest_and_most().0), (vec![0, 1, 2], 3));
}

#[test]
fn during_a_rollout_each_version_has_three_judges_as_soon_as_it_has_so_many_agents() {
    let mut world = World::with_agents(12);
    world.run(60);
    // The worst-ranked are updated first. Each is away for 10 s.
    for updated in (0..12).rev() {
        world.stop([updated]);
        world.run(10);
        world.agents[updated].protocol = 2;
        world.start(updated);
        world.run(80);
        let of = |protocol: u32| world.judging().iter().filter(|i| world.agents[**i].protocol == protocol).count();
        let expected = [updated, 12 - updated].map(|agents| agents.min(JUDGES));
        assert_eq!([of(1), of(2)], expected, "{updated}: {:?}", world.judging());
    }
    world.run(60);
    assert_eq!(world.judging(), [0, 1, 2]);
}

#[test]
fn lists_that_differ_never_make_fewer_judges_than_three() {
    let mut world = World::with_agents(20);
    // The three best are listed by none of the others.
    (0..3).for_each(|i| world.agents[i].is_listed = false);
    world.run(60);
    assert_eq!(world.judging(), [0, 1, 2, 3, 4, 5]);
    (0..3).for_each(|i| world.agents[i].is_listed = true);
    world.fewest_and_most();
    world.run(60);
    assert_eq!((world.judging(), world.fewest_and_most().0), (vec![0, 1, 2], 3));
}

#[test]
fn one_silent_check_is_no_reason_to_begin_and_one_answer_is_none_to_wait_longer() {
    let mut role = Role::new(JudgeTimes::default());
    let seen = |judges| Seen { better: Some(3), judges, proven: judges, is_small: false };
    assert_eq!(role.checked(seen(3), s(0)), None);
    for second in 1..=26 {
        assert_eq!(role.checked(seen(2), s(second)), None);
    }
    assert_eq!(role.checked(seen(3), s(27)), None);
    for second in 28..=53 {
        assert_eq!(role.checked(seen(0), s(second)), None, "the time begins again");
    }
    assert_eq!(role.checked(seen(0), s(54)), Some(RoleChange::Begins));
    assert_eq!(role.checked(Seen { proven: 2, ..seen(3) }, s(55)), None, "the third has judged once");
    assert_eq!(role.checked(seen(3), s(56)), Some(RoleChange::Ends));
}

#[test]
fn an_agent_that_loses_its_rank_or_is_left_alone_ends() {
    let mut role = Role::new(JudgeTimes { lacking: Duration::ZERO, ..JudgeTimes::default() });
    assert_eq!(role.checked(Seen { better: Some(0), ..Seen::default() }, s(1)), Some(RoleChange::Begins));
    assert_eq!(role.checked(Seen::default(), s(2)), Some(RoleChange::Ends));
    assert_eq!(role.checked(Seen::default(), s(3)), None);
}
