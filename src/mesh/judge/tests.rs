//! Agents on a scripted clock, each on a node of its own. They judge by their real roles,
//! tables and documents. What a judgement finds is scripted. Nodes are cut off, and agents are
//! replaced.

use super::document::tests::{held, verdict};
use super::role::Role;
use super::*;
use crate::mesh::verdicts::{Kind, Verdict, id};
use crate::report::{Methods, Missing};

/// Unix time of the first second.
const BEGIN: u64 = 1_000_000;
const ROUND: u64 = 15;
/// Members that may judge. The others do nothing here.
const RANKED: usize = 16;
/// For this long after its end the reports show a fault.
const WINDOW: u64 = 60;

/// A cut between the nodes whose bits differ in `side`.
#[derive(Clone, Copy)]
struct Cut {
    side: u32,
    from: u64,
    to: u64,
    /// What judges that reach most nodes call it.
    kind: &'static str,
    subject: &'static str,
}

struct Agent {
    role: Role,
    table: VerdictTable,
    term: Option<Term>,
    /// What it holds as a judge or keeps of judges, and when it was written.
    document: Option<(Arc<[u8]>, u64)>,
    rounds: u32,
    began: u64,
    is_killed: bool,
    /// The protocol by which it finds faults.
    protocol: Option<Methods>,
}

impl Agent {
    fn new(protocol: Option<Methods>) -> Self {
        let (role, table) = (Role::new(JudgeTimes::default()), VerdictTable::default());
        Self { role, table, term: None, document: None, rounds: 0, began: 0, is_killed: false, protocol }
    }
}

struct World {
    agents: Vec<Agent>,
    cuts: Vec<Cut>,
    /// Seconds since the begin.
    now: u64,
}

fn name(agent: usize) -> String {
    format!("n{agent}")
}

fn at(second: u64) -> Nanos {
    Nanos::from_millis(second * 1_000)
}

impl World {
    fn new(cuts: &[Cut], protocols: [Option<Methods>; 6]) -> Self {
        Self { agents: protocols.into_iter().map(Agent::new).collect(), cuts: cuts.to_vec(), now: 0 }
    }

    fn with_agents(count: usize, cuts: &[Cut]) -> Self {
        Self { agents: (0..count).map(|_| Agent::new(None)).collect(), cuts: cuts.to_vec(), now: 0 }
    }

    /// Replaces these agents. The new ones run after ten seconds.
    fn replace(&mut self, agents: &[usize]) {
        for agent in agents {
            self.agents[*agent] = Agent { is_killed: true, began: self.now + 10, ..Agent::new(None) };
        }
    }

    fn reaches(&self, a: usize, b: usize) -> bool {
        let side = |cut: &Cut, node: usize| node < 32 && cut.side >> node & 1 == 1;
        let parts = |cut: &Cut| (cut.from..cut.to).contains(&self.now) && side(cut, a) != side(cut, b);
        !self.cuts.iter().any(parts)
    }

    /// What the judge `to` says to the agent `from`.
    fn said(&self, from: usize, to: usize) -> Option<JudgeStatement> {
        let agent = &self.agents[to];
        let is_judge = agent.term.is_some() && agent.rounds > 0;
        let (text, written) =
            agent.document.as_ref().filter(|_| is_judge && !agent.is_killed && self.reaches(from, to))?;
        let age_seconds = (self.now - written) as f64;
        let answer = JudgeAnswer { judges: true, rounds: agent.rounds, age_seconds, ..JudgeAnswer::NO };
        document::read(&name(to), &[&document::head(&answer), &**text].concat(), BEGIN + self.now)
    }

    /// What the agent `to` keeps of judges, or holds as one, as it says to `from`.
    fn kept(&self, from: usize, to: usize) -> Option<JudgeStatement> {
        let agent = &self.agents[to];
        let (text, written) = agent.document.as_ref().filter(|_| !agent.is_killed && self.reaches(from, to))?;
        let answer = JudgeAnswer { age_seconds: (self.now - written) as f64, ..JudgeAnswer::NO };
        document::read_kept(&name(to), &[&document::head(&answer), &**text].concat(), BEGIN + self.now)
    }

    /// What the best-ranked other judges say, at most this many.
    fn others(&self, agent: usize, count: usize) -> Vec<JudgeStatement> {
        let others = (0..self.agents.len().min(RANKED)).filter(|other| *other != agent);
        others.filter_map(|other| self.said(agent, other)).take(count).collect()
    }

    /// What all others keep of judges.
    fn all_kept(&self, agent: usize) -> Vec<JudgeStatement> {
        let others = (0..self.agents.len().min(RANKED)).filter(|other| *other != agent);
        others.filter_map(|other| self.kept(agent, other)).collect()
    }

    /// Copies what the judges hold, as an agent does that does not judge.
    fn copy(&mut self, agent: usize) {
        if self.agents[agent].term.is_some() {
            return;
        }
        let said = quorum::seeing(self.others(agent, JUDGES));
        let said = if said.len() > 1 { said } else { self.all_kept(agent) };
        let is_all = said.len() == JUDGES && said[0].judge.judges;
        let (now_unix_seconds, nodes) = (BEGIN + self.now, self.agents.len());
        let Agent { table, document, .. } = &mut self.agents[agent];
        table.copy_of(&said, is_all, now_unix_seconds);
        *document = Some((Held::from_table(table, (nodes, Overview::default()), now_unix_seconds).text(), self.now));
    }

    /// Whether a judge is one to another agent.
    fn is_heard(&self, from: usize, to: usize) -> bool {
        let agent = &self.agents[to];
        let age = agent.document.as_ref().map_or(0, |(_, written)| self.now - written);
        agent.term.is_some() && agent.rounds > 0 && !agent.is_killed && age <= 60 && self.reaches(from, to)
    }

    fn check(&mut self, agent: usize) {
        let better: Vec<&Agent> =
            (0..agent).filter(|better| self.is_heard(agent, *better)).map(|better| &self.agents[better]).collect();
        let proven = better.iter().filter(|better| better.rounds >= ROUNDS_PROVEN).count();
        let seen = Seen { better: Some(agent), judges: better.len(), proven, is_small: false };
        let now = at(self.now);
        let checked = &mut self.agents[agent];
        match checked.role.checked(seen, now) {
            Some(RoleChange::Begins) => checked.term = Some(Term::new(now)),
            Some(RoleChange::Ends) => (checked.term, checked.rounds) = (None, 0),
            None => {}
        }
    }

    /// What a judgement of an agent finds, and the nodes whose report is missing.
    fn judge(&self, agent: usize) -> (RankedVerdicts, Vec<Missing>) {
        let count = self.agents.len();
        let is_missing = |node: &usize| !self.reaches(agent, *node);
        let missing: Vec<Missing> =
            (0..count).filter(is_missing).map(|node| Missing { node: name(node), error: "timeout".into() }).collect();
        let is_partial = missing.len() * 2 >= count;
        let (mut verdicts, mut ended) = (Vec::new(), Vec::new());
        let shown = |cut: &&Cut| (cut.from + 5..cut.to + WINDOW).contains(&self.now);
        for cut in self.cuts.iter().filter(shown) {
            let (kind, subject) = if is_partial { ("mesh", "*") } else { (cut.kind, cut.subject) };
            let (protocol, since_unix_seconds) = (self.agents[agent].protocol, Some(BEGIN + cut.from));
            let of = Verdict { protocol, since_unix_seconds, ..verdict(kind, subject) };
            let of = Verdict { id: id(&of), ..of };
            if self.now < cut.to + 20 {
                verdicts.push(of);
            } else {
                ended.push(Verdict { ended_unix_seconds: Some(BEGIN + cut.to), ..of });
            }
        }
        (RankedVerdicts { verdicts, ended, is_partial, ..RankedVerdicts::default() }, missing)
    }

    fn round(&mut self, agent: usize) {
        let Some(mut term) = self.agents[agent].term.take() else { return };
        let (found, missing) = self.judge(agent);
        if self.agents[agent].rounds == 0 {
            let kept = self.all_kept(agent);
            self.agents[agent].table.copy_of(&kept, false, BEGIN + self.now);
        }
        let said = (self.said(agent, agent), &self.others(agent, JUDGES - 1)[..]);
        let (now, now_unix_seconds, nodes) = (at(self.now), BEGIN + self.now, self.agents.len());
        let Agent { table, document, rounds, .. } = &mut self.agents[agent];
        term.take(table, (found, nodes), said, now, now_unix_seconds);
        let Held { overview, .. } = held(Vec::new());
        let overview = Overview { missing, ..overview };
        let held = Held::from_table(table, (nodes, overview), now_unix_seconds);
        (*document, *rounds) = (Some((held.text(), self.now)), *rounds + 1);
        self.agents[agent].term = Some(term);
    }

    /// Lets the time pass until this second. Each agent judges at a phase of its own.
    fn until(&mut self, end: u64) {
        while self.now < end {
            for agent in 0..self.agents.len().min(RANKED) {
                let Agent { began, is_killed, .. } = &mut self.agents[agent];
                *is_killed &= *began == 0 || *began > self.now;
                if *is_killed {
                    continue;
                }
                let phase = agent as u64 * 4;
                if self.now % 2 == phase % 2 {
                    self.check(agent);
                    if self.agents[agent].document.is_none() {
                        self.copy(agent);
                    }
                }
                if self.now % ROUND == phase % ROUND {
                    self.round(agent);
                    self.copy(agent);
                }
                self.assert_no_suspect(agent);
            }
            self.now += 1;
        }
    }

    fn assert_no_suspect(&self, agent: usize) {
        let text = self.agents[agent].document.as_ref().map_or(&b""[..], |(text, _)| text);
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains("agent_suspect"), "at {} s {agent} says {text}", self.now);
    }

    /// The judges that a reader at each agent gets.
    fn readers(&self) -> Vec<Vec<JudgeStatement>> {
        let judges = |agent: &usize| {
            let all = (0..self.agents.len().min(RANKED)).filter_map(|judge| self.said(*agent, judge));
            quorum::seeing(all.take(JUDGES).collect())
        };
        let agents = 0..self.agents.len().min(RANKED);
        agents.filter(|agent| !self.agents[*agent].is_killed).map(|agent| judges(&agent)).collect()
    }
}

/// The faults that a reader at each agent sees in the past, if none holds.
fn past(world: &World) -> Vec<Vec<(Kind, String)>> {
    let of = |said: Vec<JudgeStatement>| {
        let verdicts = quorum::agreed(&said);
        assert!(!verdicts.iter().any(Verdict::holds), "{verdicts:?}");
        verdicts.into_iter().map(|verdict| (verdict.kind, verdict.subject)).collect()
    };
    world.readers().into_iter().map(of).collect()
}

const ALL: [Option<Methods>; 6] = [None; 6];
/// Each judge finds faults by another protocol.
const APART: [Option<Methods>; 6] =
    [Some(Methods::ICMP), None, Some(Methods::UDP), Some(Methods::TCP), Some(Methods::ICMP), None];

const fn node_off(node: u32, seconds: u64) -> Cut {
    let subject = ["n0", "n1", "n2"][node as usize];
    Cut { side: 1 << node, from: 300, to: 300 + seconds, kind: "node", subject }
}

#[test]
fn judge_is_not_suspect_after_its_node_was_off() {
    for (node, seconds) in [(0, 75), (0, 180), (1, 75), (1, 180), (2, 75), (2, 180)] {
        let cut = node_off(node, seconds);
        for protocols in [ALL, APART] {
            let mut world = World::new(&[cut], protocols);
            world.until(1_500);
            if protocols == ALL {
                let fault = vec![(Kind::Node, cut.subject.to_owned())];
                assert_eq!(past(&world), vec![fault; 6], "{} {seconds}", cut.subject);
            }
        }
    }
}

#[test]
fn judges_on_both_sides_of_a_cut_are_not_suspect_after_it() {
    // One or two of the three judges, two to four of the six nodes.
    for side in [0b00_1001, 0b01_0010, 0b10_0100, 0b00_0011, 0b00_0110, 0b11_1000, 0b00_0111, 0b10_0011, 0b01_1001] {
        for seconds in [75, 180] {
            for protocols in [ALL, APART] {
                let cut = Cut { side, from: 300, to: 300 + seconds, kind: "zone", subject: "z" };
                let mut world = World::new(&[cut], protocols);
                world.until(1_500);
                let readers = past(&world);
                assert!(readers.iter().all(|past| *past == readers[0]), "{side:06b}: {readers:?}");
                let is_of_one_judge = (side & 0b111_u32).is_power_of_two();
                if protocols == ALL && is_of_one_judge && side.count_ones() == 2 {
                    assert_eq!(readers[0], [(Kind::Zone, "z".to_owned())], "{side:06b}");
                }
            }
        }
    }
}

#[test]
fn judge_that_replaces_a_killed_one_is_not_suspect() {
    for killed in 0..3 {
        for again in [None, Some(20), Some(100)] {
            for protocols in [ALL, APART] {
                let mut world = World::new(&[node_off(0, 75), Cut { from: 600, to: 700, ..node_off(1, 0) }], protocols);
                world.until(620);
                world.agents[killed].is_killed = true;
                if let Some(seconds) = again {
                    world.until(620 + seconds);
                    let new = World::new(&[], protocols).agents.remove(killed);
                    world.agents[killed] = new;
                }
                world.until(1_800);
                let readers = past(&world);
                assert!(readers.iter().all(|past| *past == readers[0]), "{killed}: {readers:?}");
            }
        }
    }
}

#[test]
fn the_past_survives_a_rollout_and_stays_confirmed() {
    for (count, at_once) in [(4, 1), (12, 1), (12, 10), (30, 1), (30, 10), (300, 10)] {
        // The order of the nodes has nothing to do with their ranks. An agent begins after 10 s, and
        // the next one is replaced as soon as it is ready, or later.
        for (step, pause) in [7, 11, 13].into_iter().flat_map(|step| [(step, 14), (step, 20)]) {
            let mut world = World::with_agents(count, &[node_off(1, 120)]);
            world.until(900);
            let order: Vec<usize> = (0..count).map(|place| place * step % count).collect();
            for batch in order.chunks(at_once) {
                // What has no rank changes nothing here.
                if batch.iter().any(|agent| *agent < RANKED) {
                    world.replace(batch);
                    world.until(world.now + pause);
                }
            }
            world.until(world.now + 120);
            for said in world.readers() {
                let of = format!("{at_once} of {count} at once, in steps of {step}, {pause} s apart");
                // Only the node that was cut off saw the others silent, which is not handed on.
                let past = quorum::agreed(&said).into_iter();
                let past: Vec<_> = past.map(|verdict| (verdict.kind, verdict.subject, verdict.unconfirmed)).collect();
                assert_eq!(past, [(Kind::Node, "n1".to_owned(), false)], "{of}");
                let since = quorum::remembered(&said).map(|(since, _)| since);
                assert!(since.is_some_and(|since| since < BEGIN + 120), "{of}: {since:?}");
            }
        }
    }
}

#[test]
fn nothing_is_said_of_a_time_without_judges() {
    let mut world = World::with_agents(6, &[]);
    world.until(300);
    world.replace(&[0, 1, 2, 3, 4, 5]);
    world.until(600);
    for said in world.readers() {
        let since = quorum::remembered(&said).map(|(since, _)| since).expect("there are judges");
        assert!((BEGIN + 310..BEGIN + 420).contains(&since), "{since}");
    }
}
