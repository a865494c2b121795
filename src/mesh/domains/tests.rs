use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn domain_of<'a>(domains: &'a Domains, node: &str) -> &'a str {
    domains.name(domains.domain_of(node))
}

/// Works as a ConfigMap volume does: the file is a link through another link, which is replaced.
#[test]
fn a_file_is_read_again_when_a_config_map_changes_and_a_bad_one_keeps_the_last_domains() {
    let folder = std::env::temp_dir().join(format!("kube-canary-domains-{}", std::process::id()));
    let put = |version: &str, text: &str| {
        fs::create_dir_all(folder.join(version)).expect("a folder");
        fs::write(folder.join(version).join("domains"), text).expect("a file");
        symlink(version, folder.join("..data_tmp")).expect("a link");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("renamed");
    };
    put("1", "n1 rack-a\n");
    symlink("..data/domains", folder.join("domains")).expect("a link");
    let file = DomainsFile::new(folder.join("domains"));
    let look = || {
        let mut said = String::new();
        let domains = file.current(|level, text| said = format!("{level} {text}"));
        (domain_of(&domains, "n1").to_owned(), said)
    };
    let is = |(domain, said): (String, String), expected: &str, part: &str| {
        assert!(domain == expected && said.contains(part) && said.is_empty() == part.is_empty(), "{domain} {said}");
    };
    is(look(), "rack-a", "INFO --domains-file");
    is(look(), "rack-a", "");
    put("2", "n1 rack-b\nn2 rack-b rack-c\n");
    is(look(), "rack-a", "domains:2: \"n2 rack-b rack-c\" is not a pattern and a domain");
    is(look(), "rack-a", "");
    put("3", "n1 rack-b\n");
    is(look(), "rack-b", "1 domains");
    fs::remove_file(folder.join("..data")).expect("removed");
    is(look(), "rack-b", "No such file");
    is(look(), "rack-b", "");
    fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(domain_of(&DomainsFile::new(folder).current(|_, _| {}), "n1"), "");
}
