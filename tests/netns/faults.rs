//! Faults by nftables, in the netdev family: at a device's ingress, before the packet reaches its
//! host's stack.

use serde_json::Value;

use crate::namespace::{Namespace, run};

/// A table with one chain at the ingress of `device`, and the counters that its rules name.
pub struct Faults<'a> {
    namespace: &'a Namespace,
}

impl<'a> Faults<'a> {
    pub fn new(namespace: &'a Namespace, device: &str, counters: &[&str], rules: &[String]) -> Self {
        let counters: Vec<String> = counters.iter().map(|name| format!("counter {name} {{ }}")).collect();
        let counters = counters.join("\n");
        let rules = rules.join("\n");
        let table = format!(
            "table netdev faults {{\n{counters}\nchain ingress {{\n\
             type filter hook ingress device \"{device}\" priority 0; policy accept;\n{rules}\n}}\n}}\n"
        );
        run(namespace.command("nft").args(["-f", "-"]), &table);
        Self { namespace }
    }

    /// Removes the rules, so that all packets pass again. The counters stay.
    pub fn stop(&self) {
        run(self.namespace.command("nft").args(["flush", "chain", "netdev", "faults", "ingress"]), "");
    }

    /// Packets that `counter` has seen.
    pub fn packets(&self, counter: &str) -> f64 {
        let text =
            run(self.namespace.command("nft").args(["--json", "list", "counter", "netdev", "faults", counter]), "");
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("nft: {error}: {text}"));
        let found =
            json["nftables"].as_array().into_iter().flatten().find_map(|entry| entry["counter"]["packets"].as_f64());
        found.unwrap_or_else(|| panic!("nft: no counter {counter}: {text}"))
    }
}
