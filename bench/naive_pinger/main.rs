//! The naive alternative, for `bench/naive` and `bench/peers`: one surge-ping `Pinger` and one task
//! per peer.
//!
//! `naive_pinger PEERS SECONDS [A.B]` pings each A.B.x.y (127.1.x.y) once a second and prints one
//! CSV line.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_canary::sys::clock;
use surge_ping::{Client, Config, PingIdentifier, PingSequence};

#[derive(Default)]
struct Seen {
    sent: u64,
    lost: u64,
    rtts: Vec<Duration>,
}

fn usage() -> ! {
    eprintln!("usage: naive_pinger PEERS SECONDS [A.B]");
    std::process::exit(2);
}

fn main() {
    let number = |index| std::env::args().nth(index).and_then(|text| text.parse::<u16>().ok());
    let (Some(peers), Some(seconds)) = (number(1), number(2)) else {
        usage();
    };
    let prefix = std::env::args().nth(3).unwrap_or_else(|| "127.1".to_owned());
    let Ok(first) = format!("{prefix}.0.0").parse::<Ipv4Addr>() else { usage() };
    let [a, b, ..] = first.octets();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        // One client for all peers: dropping a clone would end the pings of the others.
        let client = Arc::new(Client::new(&Config::default()).expect("an ICMP socket"));
        for peer in 0..peers {
            let [high, low] = peer.to_be_bytes();
            let address = IpAddr::V4(Ipv4Addr::new(a, b, high, low.max(1)));
            let (client, seen) = (Arc::clone(&client), Arc::clone(&seen));
            tokio::task::spawn_local(async move {
                let mut pinger = client.pinger(address, PingIdentifier(peer)).await;
                pinger.timeout(Duration::from_secs(1));
                // Pings are spread over the second, as the agent spreads its probes. Without this,
                // most pings would be lost.
                tokio::time::sleep(Duration::from_secs(1) * u32::from(peer) / u32::from(peers)).await;
                let mut ticks = tokio::time::interval(Duration::from_secs(1));
                for sequence in 0..seconds.saturating_sub(1) {
                    ticks.tick().await;
                    let answer = pinger.ping(PingSequence(sequence), &[0; 56]).await;
                    let mut seen = seen.lock().expect("no panic");
                    seen.sent += 1;
                    match answer {
                        Ok((_, rtt)) => seen.rtts.push(rtt),
                        Err(_) => seen.lost += 1,
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(seconds.into()) + Duration::from_millis(500)).await;
    });
    let mut seen = seen.lock().expect("no panic");
    seen.rtts.sort_unstable();
    let quantile = |q: usize| seen.rtts.get(seen.rtts.len() * q / 100).map_or(f64::NAN, |rtt| rtt.as_secs_f64() * 1e6);
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let rss = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).map_or("", str::trim);
    println!(
        "{},{},{:.1},{},{:.1},{:.1}",
        seen.sent,
        seen.lost,
        clock::process_cpu().as_secs_f64() * 1e6 / seen.sent.max(1) as f64,
        rss.trim_end_matches(" kB"),
        quantile(50),
        quantile(99),
    );
}
