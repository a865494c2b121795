//! Shapes of faults, losses without a cause, and reports that contradict each other.

use super::*;
use kube_canary_model::verdict::GROUPS_MAX;

#[test]
fn a_loss_everywhere_is_the_mesh_and_not_a_dozen_nodes() {
    let names: Vec<String> = (0..12).map(|node| format!("node-{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mesh = full(&names, |_, _| 3);
    assert_eq!(mesh.subjects(), [(Kind::Mesh, "*".into())]);
    assert_eq!(mesh.headline(), "all links lose 5 % alike");
}

#[test]
fn a_split_mesh_is_one_verdict_that_names_the_groups() {
    let names = ["a", "b", "c", "d", "e"];
    let group = |name: &str| name < "c";
    let mesh = full(&names, |from, to| if group(from) == group(to) { 0 } else { 60 });
    let verdicts = mesh.verdicts();
    assert_eq!(mesh.subjects(), [(Kind::Partition, "a|c".into())]);
    assert_eq!(verdicts[0].members, [vec!["a", "b"], vec!["c", "d", "e"]]);
    assert_eq!(mesh.headline(), "the mesh is split: 2 | 3 nodes do not reach each other");
    // The view from inside one group, whose agents get no reports from the other group.
    let seen = ["a", "b"].iter().fold(Mesh::new(), |mesh, from| {
        let peers = names.iter().filter(|to| *to != from).map(|to| peer(to, if group(to) { 0 } else { 60 }));
        mesh.row(&source(from, 60), &peers.collect::<Vec<_>>())
    });
    let seen = ["c", "d", "e"].iter().fold(seen, |mesh, name| mesh.missing(name));
    assert_eq!(seen.subjects(), [(Kind::Partition, "a|c".into())]);
}

#[test]
fn what_falls_into_more_groups_than_a_verdict_lists_names_the_first_and_counts_the_others() {
    let names: Vec<String> = (0..50).map(|node| format!("n{node:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let group = |name: &str| name[1..].parse::<u32>().expect("a number") / 2;
    let mesh = full(&names, |from, to| if group(from) == group(to) { 0 } else { 60 });
    let verdicts = mesh.verdicts();
    assert_eq!(verdicts[0].kind, Kind::Partition);
    assert_eq!((verdicts[0].sizes.as_slice(), verdicts[0].members.len()), (&[2; GROUPS_MAX][..], GROUPS_MAX));
    assert_eq!(verdicts[0].figures.get(Figure::MembersNotListed), Some(16.0));
}

#[test]
fn all_pairs_of_three_zones_that_lose_alike_are_named_and_no_zone_is() {
    let zones = ["a", "b", "c"];
    let nodes: Vec<(String, &str)> =
        zones.iter().flat_map(|zone| (1..=4).map(move |node| (format!("{zone}{node}"), *zone))).collect();
    let mesh = |lost: &dyn Fn(&str, &str) -> u32| {
        nodes.iter().fold(Mesh::new(), |mesh, (from, zone)| {
            let others = nodes.iter().filter(|(to, _)| to != from);
            let peers = others.map(|(to, zone)| with(peer(to, lost(from, to)), "zone", json!(zone)));
            mesh.row(&with(source(from, 660), "zone", json!(zone)), &peers.collect::<Vec<_>>())
        })
    };
    let found = |lost: &dyn Fn(&str, &str) -> u32| {
        let mut subjects = mesh(lost).subjects();
        subjects.sort();
        subjects
    };
    let pairs = ["a->b", "a->c", "b->c"].map(|pair| (Kind::ZonePair, pair.to_owned()));
    for (seed, share) in [(1, 12), (2, 12), (3, 20)] {
        let noise = |from: &str, to: &str| {
            from.bytes().chain(to.bytes()).fold(seed, |sum: u32, byte| (sum * 31 + u32::from(byte)) % 1_009) % 5
        };
        let between = |from: &str, to: &str| if from[..1] == to[..1] { 0 } else { share + noise(from, to) - 2 };
        assert_eq!(found(&between), pairs, "{seed}");
    }
    let of_one = |from: &str, to: &str| u32::from((from.starts_with('a')) != (to.starts_with('a'))) * 12;
    assert_eq!(found(&of_one), [(Kind::Zone, "a".to_owned())]);
}

#[test]
fn a_domain_that_is_cut_off_is_no_partition_and_one_verdict_whatever_it_loses_inside() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let in_rack = |name: &str| name < "d";
    for (inside, parts) in [(0, 1), (20, 2)] {
        let mut mesh = full(&names, |from, to| match (in_rack(from), in_rack(to)) {
            (true, true) => inside,
            (false, false) => 0,
            _ => 60,
        });
        let domains = Domains::parse(b"a rack\nb rack\nc rack\n").expect("a domains file");
        mesh.matrix.set_domains(&Arc::new(domains));
        let verdicts = mesh.verdicts();
        assert_eq!(mesh.subjects(), [(Kind::Domain, "rack".into())], "{verdicts:?}");
        let inside = if inside > 0 { ", and loses 33 % inside" } else { "" };
        assert_eq!(mesh.headline(), format!("domain rack is cut off from all other nodes{inside}"));
        assert_eq!(evidence(&verdicts[0]).matches("of the probes").count(), parts, "{}", evidence(&verdicts[0]));
        assert_eq!((verdicts[0].severity, verdicts[0].confidence), (Severity::Critical, Confidence::Certain));
        assert_eq!(verdicts[0].members, [["a", "b", "c"]]);
    }
}

#[test]
fn the_members_of_a_domain_are_the_nodes_that_stay_and_those_beyond_the_limit_are_counted() {
    let names: Vec<String> = (0..70).map(|n| format!("{}{n:02}", if n < 67 { "in" } else { "out" })).collect();
    let in_rack = |name: &str| name.starts_with("in");
    let mut mesh = names.iter().fold(Mesh::new(), |mesh, from| {
        let peers = names.iter().filter(|to| *to != from).map(|to| {
            let peer = peer(to, if in_rack(from) == in_rack(to) { 0 } else { 60 });
            if to == "in00" { with(peer, "state", json!("terminating")) } else { peer }
        });
        mesh.row(&source(from, 0), &peers.collect::<Vec<_>>())
    });
    mesh.matrix.set_domains(&Arc::new(Domains::parse(b"in* rack\n").expect("a domains file")));
    let verdicts = mesh.verdicts();
    assert_eq!(mesh.subjects(), [(Kind::Domain, "rack".into())], "{verdicts:?}");
    assert_eq!(verdicts[0].members, [&names[1..65]]);
    assert!(evidence(&verdicts[0]).ends_with("; 2 members are not listed"), "{}", evidence(&verdicts[0]));
}

#[test]
fn losses_without_a_cause_are_not_well() {
    let mesh = full(&["a", "b", "c", "d"], |from, to| if (from, to) == ("a", "b") { 5 } else { 0 });
    // As if there were this many nodes that five losses may be chance.
    let said = headline_without_cause(&mesh.matrix);
    assert_eq!(said.state, MeshState::Losses);
    assert!(said.text.starts_with("1 of 12 links loses: 8.3 % from a to b since "), "{said:?}");
    assert_eq!(headline_without_cause(&full(&["a", "b"], |_, _| 0).matrix).state, MeshState::Well);
}

/// The report of ten minutes in which `lost` of 600 probes were lost.
fn over_ten_minutes(peer: Value, lost: u32) -> Value {
    with(peer, "ten_minutes", json!({"seconds": 600, "sent": 600, "lost": lost}))
}

/// A full mesh in which nothing was lost recently. Over ten minutes, each loses what `lost` says.
fn calm_now(names: &[&str], source: impl Fn(&str) -> Value, lost: impl Fn(&str, &str) -> Option<Value>) -> Mesh {
    names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from);
        let peers = others.map(|to| lost(from, to).unwrap_or_else(|| over_ten_minutes(peer(to, 0), 0)));
        mesh.row(&source(from), &peers.collect::<Vec<_>>())
    })
}

#[test]
fn losses_over_ten_minutes_are_not_well() {
    let names = ["a", "b", "c"];
    let line_of = |lost: &dyn Fn(&str, &str) -> Option<Value>| {
        let mesh = calm_now(&names, |from| source(from, 120), lost);
        assert_eq!(mesh.verdicts(), [], "a calm minute has no cause");
        let Headline { state, text } = headline_without_cause(&mesh.matrix);
        (state, text)
    };
    let well = (MeshState::Well, "all well".to_owned());
    assert_eq!(line_of(&|_, _| None), well);
    let one =
        |lost: u32| line_of(&move |from, to| ((from, to) == ("a", "b")).then(|| over_ten_minutes(peer(to, 0), lost)));
    assert_eq!(one(11), well);
    let text = "1 of 6 links has lost 2 % and more over ten minutes: 2.0 % from a to b; no cause stands out";
    assert_eq!(one(12), (MeshState::Losses, text.to_owned()));
    let two = line_of(&|from, to| match (from, to) {
        ("c", "b") => Some(over_ten_minutes(peer(to, 0), 18)),
        ("b", "a") => Some(with(over_ten_minutes(peer(to, 1), 60), "network", json!("node"))),
        _ => None,
    });
    let text = "2 of 6 links have lost 2 % and more over ten minutes: 10.0 % from b to a (node network); \
                no cause stands out";
    assert_eq!(two, (MeshState::Losses, text.to_owned()));
    // Current losses come first.
    let now = line_of(&|from, to| match (from, to) {
        ("a", "b") => Some(over_ten_minutes(peer(to, 3), 60)),
        _ => None,
    });
    assert!(now.1.contains("over ten minutes"), "three losses of a minute may be chance: {now:?}");
    let mesh = full(&names, |from, to| if (from, to) == ("a", "b") { 5 } else { 0 });
    assert!(headline_without_cause(&mesh.matrix).text.starts_with("1 of 6 links loses: 8.3 %"));
}

#[test]
fn ten_minutes_of_starved_sources_and_leaving_peers_are_no_evidence() {
    let names = ["a", "b", "c", "d"];
    let starved = |from: &str| {
        let lag = if from == "a" { 0.5 } else { 0.0 };
        let mut source = source(from, 180);
        source["recent"]["send_lag_p99_seconds"] = json!(lag);
        source
    };
    let from_a = |from: &str, to: &str| (from == "a").then(|| over_ten_minutes(peer(to, 0), 300));
    let mesh = calm_now(&names, starved, from_a);
    assert_eq!(headline_without_cause(&mesh.matrix).state, MeshState::Well);
    assert_eq!(
        headline_without_cause(&calm_now(&names, |from| source(from, 180), from_a).matrix).state,
        MeshState::Losses
    );

    // All others know that d is being removed; a does not know it yet.
    let leaving = |also: u32| {
        let mesh = calm_now(
            &names,
            |from| source(from, 180),
            |from, to| match (from, to) {
                ("a", "d") => Some(over_ten_minutes(peer(to, 0), 300)),
                ("a", "c") => Some(over_ten_minutes(peer(to, 0), also)),
                (_, "d") => Some(with(peer(to, 0), "state", json!("terminating"))),
                _ => None,
            },
        );
        headline_without_cause(&mesh.matrix)
    };
    assert_eq!(leaving(0).state, MeshState::Well);
    let said = leaving(30);
    // Only the worst link of a row is named.
    let text = "1 of 6 links has lost 2 % and more over ten minutes; no cause stands out";
    assert_eq!((said.state, said.text.as_str()), (MeshState::Losses, text));
}

#[test]
fn a_false_report_of_ten_minutes_names_only_its_own_link() {
    for said in [
        json!({"seconds": 600, "sent": 600, "lost": 4_294_967_295_u32}),
        json!({"seconds": 1e300, "sent": 4_294_967_295_u32, "lost": 4_294_967_295_u32}),
    ] {
        let mesh = calm_now(
            &["a", "b", "c"],
            |from| source(from, 120),
            |from, to| ((from, to) == ("a", "b")).then(|| with(peer(to, 0), "ten_minutes", said.clone())),
        );
        assert_eq!(mesh.verdicts(), []);
        let text = "1 of 6 links has lost 2 % and more over ten minutes: 100.0 % from a to b; no cause stands out";
        assert_eq!(mesh.headline(), text);
    }
}

#[test]
fn a_loss_that_the_other_end_excludes_is_likely_and_names_no_other_node() {
    let of = |mesh: &Mesh| {
        let verdicts = mesh.verdicts().into_iter();
        verdicts.map(|verdict| (verdict.kind, verdict.subject, verdict.confidence)).collect::<Vec<_>>()
    };
    let names = ["a", "b", "c", "d", "e", "f"];
    let filter = full(&names, |from, to| if (from, to) == ("e", "b") { 60 } else { 0 });
    assert_eq!(of(&filter), [(Kind::Link, "e->b".into(), Confidence::Likely)]);
    let liar = full(&names, |from, _| if from == "e" { 60 } else { 0 });
    assert_eq!(of(&liar), [(Kind::Node, "e".into(), Confidence::Likely)]);
    // If two agents report losses to one node, their links to it are named and not the node.
    let two = full(&names, |from, to| if to == "b" && (from == "e" || from == "f") { 60 } else { 0 });
    let found = [(Kind::Link, "e->b".into(), Confidence::Likely), (Kind::Link, "f->b".into(), Confidence::Likely)];
    assert_eq!(of(&two), found);
    // A node that answers no requests is named if all others report that, whatever
    // the node itself reports.
    let mute = full(&names, |_, to| if to == "b" { 60 } else { 0 });
    assert_eq!(of(&mute), [(Kind::Node, "b".into(), Confidence::Likely)]);
}

#[test]
fn nodes_that_one_row_invents_are_no_evidence() {
    let ghosts: Vec<Value> = (0..5).map(|ghost| peer(&format!("ghost{ghost}"), 60)).collect();
    let named = |members: u32| {
        let said = |node: &str| with(source(node, 0), "members", json!(members));
        let honest = ["a", "b", "c"].into_iter().fold(Mesh::new(), |mesh, from| {
            let peers: Vec<Value> =
                ["a", "b", "c", "d"].iter().filter(|to| **to != from).map(|to| peer(to, 0)).collect();
            mesh.row(&said(from), &peers)
        });
        let own = ["a", "b", "c"].map(|to| peer(to, 0));
        honest.row(&said("d"), &[&own[..], &ghosts[..]].concat()).subjects()
    };
    assert_eq!(named(4), []);
    // If the others report as many members, the nodes may be real, and only few agents were asked.
    assert_ne!(named(9), []);
}

#[test]
fn a_sole_reporter_of_losses_to_all_is_named_if_no_pair_is_measured_twice() {
    // A ring: each node probes the next four of nine, and none of them probes it in return.
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let mesh = nodes.iter().enumerate().fold(Mesh::new(), |mesh, (place, from)| {
        let next = |step: usize| nodes[(place + step) % nodes.len()];
        let peers: Vec<Value> = (1..=4).map(|step| peer(next(step), if *from == "d" { 60 } else { 0 })).collect();
        mesh.row(&source(from, 240), &peers)
    });
    assert_eq!(mesh.subjects(), [(Kind::Node, "d".to_owned())]);
    assert_eq!(mesh.verdicts()[0].confidence, Confidence::Likely);
}

#[test]
fn the_first_losses_of_one_node_of_three_are_not_the_meshes() {
    for lost in 1..=30 {
        let mesh = full(&["a", "b", "c"], |from, to| if from == "c" || to == "c" { lost } else { 0 });
        let named = mesh.subjects();
        assert!(named.is_empty() || named == [(Kind::Node, "c".to_owned())], "{lost}: {named:?}");
    }
}
