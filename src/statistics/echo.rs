//! What the agent's network namespace counted itself: echo requests received and replies sent. Set beside what the
//! others sent, they tell loss on the way there from loss on the way back, without one more packet.

use std::ops::ControlFlow;

use crate::proc;

/// ICMP and ICMPv6 together, since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounters {
    /// `InEchos` and `Icmp6InEchos`.
    pub requests_received: u64,
    /// `OutEchoReps` and `Icmp6OutEchoReplies`.
    pub replies_sent: u64,
}

impl EchoCounters {
    /// Reads /proc/net/snmp and snmp6 of this process's namespace; a file that is not there counts nothing. Allocates
    /// nothing: the probe thread reads it too.
    pub fn read() -> Self {
        let mut reader = Reader::default();
        // Each on its own: IPv6 may be off.
        let _ = proc::each_line("/proc/self/net/snmp", |line| reader.v4(line));
        let _ = proc::each_line("/proc/self/net/snmp6", |line| reader.v6(line));
        reader.counters
    }

    /// What came since `earlier`.
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

/// Reads any text as /proc/net/snmp and snmp6.
#[cfg(feature = "fuzzing")]
pub fn fuzz_snmp(text: &[u8]) {
    let mut reader = Reader::default();
    let _ = proc::lines_of(&mut &*text, &mut |line| reader.v4(line));
    let _ = proc::lines_of(&mut &*text, &mut |line| reader.v6(line));
    let _ = reader.counters.since(EchoCounters::default());
}

/// Takes the files line by line.
#[derive(Default)]
struct Reader {
    counters: EchoCounters,
    /// The columns of the two counters, once the line of names has told them.
    columns: Option<[usize; 2]>,
}

impl Reader {
    /// Two lines begin with `Icmp: `: one of names, then one of values.
    fn v4(&mut self, line: &str) -> ControlFlow<()> {
        let Some(fields) = line.strip_prefix("Icmp: ") else { return ControlFlow::Continue(()) };
        let Some(columns) = self.columns else {
            // Past the end where there is no such name: a value that no line has.
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
