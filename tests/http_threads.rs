//! The number of threads. This test is alone in a process, where no other test starts threads.

mod http_support;

use std::{fs, thread};

use http_support::{eventually, generous_limits, get, lines, serve};
use kube_canary::limits::CONNECTIONS_PER_WORKER;

/// The names of this process's threads that begin like a worker's.
fn workers() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir("/proc/self/task")
        .expect("procfs")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with("http-") || name.starts_with("tokio"))
        .collect();
    names.sort();
    names
}

#[test]
fn the_number_of_threads_does_not_depend_on_the_load() {
    let before = fs::read_dir("/proc/self/task").expect("procfs").count();
    let agent = serve(4, 2_000, generous_limits());
    let expected = ["http-0", "http-1", "http-2", "http-3"];
    assert_eq!(workers(), expected);
    assert_eq!(fs::read_dir("/proc/self/task").expect("procfs").count(), before + 4);
    thread::scope(|scope| {
        // There are as many requests as places. Of more, some would be closed to make room before
        // the server reads them.
        let requests: Vec<_> =
            (0..4 * CONNECTIONS_PER_WORKER).map(|_| scope.spawn(|| get(agent.address, "/metrics"))).collect();
        for request in requests {
            assert_eq!(workers(), expected);
            let response = request.join().expect("no panic").expect("an answer");
            assert_eq!((response.status, response.body == lines(2_000)), (200, true));
        }
    });
    // A thread is joined before it disappears from /proc.
    let threads = || fs::read_dir("/proc/self/task").expect("procfs").count();
    eventually("as many threads as before the requests", || threads() == before + 4);
    agent.server.shutdown();
    eventually("no worker", || workers().is_empty());
}
