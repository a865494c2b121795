use super::*;

fn report(source: &str, peers: &[&str]) -> String {
    let peer = |node: &&str| {
        format!(
            r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","address":"10.0.0.{}",
            "sent":60,"received":60,"lost":0,"recent":{{"seconds":60.0,"sent":60,"received":60,"lost":0}}}}"#,
            &node[1..]
        )
    };
    let peers: Vec<String> = peers.iter().map(peer).collect();
    format!(r#"{{"source":{{"node":"{source}","zone":"z","recent":{{}}}},"new":[1],"peers":[{}]}}"#, peers.join(","))
}

fn presences(matrix: &Matrix) -> Vec<(String, RowPresence)> {
    let mut found: Vec<_> = matrix.numbers().map(|n| (matrix.name(n).to_owned(), matrix.get(n).presence)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn checks_of_reports_are_judged_by_their_names_and_bounded() {
    let with = |source: &str, names: &[String]| {
        let checks: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}","kind":"tcp"}}"#)).collect();
        format!(r#"{{"source":{{"node":"{source}"}},"checks":[{}],"peers":[]}}"#, checks.join(","))
    };
    let names = |count: usize| (0..count).map(|name| name.to_string()).collect::<Vec<_>>();
    let mut reading = MeshReading::default();
    for (source, names) in [("n1", vec!["dns".into(), "a b".into()]), ("n2", vec!["api".into(), "dns".into()])] {
        reading.report(0, with(source, &names).as_bytes()).unwrap();
    }
    assert_eq!(reading.checks, ["dns", "api-server", "service", "service-udp", "api"].map(Box::from));
    reading.report(0, with("n3", &names(CHECKS_MAX)).as_bytes()).unwrap();
    assert_eq!(reading.checks.len(), CHECKS_MAX);
    let error = reading.report(0, with("n4", &names(CHECKS_MAX + 1)).as_bytes()).unwrap_err();
    assert!(matches!(error, ReportError::Checks), "{error}");
    let whole = with("n5", &names(1));
    reading.whole_report(0, &serde_json::from_str(&whole).unwrap()).unwrap();
    assert_eq!(reading.finish().2, 5);
}

#[test]
fn a_source_that_several_meshes_have_counts_once() {
    let mut reading = MeshReading::default();
    for document in 0..2 {
        reading.report(document, report("n1", &["n2", "n3"]).as_bytes()).unwrap();
        reading.report(document, report("n2", &["n1", "n3"]).as_bytes()).unwrap();
    }
    let (matrix, missing, reports, _) = reading.finish();
    assert_eq!((matrix.cell_count(), reports, matrix.not_kept().rows), (4, 2, 0));
    assert_eq!(missing, []);
    let node = |name: &str, presence| (name.to_owned(), presence);
    let expected = [node("n1", RowPresence::Whole), node("n2", RowPresence::Whole), node("n3", RowPresence::Listed)];
    assert_eq!(presences(&matrix), expected);
}

#[test]
fn a_node_is_missing_only_if_no_mesh_has_its_report() {
    let mut reading = MeshReading::default();
    reading.report(0, report("n1", &["n2", "n3"]).as_bytes()).unwrap();
    let fields = |nodes: &[&str]| {
        let missing: Vec<String> =
            nodes.iter().map(|node| format!(r#"{{"node":"{node}","error":"refused"}}"#)).collect();
        format!(r#"{{"missing":[{}],"verdicts":[{{"kind":"link"}}]}}"#, missing.join(","))
    };
    reading.fields(0, fields(&["n2", "n3"]).as_bytes()).unwrap();
    reading.report(1, report("n2", &["n1"]).as_bytes()).unwrap();
    // A row of the same mesh that broke off.
    reading.report(1, report("n4", &["n1"]).as_bytes()).unwrap();
    reading.fields(1, fields(&["n3", "n4"]).as_bytes()).unwrap();
    let (matrix, missing, reports, _) = reading.finish();
    assert_eq!((missing.iter().map(|m| m.node.as_str()).collect::<Vec<_>>(), reports), (vec!["n3", "n4"], 3));
    let of = |name: &str| presences(&matrix).into_iter().find(|(node, _)| node == name).unwrap().1;
    let all = ["n1", "n2", "n3", "n4"].map(of);
    assert_eq!(all, [RowPresence::Whole, RowPresence::Whole, RowPresence::Missing, RowPresence::Broken]);
}

/// The text after the reports, with these missing nodes.
fn behind(missing: &str) -> String {
    format!(r#"{{"missing":[{missing}]}}"#)
}

#[test]
fn a_node_whose_judged_report_broke_off_is_missing_even_if_another_mesh_has_a_whole_one() {
    let (half, whole) = (report("n3", &["n1"]), report("n3", &["n1", "n2"]));
    let broke_off = behind(r#"{"node":"n3","error":"broke off"}"#);
    let (of_half, of_whole) = ((&half, broke_off), (&whole, behind("")));
    for (documents, is_missing, expected) in [
        ([&of_half, &of_whole], true, RowPresence::Broken),
        ([&of_whole, &of_half], false, RowPresence::Whole),
        ([&of_half, &of_half], true, RowPresence::Broken),
    ] {
        let mut reading = MeshReading::default();
        for (document, (row, fields)) in documents.into_iter().enumerate() {
            reading.report(document, row.as_bytes()).unwrap();
            reading.fields(document, fields.as_bytes()).unwrap();
        }
        let (matrix, missing, reports, _) = reading.finish();
        assert_eq!((missing.iter().any(|missing| missing.node == "n3"), reports), (is_missing, 1));
        let found = presences(&matrix);
        assert!(found.contains(&("n3".to_owned(), expected)), "the first is kept: {found:?}");
    }
}

#[test]
fn a_report_with_a_text_between_its_objects_is_invalid() {
    let whole = report("n1", &["n2", "n3"]);
    for (from, to) in [("},{\"node\":\"n3\"", "}x{\"node\":\"n3\""), ("}]}", "}}}"), ("[1]", "[1"), ("[1]", "1]")] {
        let mut reading = MeshReading::default();
        let bad = whole.replace(from, to);
        assert!(bad != whole && reading.report(0, bad.as_bytes()).is_err(), "{bad}");
        let (_, missing, _, _) = reading.finish();
        assert_eq!(missing.len(), 1, "{bad}");
    }
}

#[test]
fn memory_for_a_malicious_report_is_bounded() {
    let report = |peers: usize| {
        let peers: Vec<String> = (0..peers).map(|n| format!(r#"{{"node":"p{n}"}}"#)).collect();
        format!(r#"{{"source":{{"node":"a"}},"peers":[{}]}}"#, peers.join(","))
    };
    MeshReading::default().report(0, report(REPORT_PEERS_MAX).as_bytes()).unwrap();
    let error = MeshReading::default().report(0, report(REPORT_PEERS_MAX + 1).as_bytes()).unwrap_err();
    assert!(matches!(error, ReportError::Peers), "{error}");

    let mut reading = MeshReading::default();
    let source = |node: &str| format!(r#"{{"source":{{"node":"{node}"}},"peers":[]}}"#);
    for number in 0..AGENTS_MAX {
        reading.report(0, source(&number.to_string()).as_bytes()).unwrap();
    }
    assert!(matches!(reading.report(0, source("one more").as_bytes()), Err(ReportError::TooMany(AGENTS_MAX))));
    reading.report(1, source("7").as_bytes()).unwrap();
    let long = source(&"a".repeat(NAME_BYTES_MAX + 1));
    assert!(matches!(MeshReading::default().report(0, long.as_bytes()), Err(ReportError::Name)));

    let many = |count: usize| {
        let missing: Vec<String> = (0..count).map(|n| format!(r#"{{"node":"m{n}","error":""}}"#)).collect();
        behind(&missing.join(","))
    };
    reading.fields(0, many(MISSING_MAX).as_bytes()).unwrap();
    assert!(matches!(reading.fields(0, many(1).as_bytes()), Err(FieldsError::Missing)));
    assert_eq!(reading.finish().1.len(), MISSING_MAX);
}

#[test]
fn a_report_that_names_a_node_twice_is_invalid_and_its_earlier_part_counts() {
    let mut reading = MeshReading::default();
    let twice = report("n1", &["n2", "n3", "n2", "n4"]);
    let error = reading.report(0, twice.as_bytes()).unwrap_err();
    assert!(matches!(&error, ReportError::Twice(node) if node == "n2"), "{error}");
    // A peer on its other network, or by the other protocol, is another object.
    let thrice = report("n2", &["n1", "n1", "n1"]);
    let thrice = thrice.replacen("\"pod\"", "\"node\"", 1).replacen("\"icmp\"", "\"icmpv6\"", 2);
    let thrice = thrice.replacen("\"icmpv6\"", "\"icmp\"", 1);
    reading.report(0, thrice.as_bytes()).unwrap();
    let (matrix, missing, _, _) = reading.finish();
    let error = "not a report: it names n2 twice".to_owned();
    assert_eq!(missing, [Missing { node: "n1".into(), error }]);
    assert_eq!((presences(&matrix)[0].1, matrix.cell_count()), (RowPresence::Broken, 2 + 3));
}

#[test]
fn a_second_report_of_a_node_is_refused_in_the_same_document_and_skipped_in_another() {
    let mut reading = MeshReading::default();
    reading.report(0, report("n1", &["n2"]).as_bytes()).unwrap();
    let error = reading.report(0, report("n1", &["n3"]).as_bytes()).unwrap_err();
    assert!(matches!(&error, ReportError::Repeated(node) if node == "n1"), "{error}");
    reading.report(1, report("n1", &["n3"]).as_bytes()).unwrap();
    let (matrix, missing, reports, _) = reading.finish();
    assert_eq!((matrix.cell_count(), missing.len(), reports), (1, 0, 1));
}

#[test]
fn off_line_there_is_room_for_more_than_an_agent_may_keep() {
    let mut reading = MeshReading::off_line();
    let names: Vec<String> = (0..24).map(|n| format!("n{n}")).collect();
    let peers: Vec<&str> = names.iter().map(String::as_str).collect();
    for number in 0..=AGENTS_MAX {
        reading.report(0, report(&format!("source-{number}"), &peers).as_bytes()).unwrap();
    }
    let (matrix, missing, reports, _) = reading.finish();
    assert_eq!((reports, missing.len(), matrix.cell_count()), (AGENTS_MAX + 1, 0, (AGENTS_MAX + 1) * 24));
    assert_eq!((matrix.not_kept().rows, matrix.not_kept().cells), (0, 0));
}

#[test]
fn a_report_that_breaks_off_keeps_its_first_part_and_is_marked_as_broken() {
    let whole = report("n1", &["n2", "n3"]);
    let cut = &whole.as_bytes()[..whole.len() - 20];
    let mut reading = MeshReading::default();
    assert!(reading.report(0, cut).is_err());
    reading.report(0, report("n2", &["n1"]).as_bytes()).unwrap();
    let (matrix, missing, _, _) = reading.finish();
    assert!(missing[0].node == "n1" && missing[0].error.starts_with("not a report: "), "{missing:?}");
    assert_eq!((matrix.cell_count(), presences(&matrix)[0].1), (2, RowPresence::Broken));
}

/// What the last losses of a link mean is known when all reports are there. Until then, none counts.
#[test]
fn reports_say_the_same_in_any_order() {
    let peer = |node: &str| {
        format!(
            r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","address":"10.0.0.1",
            "recent":{{"seconds":60,"sent":60,"received":54,"lost":6,"lost_in_row":2,"answered_since":0}}}}"#
        )
    };
    let report = |node: &str, peers: [&str; 2]| {
        let peers = peers.map(peer).join(",");
        format!(r#"{{"source":{{"node":"{node}","zone":"z"}},"peers":[{peers}]}}"#)
    };
    let reports = [report("n1", ["n2", "n3"]), report("n2", ["n1", "n3"]), report("n3", ["n1", "n2"])];
    let judged = |order: [usize; 3]| {
        let mut reading = MeshReading::default();
        for at in order {
            reading.report(0, reports[at].as_bytes()).unwrap();
        }
        let (matrix, ..) = reading.finish();
        let (mut tallies, fresh) = ([0, 0], matrix.numbers().map(|node| matrix.fresh_sources(node)).max());
        for node in matrix.numbers() {
            for cell in matrix.cells(node) {
                tallies = [tallies[0] + cell.probes(), tallies[1] + cell.lost()];
            }
        }
        (tallies, fresh)
    };
    assert_eq!(judged([0, 1, 2]), judged([2, 1, 0]));
    assert_eq!(judged([0, 1, 2]), ([6 * 58, 6 * 4], Some(2)));
}

#[test]
fn facts_about_the_mesh_and_old_lists_are_kept() {
    let mut reading = MeshReading::default();
    let report = |node: &str, says: &str| format!(r#"{{"source":{{"node":"{node}","zone":"z",{says}}},"peers":[]}}"#);
    for (node, says) in [
        ("n4", r#""peer_list_age_seconds":null,"watchers":0"#),
        ("n1", r#""peer_list_age_seconds":240,"watchers":24,"watchers_missing":0"#),
        ("n2", r#""peer_list_age_seconds":241,"watchers":12,"watchers_missing":2"#),
        ("n3", r#""version":"0.1.0""#),
    ] {
        reading.report(0, report(node, says).as_bytes()).unwrap();
    }
    let (_, _, reports, facts) = reading.finish();
    let old = |node: &str, age_seconds| OldList { node: node.into(), age_seconds };
    assert_eq!((reports, facts.watchers, facts.watchers_missing), (4, Some(12), 1));
    assert_eq!(facts.old_lists, [old("n2", Some(241.0)), old("n4", None)]);
}

#[test]
fn an_unanswered_agent_is_identified_by_its_address() {
    let mut reading = MeshReading::default();
    reading.report(0, report("n1", &["n2"]).as_bytes()).unwrap();
    assert!(
        reading.unanswered(1, [10, 0, 0, 2].into(), "refused")
            && !reading.unanswered(2, [10, 0, 0, 9].into(), "refused")
    );
    let (matrix, missing, _, _) = reading.finish();
    assert_eq!(missing, [Missing { node: "n2".into(), error: "refused".into() }]);
    assert_eq!(presences(&matrix)[1].1, RowPresence::Missing);
}

#[test]
fn an_invalid_report_is_an_error() {
    for text in ["", "[]", "{}", r#"{"peers":[],"source":{"node":"a"}}"#, r#"{"source":{"node":"a"}}"#, "{\"source\":"]
    {
        assert!(MeshReading::default().report(0, text.as_bytes()).is_err(), "{text}");
    }
    let twice = format!("{}{}", report("a", &[]), report("b", &[]));
    assert!(MeshReading::default().report(0, twice.as_bytes()).is_err());
}
