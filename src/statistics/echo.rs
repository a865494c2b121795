//! What the agent's network namespace counted itself: echo requests received and replies sent. Set beside what the
//! others sent, they tell loss on the way there from loss on the way back, without one more packet.

use std::fs;
use std::sync::Mutex;
use std::sync::PoisonError;

/// ICMP and ICMPv6 together, since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounters {
    /// `InEchos` and `Icmp6InEchos`.
    pub requests_received: u64,
    /// `OutEchoReps` and `Icmp6OutEchoReplies`.
    pub replies_sent: u64,
}

impl EchoCounters {
    /// Reads /proc/net/snmp and snmp6 of this process's namespace; a file that is not there counts nothing.
    pub fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/proc/self/net/snmp"), &text("/proc/self/net/snmp6"))
    }

    fn parse(snmp: &str, snmp6: &str) -> Self {
        let mut icmp = snmp.lines().filter_map(|line| line.strip_prefix("Icmp: "));
        let (names, values) = (icmp.next().unwrap_or_default(), icmp.next().unwrap_or_default());
        let v4 = |name| {
            let value = names.split(' ').zip(values.split(' ')).find(|(n, _)| *n == name);
            value.and_then(|(_, v)| v.parse().ok()).unwrap_or(0)
        };
        let v6 = |name| {
            let line = snmp6.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            line.unwrap_or(0u64)
        };
        Self {
            requests_received: v4("InEchos") + v6("Icmp6InEchos "),
            replies_sent: v4("OutEchoReps") + v6("Icmp6OutEchoReplies "),
        }
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

/// The counters at the start of the older and of the newer half of the recent window.
#[derive(Debug, Default)]
pub struct RecentEchoes {
    marks: Mutex<Option<[EchoCounters; 2]>>,
}

impl RecentEchoes {
    /// A new half begins.
    pub fn turn(&self, now: EchoCounters) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        *marks = Some([marks.map_or(now, |held| held[1]), now]);
    }

    /// What came in the recent window.
    pub fn read(&self, now: EchoCounters) -> EchoCounters {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.map_or_else(EchoCounters::default, |held| now.since(held[0]))
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
        let expected = EchoCounters { requests_received: 23, replies_sent: 35 };
        assert_eq!(EchoCounters::parse(snmp, snmp6), expected);
        assert_eq!(EchoCounters::parse("", ""), EchoCounters::default());
    }

    #[test]
    fn the_recent_window_starts_at_the_older_half() {
        let at = |n| EchoCounters { requests_received: n, replies_sent: n };
        let recent = RecentEchoes::default();
        assert_eq!(recent.read(at(5)), at(0));
        recent.turn(at(10));
        assert_eq!(recent.read(at(15)), at(5));
        recent.turn(at(20));
        recent.turn(at(30));
        assert_eq!(recent.read(at(33)), at(13));
    }
}
