use super::*;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

fn load(peers: &[&str]) -> Result<PeerList, PeerError> {
    StaticConfig { peers: peers.iter().map(|p| (*p).to_owned()).collect(), file: None }.load()
}

/// A directory that is removed at the end of the test.
struct TempDirectory(PathBuf);

impl TempDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kube-canary-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("peers")
    }
    /// Writes like an editor or the kubelet: a new file takes over the name.
    fn write(&self, text: &str) {
        let new = self.0.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_peer_is_read_with_and_without_zone_in_both_families() {
    let peer = parse_peer("n=fd00::1@z").unwrap();
    assert_eq!((peer.node.as_str(), peer.address, peer.zone), ("n", "fd00::1".parse().unwrap(), Some("z".into())));
    let peer = parse_peer("n=10.0.0.1").unwrap();
    assert_eq!((peer.address, peer.zone), ("10.0.0.1".parse().unwrap(), None));
    assert_eq!(parse_peer("n=::ffff:10.0.0.1").unwrap().address, "10.0.0.1".parse::<IpAddr>().unwrap());
}

#[test]
fn a_bad_entry_is_named_with_the_reason_and_what_is_accepted() {
    let long = "x".repeat(254);
    for (text, reason) in [
        ("10.0.0.1", "no '='"),
        ("a=", "the address is empty"),
        ("a=@z", "the address is empty"),
        ("=10.0.0.1", "the name is empty"),
        ("a=10.0.0.256", "neither IPv4 nor IPv6"),
        ("a=host.example", "neither IPv4 nor IPv6"),
        ("a=0.0.0.0", "unspecified"),
        ("a=::", "unspecified"),
        ("a=ff02::1", "multicast"),
        ("a=255.255.255.255", "broadcast"),
        ("a=fe80::1", "link-local"),
        ("a=10.0.0.1@", "the zone is empty"),
        ("a b=10.0.0.1", "the name holds white space"),
        (&format!("{long}=10.0.0.1"), "the name is longer than 253"),
        (&format!("a=10.0.0.1@{long}"), "the zone is longer than 253"),
    ] {
        let error = load(&[text]).unwrap_err().to_string();
        for part in ["--peer", text, reason, "accepted: NAME=ADDRESS[@ZONE]"] {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_name_may_have_one_address_per_family_and_no_more() {
    assert_eq!(load(&["a=10.0.0.1", "a=fd00::1"]).unwrap().peers.len(), 2);
    let error = load(&["a=10.0.0.1", "a=10.0.0.2"]).unwrap_err().to_string();
    assert!(error.contains("duplicate peer 'a'") && error.contains("--peer"), "{error}");
}

#[test]
fn errors_in_a_file_with_comments_and_blank_lines_name_the_line() {
    let directory = TempDirectory::new("lines");
    let config = StaticConfig { peers: vec!["c=10.0.0.3".into()], file: Some(directory.file()) };
    directory.write("# mesh\n\na=10.0.0.1@z1 # first\r\n  b=fd00::2\n");
    let names: Vec<String> = config.load().unwrap().peers.into_iter().map(|p| p.node).collect();
    assert_eq!(names, ["c", "a", "b"]);
    directory.write("a=10.0.0.1\n\nb=nowhere\n");
    let error = config.load().unwrap_err().to_string();
    assert!(error.contains("peers:3: bad peer 'b=nowhere'"), "{error}");
    directory.write("c=10.0.0.1\n");
    let error = config.load().unwrap_err().to_string();
    assert!(error.contains("peers:1: duplicate peer 'c'"), "{error}");
}

#[test]
fn an_unreadable_file_is_named() {
    let directory = TempDirectory::new("unreadable");
    for path in [directory.file(), directory.0.clone()] {
        let error = StaticConfig { peers: vec![], file: Some(path.clone()) }.load().unwrap_err();
        assert!(matches!(error, PeerError::File { .. }));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

async fn next_list(updates: &mut mpsc::Receiver<Update>) -> Vec<String> {
    loop {
        let update = tokio::time::timeout(Duration::from_mins(1), updates.recv()).await.unwrap().unwrap();
        if let Update::List(list) = update {
            return list.peers.into_iter().map(|p| p.node).collect();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_read_again_and_a_bad_one_keeps_the_list() {
    let directory = TempDirectory::new("changes");
    directory.write("a=10.0.0.1\n");
    let (sender, mut updates) = mpsc::channel(1);
    let (config, each_second) = (StaticConfig { peers: vec![], file: Some(directory.file()) }, Arc::new(Notify::new()));
    let notified = Arc::clone(&each_second);
    let run = tokio::spawn(async move { run(config, &notified, sender).await });
    let seconds = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            each_second.notify_one();
        }
    });
    assert_eq!(next_list(&mut updates).await, ["a"]);
    assert!(matches!(updates.recv().await, Some(Update::Confirmed)));

    // After a bad version or a missing file, nothing is sent. After a while the channel contains
    // only earlier updates.
    directory.write("b\n");
    while updates.try_recv().is_ok() {}
    assert!(tokio::time::timeout(Duration::from_secs(10), quiet(&mut updates)).await.is_err());
    fs::remove_file(directory.file()).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(10), quiet(&mut updates)).await.is_err());

    directory.write("b=10.0.0.2\n");
    assert_eq!(next_list(&mut updates).await, ["b"]);
    drop(updates);
    run.await.unwrap();
    seconds.abort();
}

/// Returns when a list arrives. A confirmation of the version before may still come.
async fn quiet(updates: &mut mpsc::Receiver<Update>) {
    let mut confirmed = 0;
    while let Some(update) = updates.recv().await {
        confirmed += 1;
        assert!(matches!(update, Update::Confirmed) && confirmed <= 2, "{update:?}");
    }
}

#[test]
fn a_file_that_could_not_be_opened_is_read_again_without_an_edit_and_a_bad_one_is_not() {
    let unreadable = |source: io::Error| PeerError::File { path: "peers".into(), source };
    let out_of_descriptors = || unreadable(io::Error::from_raw_os_error(libc::EMFILE));
    let version = Version::read(Path::new("/"));
    let mut check = FileCheck::new();
    assert!(check.update(version, || Err(out_of_descriptors())).is_none());
    assert!(check.update(version, || Err(out_of_descriptors())).is_none());
    assert!(matches!(check.update(version, || Ok(PeerList::default())), Some(Update::List(_))));
    let unasked = || panic!("nothing has changed");
    assert!(matches!(check.update(version, unasked), Some(Update::Confirmed)));
    for bad in [
        PeerError::TooMany { place: EntryOrigin::Flag },
        unreadable(io::Error::other("not a regular file")),
        unreadable(ErrorKind::InvalidData.into()),
    ] {
        // Another version is bad. It is not read again, and the list before is not confirmed.
        assert!(check.update(Version::default(), || Err(bad)).is_none());
        assert!(check.update(Version::default(), unasked).is_none());
        assert!(matches!(check.update(version, || Ok(PeerList::default())), Some(Update::List(_))));
    }
}
