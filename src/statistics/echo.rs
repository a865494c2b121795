//! Counters that the kernel keeps for the agent's network namespace: echo requests received and
//! echo replies sent. Compared with the number of requests that other agents sent, they separate
//! inbound from outbound loss. This takes no additional packets.

use std::io::ErrorKind;
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
    /// Reads /proc/net/snmp and /proc/net/snmp6 of this process's namespace. Returns none if either
    /// does not tell. The second one does not exist if IPv6 is off, which counts as zero. Allocates
    /// nothing, because the probe thread calls it too.
    pub fn read() -> Option<Self> {
        Self::read_from("/proc/self/net/snmp", "/proc/self/net/snmp6")
    }

    fn read_from(v4: &str, v6: &str) -> Option<Self> {
        let mut reader = SnmpReader::default();
        proc::each_line(v4, |line| reader.v4(line)).ok()?;
        match proc::each_line(v6, |line| reader.v6(line)) {
            Err(error) if error.kind() == ErrorKind::NotFound => reader.v6_found = 2,
            other => other.ok()?,
        }
        reader.counters()
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
    let mut reader = SnmpReader::default();
    let _ = proc::for_each_line(&mut &*text, &mut |line| reader.v4(line));
    let _ = proc::for_each_line(&mut &*text, &mut |line| reader.v6(line));
    let _ = reader.counters().map(|counters| counters.since(EchoCounters::default()));
}

/// Parses the two files line by line.
#[derive(Default)]
struct SnmpReader {
    counters: EchoCounters,
    /// Column numbers of the two counters in the line of values. `None` before the line
    /// of names was read.
    columns: Option<[usize; 2]>,
    /// Whether both counters of IPv4 were read.
    has_v4: bool,
    /// Number of counters of IPv6 that were read. There are two.
    v6_found: u8,
}

impl SnmpReader {
    /// Returns the sums, if all four counters were read.
    fn counters(&self) -> Option<EchoCounters> {
        (self.has_v4 && self.v6_found >= 2).then_some(self.counters)
    }

    /// Two lines start with `Icmp: `: the first has the names, the second the values.
    fn v4(&mut self, line: &str) -> ControlFlow<()> {
        let Some(fields) = line.strip_prefix("Icmp: ") else { return ControlFlow::Continue(()) };
        let Some(columns) = self.columns else {
            // If the name is missing, the column is past the end of every line.
            let column = |name| fields.split(' ').position(|field| field == name).unwrap_or(usize::MAX);
            self.columns = Some([column("InEchos"), column("OutEchoReps")]);
            return ControlFlow::Continue(());
        };
        let [received, sent] = columns.map(|column| fields.split(' ').nth(column)?.parse().ok());
        if let (Some(received), Some(sent)) = (received, sent) {
            self.counters.add(received, sent);
            self.has_v4 = true;
        }
        ControlFlow::Break(())
    }

    fn v6(&mut self, line: &str) -> ControlFlow<()> {
        let [received, sent]: [Option<u64>; 2] =
            ["Icmp6InEchos ", "Icmp6OutEchoReplies "].map(|name| proc::number(line, name));
        self.v6_found = self.v6_found.saturating_add(u8::from(received.is_some()) + u8::from(sent.is_some()));
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
            let mut reader = SnmpReader::default();
            let _ = snmp.lines().try_for_each(|line| reader.v4(line));
            let _ = snmp6.lines().try_for_each(|line| reader.v6(line));
            reader.counters()
        };
        assert_eq!(read(snmp, snmp6), Some(EchoCounters { requests_received: 23, replies_sent: 35 }));
        for (snmp, snmp6) in [
            ("Icmp: InMsgs\nIcmp: 9\n", snmp6),
            ("Icmp: InEchos OutEchoReps\nIcmp: 9\n", snmp6),
            ("Icmp: InEchos OutEchoReps\nIcmp: x y\n", snmp6),
            ("", snmp6),
            (snmp, ""),
            (snmp, "Icmp6InEchos 20\nIcmp6OutEchoReplies x\n"),
            ("\0\u{fffd}", "\0"),
        ] {
            assert_eq!(read(snmp, snmp6), None, "{snmp:?} {snmp6:?}");
        }
    }

    #[test]
    fn only_a_missing_file_of_ipv6_counts_as_zero() {
        let read = EchoCounters::read_from;
        let of_ipv4 = "/proc/self/net/snmp";
        assert!(EchoCounters::read().is_some() && read(of_ipv4, "/nowhere").is_some());
        for (v4, v6) in [("/nowhere", "/nowhere"), ("/dev/null", "/nowhere"), (of_ipv4, "/dev/null"), (of_ipv4, "/")] {
            assert_eq!(read(v4, v6), None, "{v4} {v6}");
        }
    }
}
