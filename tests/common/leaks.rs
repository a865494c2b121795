//! Every allocation of a test must be freed by its end. Every test binary, and every agent that it
//! starts, has the leak finder by the dev-dependency on this package.
//!
//! An agent reports its own leaks, and [`super::process`] checks that. Tests of its parts hold a
//! [`NoLeaks`], which their common set-up creates first and drops last.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::mpsc;
use std::time::Duration;

use kube_canary::allocator::finder::{Leak, LeakScope, ScopeNumber};

const _: () = assert!(cfg!(feature = "leak-finder"), "tests are not built by `cargo test`");

/// If this variable is set, every test prints where it allocated what it did not free. Such a run
/// takes several times as long.
const STACKS: &str = "KUBE_CANARY_TEST_STACKS";

thread_local! {
    /// The memory that the first wait for a channel, and the first runtime, leave for later ones of
    /// the thread or process.
    ///
    /// The channel has no buffer, because the receiver of such a channel prepares to wait before it
    /// looks at the clock. One with a buffer looks first. If the thread lost its CPU for the length
    /// of a timeout, it returned without the preparation. The next wait then left 48 bytes, which
    /// the test reported as a leak.
    static WARM: () = {
        drop(runtime());
        let (_sender, receiver) = mpsc::sync_channel::<()>(0);
        let _ = receiver.recv_timeout(Duration::ZERO);
    };
}

/// Fails the test if an allocation of this thread since its creation is live when this is dropped.
pub struct NoLeaks(LeakScope);

impl NoLeaks {
    /// Observes the allocations of this thread from now on.
    pub fn here() -> Self {
        WARM.with(|()| ());
        Self(if std::env::var_os(STACKS).is_some() { LeakScope::begin() } else { LeakScope::without_stacks() })
    }

    /// Bytes of the test that are live.
    pub fn live_bytes(&self) -> usize {
        self.0.leaks().iter().map(|leak| leak.bytes).sum()
    }

    /// The number of the scope, for further threads of this test.
    pub fn number(&self) -> ScopeNumber {
        self.0.number()
    }
}

impl Drop for NoLeaks {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let leaks: Vec<String> = self.0.leaks().iter().map(Leak::to_string).collect();
            assert!(leaks.is_empty(), "not given back ({STACKS}=1 has call sites named):\n{}", leaks.join("\n"));
        }
    }
}

/// Runs a test's future as `#[tokio::test]` does. The runtime is dropped, with all its tasks,
/// before the check for leaks.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    WARM.with(|()| ());
    let _no_leaks = NoLeaks(LeakScope::begin());
    runtime().block_on(test)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
