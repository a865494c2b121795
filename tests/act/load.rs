//! What act costs beside an API server of 5,000 nodes: requests, and resident memory.
//!
//! `KUBE_CANARY_TEST_BINARY` names the program to measure, such as one of a release build. It runs
//! in a mount namespace of its own, in which the directory of the service account is that of the
//! stand-in. That needs root.

use std::process::{Child, Command};
use std::time::Duration;

use crate::{StandIns, free_address, status, until};

const NODES: usize = 5_000;
/// Time in which requests are counted: four rounds.
const COUNTED: Duration = Duration::from_secs(20);
/// Requests of five rounds, which may begin in that time: five nodes of a round are read and
/// patched, and the Lease is read and written each 10 s.
const REQUESTS_MAX: usize = 5 * 2 * 5 + 3 * 2;
/// Readings of the memory in that time.
const SAMPLES: u32 = 40;
/// Median resident memory of a release build for musl. For the milliseconds of a request, the code
/// of the request is resident, too: at most half as much again.
const RESIDENT_BYTES_MAX: u64 = 4 << 20;
/// The same of a debug build, whose code alone is larger.
const DEBUG_RESIDENT_BYTES_MAX: u64 = 48 << 20;
/// `$1` is the directory of the account, and the rest the command.
const IN_POD: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount \
    && cp \"$1\"/* /run/secrets/kubernetes.io/serviceaccount/ && shift && exec \"$@\"";

/// A process that is killed as this is dropped.
struct Running(Child);

impl Running {
    /// Makes the kernel forget the peak so far.
    fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.0.id()), "5").expect("its peak");
    }

    /// Returns the resident memory, in bytes: all of it, its peak, and the part that is not of a
    /// file.
    fn resident_bytes(&self) -> [u64; 3] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        ["VmRSS:", "VmHWM:", "RssAnon:"].map(|field| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("resident memory");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_mesh_of_5000_nodes_costs_the_api_server_two_requests_a_second() {
    let mesh = StandIns::start(NODES).await;
    *mesh.is_bad.lock().unwrap() = false;
    let given = std::env::var("KUBE_CANARY_TEST_BINARY").ok().filter(|path| !path.is_empty());
    let binary = given.as_deref().unwrap_or(env!("CARGO_BIN_EXE_kube-canary"));
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        IN_POD,
        "sh",
        mesh.account.0.to_str().unwrap(),
        binary,
        "act",
        "--conditions",
    ]);
    command.args(["--listen", &free_address().await.to_string()]);
    command.args(mesh.agents.iter().flat_map(|agent| ["--url".to_owned(), agent.to_string()]));
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", mesh.api.port().to_string());
    command.env("KUBE_CANARY_LOG_LEVEL", "warn").env("POD_NAMESPACE", "kube-canary");
    let running = Running(command.spawn().expect("unshare"));
    until("a condition", &mesh.seen, |seen| status(seen, "n1") == "False").await;
    let before = mesh.seen.lock().unwrap().requests;
    let (mut resident, mut most, mut anonymous) = (Vec::new(), 0, 0);
    running.reset_peak();
    for _ in 0..SAMPLES {
        tokio::time::sleep(COUNTED / SAMPLES).await;
        let [all, peak, without_file] = running.resident_bytes();
        resident.push(all);
        most = peak;
        anonymous = anonymous.max(without_file);
    }
    let requests = mesh.seen.lock().unwrap().requests - before;
    resident.sort_unstable();
    let median = resident[resident.len() / 2];
    let [median_kb, most_kb, anonymous_kb] = [median, most, anonymous].map(|bytes| bytes >> 10);
    eprintln!(
        "{requests} requests in {COUNTED:?}; resident: {median_kb} kB, at most {most_kb} kB, {anonymous_kb} kB of them no file's"
    );
    assert!((1..=REQUESTS_MAX).contains(&requests), "{requests} requests in {COUNTED:?}");
    let limit = if given.is_some() { RESIDENT_BYTES_MAX } else { DEBUG_RESIDENT_BYTES_MAX };
    assert!(median <= limit && most <= limit + limit / 2, "{median} bytes are resident, and {most} at most");
}
