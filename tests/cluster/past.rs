//! Faults one after another: each is named, ends, and stays in the past, also after a rollout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::Test;
use crate::agents::Pod;
use crate::faults::{Cut, IngressLoss, LinkDown};
use crate::judges::first_not_in;
use crate::rows::{finding, is_the_only_subject};
use crate::wait::until;
use crate::watch::{Expected, Watch, unix_seconds};

/// Times from the end of a fault until it begins again. Both are longer than the pauses of a fault
/// that comes and goes, and the latter is longer than all that a verdict is found from.
const APART: [Duration; 2] = [Duration::from_mins(2), Duration::from_mins(5)];

impl Test {
    pub(crate) fn faults_have_a_true_past(&self) {
        let pods = self.pods();
        let judges = until("three judges", || self.judges(&pods));
        eprintln!("  {judges:?} judge");
        self.past(&pods);
        let mut watch = Watch::new(&self.cluster);
        let (lossy, cut_off) = (&judges[1], &judges[0]);
        let witness = pods.keys().find(|node| ![lossy, cut_off].contains(node)).expect("there are three nodes");
        watch.at(&[witness], &pods);
        self.loses_thrice(&mut watch, lossy, &pods);
        watch.at(&[witness, cut_off], &pods);
        self.is_down(&mut watch, cut_off, &pods);
        self.a_zone_is_cut_off(&mut watch, &judges, &pods);
        self.a_rollout_keeps_the_past(&pods);
        assert_eq!(watch.wrong, BTreeSet::new(), "what was said is wrong");
    }

    /// A fifth of what a node sends is lost for a minute, and again later.
    fn loses_thrice(&self, watch: &mut Watch<'_>, lossy: &str, pods: &BTreeMap<String, Pod>) {
        let begun = unix_seconds();
        let is_of_fault = is_of_node(lossy);
        let loss = of_node(lossy, "loses ", Duration::from_mins(1), &is_of_fault);
        let mut verdicts = Vec::new();
        for apart in [Duration::ZERO].iter().chain(&APART) {
            watch.calm(*apart);
            eprintln!("  a fifth of what {lossy} sends is lost");
            let receivers = pods.iter().filter(|(node, _)| *node != lossy).map(|(_, pod)| pod);
            let sender = &pods[lossy];
            verdicts.push(watch.fault(&loss, || IngressLoss::of_every_fifth_from(&self.cluster, sender, receivers)));
        }
        let past = watch.past_since(begun);
        let of_id = past.iter().filter(|verdict| verdict["id"] == verdicts[0]["id"]).count();
        let are_all = of_id == 3 && first_not_in(&verdicts, &past).is_none();
        watch.require(are_all, format!("not all of {verdicts:?} are in the past: {past:?}"));
    }

    /// A node's link is down for three minutes.
    fn is_down(&self, watch: &mut Watch<'_>, cut_off: &str, pods: &BTreeMap<String, Pod>) {
        eprintln!("  the link of {cut_off} is down");
        let is_of_fault = is_of_node(cut_off);
        let down = of_node(cut_off, "is down: ", Duration::from_mins(3), &is_of_fault);
        watch.fault(&down, || LinkDown::start(&self.cluster, cut_off));
        until("the node Ready again", || {
            let ready = self.node_ready(cut_off)?;
            if ready == "True" { Ok(()) } else { Err(ready) }
        });
        self.recovers(pods);
    }

    /// All links between one zone and the others are cut for two minutes.
    fn a_zone_is_cut_off(&self, watch: &mut Watch<'_>, judges: &[String], pods: &BTreeMap<String, Pod>) {
        // A link that loses again sooner has not ceased to lose, and the verdict begins with it.
        watch.calm(APART[0]);
        let zones: BTreeSet<&str> = self.zones.values().map(String::as_str).collect();
        let zone = *zones.first().expect("there are zones");
        let (inside, outside): (Vec<_>, Vec<_>) = pods.keys().partition(|node| self.zones[*node] == zone);
        eprintln!("  {zone} is cut off from the other zones: {inside:?} | {outside:?}");
        // Only where two judges are can they agree.
        let has_judges = judges.iter().filter(|judge| inside.contains(judge)).count() > 1;
        let (near, far) = if has_judges { (&inside, &outside) } else { (&outside, &inside) };
        watch.at(&[near[0], far[0]], pods);
        let is_across = |verdict: &Value| {
            let ends: Vec<_> = verdict["subject"].as_str().unwrap_or_default().split("->").collect();
            match verdict["kind"].as_str() {
                Some("zone" | "zone_pair") => ends.contains(&zone),
                Some("link") => ends.iter().filter(|end| inside.iter().any(|node| node == *end)).count() == 1,
                _ => false,
            }
        };
        // With exactly two zones the verdict is about the pair.
        let (kind, subject, says) = match zones.iter().copied().collect::<Vec<_>>()[..] {
            [a, b] => ("zone_pair", format!("{a}->{b}"), format!("{a} and {b} cannot reach each other")),
            _ => ("zone", zone.to_owned(), format!("{zone} is cut off from all other zones")),
        };
        let lasts = Duration::from_mins(2);
        let cut = Expected { kind, subject, says, lasts, is_of_fault: &is_across };
        let pods_inside: Vec<&Pod> = inside.iter().map(|node| &pods[*node]).collect();
        watch.fault(&cut, || Cut::around(&self.cluster, &pods_inside, &outside));
        self.recovers(pods);
    }

    /// Replaces all agents. The past must be the same, and as sure as before.
    fn a_rollout_keeps_the_past(&self, before: &BTreeMap<String, Pod>) {
        let past = self.past(before);
        self.cluster.kubectl(&["rollout", "restart", "daemonset/kube-canary"]).unwrap();
        let after = self.until_all_are_new(before, || Ok(()));
        until("three judges", || self.judges(&after));
        let now = self.past(&after);
        let [confirmed, still] = [&past, &now].map(|past| -> Vec<Value> {
            past.iter().filter(|verdict| verdict["unconfirmed"] != true).cloned().collect()
        });
        eprintln!("         confirmed: {} of {}, now {} of {}", confirmed.len(), past.len(), still.len(), now.len());
        assert_eq!(first_not_in(&confirmed, &still), None, "the past is not kept: {now:?}");
        assert_eq!(first_not_in(&now, &past), None, "the judges have found something");
    }
}

/// Returns whether a verdict is about this node or a link that ends at it.
fn is_of_node(node: &str) -> impl Fn(&Value) -> bool {
    move |verdict| {
        let [kind, subject] = ["kind", "subject"].map(|name| verdict[name].as_str().unwrap_or_default());
        is_the_only_subject(node, &BTreeSet::from([finding(kind, subject, "")]))
    }
}

/// Returns what must be said of a node in which something is wrong.
fn of_node<'e>(node: &str, finding: &str, lasts: Duration, is_of_fault: &'e dyn Fn(&Value) -> bool) -> Expected<'e> {
    Expected { kind: "node", subject: node.to_owned(), says: format!("{node} {finding}"), lasts, is_of_fault }
}
