//! What a test allocates has to be given back by its end. Every test binary, and the canary that it starts, has the leak
//! finder by the dev-dependency on ourselves.
//!
//! A canary says itself what it leaks; [`super::process`] looks at that. Tests of parts of it hold a [`NoLeaks`], which their
//! common set-up makes first and drops last.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::mpsc;
use std::time::Duration;

use kube_canary::allocator::finder::{Leak, Scope, ScopeNumber};

const _: () = assert!(cfg!(feature = "leak-finder"), "tests are not built by `cargo test`");

/// Set, it has every test say where it allocated what it did not give back; such a run takes several times as long.
const STACKS: &str = "KUBE_CANARY_TEST_STACKS";

thread_local! {
    /// What waiting for a channel, and a runtime, leave behind for the thread's next, or for the process.
    static WARM: () = {
        drop(runtime());
        let (_sender, receiver) = mpsc::sync_channel::<()>(1);
        let _ = receiver.recv_timeout(Duration::from_millis(1));
    };
}

/// Fails the test if what this thread allocated since is live when this is dropped.
pub struct NoLeaks(Scope);

impl NoLeaks {
    /// From now on.
    pub fn here() -> Self {
        WARM.with(|()| ());
        Self(if std::env::var_os(STACKS).is_some() { Scope::begin() } else { Scope::without_stacks() })
    }

    /// For further threads of this test.
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

/// Runs a test's future as `#[tokio::test]` does; whatever it started has gone with its runtime when leaks are looked for.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    WARM.with(|()| ());
    let _no_leaks = NoLeaks(Scope::begin());
    runtime().block_on(test)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
