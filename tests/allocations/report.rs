//! A compact report makes the objects of the peers that it keeps, and of no others.

use std::time::Instant;

use kube_canary::allocator;
use kube_canary::allocator::finder::unfollowed;
use kube_canary::exposition::App;
use kube_canary::http::Routes as _;
use kube_canary::limits::MAX_SERIES_DEFAULT;
use kube_canary::peers::Methods;
use kube_canary::report::{PATH, compact};

use super::counting::watch;
use super::leaks::NoLeaks;
use super::scrape::{metrics, view_by};

#[test]
fn a_compact_report_of_5000_peers_makes_no_more_objects_than_one_of_24() {
    let _no_leaks = NoLeaks::here();
    let of_peers = |peers: usize| {
        let (view, agent) = (view_by(Methods::ALL, peers), metrics(MAX_SERIES_DEFAULT));
        let app = App { view, agent, allocator: allocator::info(), node_addresses: Vec::new() };
        // The first one reads files that later ones do not.
        app.view.about.resident.get(kube_canary::sys::clock::monotonic());
        let begun = Instant::now();
        let (reply, asked) = watch(|| app.route(PATH, compact::MEDIA_TYPE));
        let took = begun.elapsed();
        drop(reply);
        unfollowed(|| println!("{peers} peers: {asked:?} in {took:?}"));
        asked
    };
    let [few, many] = [24, 5_000].map(of_peers);
    // The lists of hashes and slots grow a dozen times each.
    assert!(many.allocations <= few.allocations + 64, "{few:?} {many:?}");
    assert!(many.peak <= few.peak + 5_000 * 64, "{few:?} {many:?}");
}
