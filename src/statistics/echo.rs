//! Counters that the kernel keeps for the agent's network namespace: echo requests received and
//! echo replies sent. Compared with the number of requests that other agents sent, they separate
//! inbound from outbound loss. This takes no additional packets.

use std::ops::ControlFlow;

use crate::sys::proc;

/// Sums of ICMP and ICMPv6 since the namespace was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounters {
    /// `InEchos` plus `Icmp6InEchos`.
    pub requests_received: u64,
    /// `OutEchoReps` plus `Icmp6OutEchoReplies`.
    pub replies_sent: u64,
}

impl EchoCounters {
    /// Reads /proc/net/snmp and /proc/net/snmp6 of this process's namespace. A file that is missing
    /// counts as zero. Allocates nothing, because the probe thread calls it too.
    pub fn read() -> Self {
        let mut reader = Reader::default();
        // The two files are read independently, because IPv6 may be off.
        let _ = proc::each_line("/proc/self/net/snmp", |line| reader.v4(line));
        let _ = proc::each_line("/proc/self/net/snmp6", |line| reader.v6(line));
        reader.counters
    }

    /// Returns the increase since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            requests_received: self.requests_received.saturating_sub(earlier.requests_received),
            replies_sent: self.replies_sent.saturating_sub(earlier.replies_sent),
        }
    }
}

impl EchoCounters {
    const fn add(&mut self, requests_received: u64, replies_sent: u64) {
        self.requests_received = self.requests_received.saturating_add(requests_received);
        self.replies_sent = self.replies_sent.saturating_add(replies_sent);
    }
}

/// Parses any text as /proc/net/snmp and as /proc/net/snmp6.
#[cfg(feature = "fuzzing")]
pub fn fuzz_snmp(text: &[u8]) {
    let mut reader = Reader::default();
    let _ = proc::lines_of(&mut &*text, &mut |line| reader.v4(line));
    let _ = proc::lines_of(&mut &*text, &mut |line| reader.v6(line));
    let _ = reader.counters.since(EchoCounters::default());
}

/// Parses the two files line by line.
#[derive(Default)]
struct Reader {
    counters: EchoCounters,
    /// Column numbers of the two counters in the line of values. `None` before the line
    /// of names was read.
    columns: Option<[usize; 2]>,
}

impl Reader {
    /// Two lines start with `Icmp: `: the first has the names, the second the values.
    fn v4(&mut self, line: &str) -> ControlFlow<()> {
        let Some(fields) = line.strip_prefix("Icmp: ") else { return ControlFlow::Continue(()) };
        let Some(columns) = self.columns else {
            // If the name is missing, the column is past the end of every line.
            let column = |name| fields.split(' ').position(|field| field == name).unwrap_or(usize::MAX);
            self.columns = Some([column("InEchos"), column("OutEchoReps")]);
            return ControlFlow::Continue(());
        };
        let value = |column| fields.split(' ').nth(column).and_then(|value| value.parse().ok()).unwrap_or(0u64);
        self.counters.add(value(columns[0]), value(columns[1]));
        ControlFlow::Break(())
    }

    fn v6(&mut self, line: &str) -> ControlFlow<()> {
        let [received, sent] = ["Icmp6InEchos ", "Icmp6OutEchoReplies "].map(|name| proc::number(line, name));
        self.counters.add(received.unwrap_or(0), sent.unwrap_or(0));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_added_up() {
        let snmp = "Ip: Forwarding\nIp: 1\nIcmp: InMsgs InErrors InEchos OutEchos OutEchoReps\nIcmp: 9 0 3 4 5\n";
        let snmp6 = "Icmp6InMsgs                     \t8\nIcmp6InEchos                    \t20\n\
                     Icmp6InEchoReplies              \t7\nIcmp6OutEchoReplies             \t30\n";
        let read = |snmp: &str, snmp6: &str| {
            let mut reader = Reader::default();
            let _ = snmp.lines().try_for_each(|line| reader.v4(line));
            let _ = snmp6.lines().try_for_each(|line| reader.v6(line));
            reader.counters
        };
        assert_eq!(read(snmp, snmp6), EchoCounters { requests_received: 23, replies_sent: 35 });
        assert_eq!(read("Icmp: InMsgs\nIcmp: 9\n", ""), EchoCounters::default());
    }
}
