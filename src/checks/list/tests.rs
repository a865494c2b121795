use std::fs;

use super::*;
use crate::discovery::StaticConfig;
use crate::discovery::kubernetes::{ApiServer, Timing};

fn config(flags: &[&str], defaults: bool, file: Option<PathBuf>) -> ChecksConfig {
    let given = flags.iter().map(|text| ("--check", *text));
    let specs = ChecksConfig::read_flags(given, defaults).unwrap();
    ChecksConfig { specs, file, defaults, by_udp: true, authorities: None, rate: 50.0 }
}

fn no_cluster() -> DiscoverySource {
    DiscoverySource::Static(StaticConfig::default())
}

fn names(specs: &[CheckSpec]) -> String {
    specs.iter().map(|spec| &*spec.name).collect::<Vec<_>>().join(" ")
}

fn refused(text: &str) -> String {
    let mut list = CheckCollector::new(true, &[]);
    let error = list.add_file(text.as_bytes(), Path::new("/etc/checks")).expect_err(text).to_string();
    assert!(error.lines().count() == 1 && error.contains("; accepted: "), "{error}");
    error
}

#[test]
fn file_has_one_check_per_line_and_comments() {
    let text = "# outside\r\n\r\n  a=tcp:h:1 # the database\r\nhttps://b/?c=1\t#\n#d=tcp:h:1";
    let mut list = CheckCollector::new(true, &[]);
    list.add_file(text.as_bytes(), Path::new("checks")).unwrap();
    assert_eq!(names(&list.specs), "a b");
}

#[test]
fn bad_line_is_named() {
    assert!(refused("a=tcp:h:1\nb=tcp:h\n").starts_with("--checks-file /etc/checks:2: bad check \"b=tcp:h\": "));
    assert!(refused("https://a/#b").contains("fragment"));
    assert!(refused("a=tcp:h:1 b=tcp:h:2").contains("port"));
    assert!(refused("a=tcp:h:1\n\na=tcp:h:2").contains("checks:3: two checks have the NAME \"a\""));
    assert!(refused("api-server=tcp:h:2").contains("checks:1: the NAME \"api-server\" is that of a default check"));
    let many: Vec<String> = (0..=CHECKS_MAX).map(|n| format!("c{n}=tcp:h:1")).collect();
    assert!(refused(&many.join("\n")).contains("checks:33: more than 32 checks"));
    let error = CheckCollector::new(true, &[]).add_file(b"a=tcp:h:1\n\xff\n", Path::new("c")).unwrap_err().to_string();
    assert!(error.starts_with("--checks-file c:2: it is not UTF-8"), "{error}");
}

#[test]
fn defaults_come_first_and_only_in_a_cluster() {
    for (host, shown) in [("10.96.0.1", "10.96.0.1:443"), ("fd00::1", "[fd00::1]:443"), ("api.corp", "api.corp:443")] {
        let cluster = DiscoverySource::Kubernetes(Box::new(KubernetesConfig {
            server: ApiServer { host: host.into(), port: 443 },
            account: "/account".into(),
            namespace: "ns".into(),
            service: "canary".into(),
            timing: Timing::default(),
        }));
        let specs = config(&["a=tcp:h:1"], true, None).load(&cluster).unwrap();
        assert_eq!(names(&specs), "dns api-server service service-udp a");
        assert_eq!(specs[0].target, CheckTarget::ClusterDns);
        assert_eq!(specs[1].target.to_string(), shown);
        assert!(matches!(&specs[1].target, CheckTarget::ApiServer { authorities, .. }
            if **authorities == AuthoritiesFile::new("/account/ca.crt".into())));
        assert_eq!(specs[2].target.to_string(), "canary-check.ns.svc:80");
        assert_eq!(names(&config(&["dns=tcp:h:1"], false, None).load(&cluster).unwrap()), "dns");
        let many: Vec<String> = (0..30).map(|n| format!("c{n}=tcp:h:1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = config(&many, true, None).load(&cluster).unwrap_err().to_string();
        assert!(error.contains("more than 32 checks"), "{error}");
        assert_eq!(config(&many, true, None).load(&no_cluster()).unwrap().len(), 30);
    }
}

#[test]
fn list_is_new_once_for_each_good_version_of_the_file() {
    let path = std::env::temp_dir().join(format!("kube-canary-checks-{}", std::process::id()));
    let put = |text: &str| {
        let next = path.with_extension("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, &path).unwrap();
    };
    put("b=tcp:h:1\n");
    let list = ChecksFile::new(config(&["a=tcp:h:1"], true, Some(path.clone())), &no_cluster());
    let look = || list.current().map(|specs| names(&specs));
    assert_eq!(look().as_deref(), Some("a b"));
    assert_eq!(look(), None);
    put("b=tcp:h:1\nc=tcp:h\n");
    assert_eq!((look(), look()), (None, None));
    put("a=tcp:h:2\n");
    assert_eq!(look(), None, "the flag has that name");
    put("c=tcp:h:2\n");
    assert_eq!(look().as_deref(), Some("a c"));
    fs::remove_file(&path).unwrap();
    assert_eq!(look(), None);
    put("");
    assert_eq!(look().as_deref(), Some("a"));
    fs::remove_file(&path).unwrap();
}

#[test]
fn flags_alone_are_a_list_that_never_changes() {
    let list = ChecksFile::new(config(&["a=tcp:h:1"], true, None), &no_cluster());
    assert_eq!(list.current().map(|specs| names(&specs)).as_deref(), Some("a"));
    assert_eq!(list.current(), None);
    let gone = ChecksFile::new(config(&["a=tcp:h:1"], true, Some("/nonexistent/checks".into())), &no_cluster());
    assert_eq!(gone.current().map(|specs| names(&specs)).as_deref(), Some("a"));
    assert_eq!(gone.current(), None);
}
