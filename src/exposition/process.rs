//! What the kernel reports about this process and the machine, for the standard `process_*`
//! metrics.
//!
//! The prometheus crate's own collector was rejected for two reasons. It counts CPU time in whole
//! seconds, and our process needs minutes for one of those. It takes resident memory from a figure
//! that lags behind for each thread and CPU (proc(5), `VmRSS`); `smaps_rollup` is exact.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::cached::Cached;
use crate::sys::clock;
use crate::sys::proc;
use crate::units::Nanos;

/// How long a value of the agent's resident memory is reused before `smaps_rollup` is read again. A
/// reading costs 0.1 ms of kernel time.
const MEMORY_RESIDENT_TIME: Nanos = Nanos::from_millis(5_000);

/// What the kernel reports about this process. It is read without holding the registry's lock.
#[derive(Debug)]
pub struct ProcessReading {
    /// User and system CPU time.
    pub cpu: Nanos,
    /// Number of open file descriptors.
    pub open_descriptors: Option<u64>,
    /// Size of the virtual memory, in bytes.
    pub virtual_bytes: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
}

impl ProcessReading {
    /// Reads the values of this moment.
    pub fn now() -> Self {
        Self::from_status("/proc/self/status")
    }

    fn from_status(status: &str) -> Self {
        let mut virtual_bytes = None;
        let threads = proc::find(status, |line| {
            virtual_bytes = virtual_bytes.or_else(|| kilobytes(line, "VmSize:"));
            // This line comes after `VmSize:`.
            proc::number(line, "Threads:")
        });
        Self { cpu: clock::process_cpu(), open_descriptors: open_descriptors(), virtual_bytes, threads }
    }
}

/// Resident memory of the agent, from one reading of `smaps_rollup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// All resident memory.
    pub bytes: u64,
    /// The part of it that the agent has written to and shares with no other process.
    pub private_dirty_bytes: u64,
}

impl Resident {
    fn read() -> Option<Self> {
        Self::read_from("/proc/self/smaps_rollup")
    }

    fn read_from(path: &str) -> Option<Self> {
        let mut bytes = None;
        let private_dirty_bytes = proc::find(path, |line| {
            bytes = bytes.or_else(|| kilobytes(line, "Rss:"));
            // This line comes after `Rss:`.
            kilobytes(line, "Private_Dirty:")
        })?;
        Some(Self { bytes: bytes?, private_dirty_bytes })
    }
}

/// Parses a line of `name value kB`. Returns bytes.
fn kilobytes(line: &str, name: &str) -> Option<u64> {
    Some(proc::number::<u64>(line, name)?.saturating_mul(1_024))
}

/// Resident memory, shared by all callers: one reading is valid for [`MEMORY_RESIDENT_TIME`].
#[derive(Debug, Default)]
pub struct ResidentCache(Cached<Resident>);

impl ResidentCache {
    /// Returns the resident memory. Returns none if /proc does not provide it.
    pub fn get(&self, now: Nanos) -> Option<Resident> {
        self.0.get(now, MEMORY_RESIDENT_TIME, Resident::read)
    }
}

/// Counts the open file descriptors. Since Linux 6.2 this is the directory's size. Before that it
/// is the number of its entries, less the descriptor that reads them.
fn open_descriptors() -> Option<u64> {
    const DIRECTORY: &str = "/proc/self/fd";
    let size = fs::metadata(DIRECTORY).ok()?.size();
    if size > 0 { Some(size) } else { (fs::read_dir(DIRECTORY).ok()?.count() as u64).checked_sub(1) }
}

/// Returns when this process started, since the epoch.
pub fn start_time() -> Nanos {
    let (realtime, boottime) = (clock::realtime(), clock::boottime());
    start_since_epoch(realtime, boottime, start_since_boot().unwrap_or(boottime))
}

/// Returns when a process started, since the epoch: the current time less the process's age. Its
/// start and `boottime` are both on `CLOCK_BOOTTIME`, which continues while the machine is
/// suspended. `CLOCK_MONOTONIC` does not: on it, a process that started after a suspend would
/// have no age yet.
fn start_since_epoch(realtime: Nanos, boottime: Nanos, start: Nanos) -> Nanos {
    realtime.since(boottime.since(start))
}

/// Returns when this process started, on `CLOCK_BOOTTIME`. Returns none if /proc
/// does not provide it.
fn start_since_boot() -> Option<Nanos> {
    parse_start(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Parses the start from the text of /proc/PID/stat: field 22, in ticks of 1/100 s (USER_HZ) since
/// boot (proc(5)).
fn parse_start(stat: &str) -> Option<Nanos> {
    // The command in field 2 may contain any character, newlines too. The fields after its last
    // bracket are plain.
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    Some(Nanos(ticks * 10_000_000))
}

/// Returns the number of CPUs that are online, from `/sys` (`0-3,8`). This counts the machine's
/// CPUs, even those that this process may not use. Without `/sys`, those that it may use. Returns
/// none if the kernel tells neither.
pub fn cpus() -> Option<usize> {
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|list| count_cpu_list(list.trim()))
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
}

fn count_cpu_list(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
            (to + 1).checked_sub(from)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_described() {
        let reading = ProcessReading::now();
        assert!(reading.virtual_bytes.unwrap() > 500_000 && reading.cpu > Nanos(0));
        assert!(reading.threads.unwrap() >= 1 && reading.open_descriptors.unwrap() >= 3);
        let age = clock::realtime().since(start_time());
        assert!(age < Nanos(3_600_000_000_000), "{age:?}");
    }

    #[test]
    fn a_suspend_does_not_move_the_start() {
        let hours = |count: u64| Nanos(count * 3_600_000_000_000);
        let (epoch, boot_to_start) = (hours(490_000), hours(5));
        // Five hours after boot, of which the machine was suspended for three, the process is 0 to
        // 50 hours old.
        for age in [hours(0), hours(1), hours(50)] {
            let (realtime, boottime) = (epoch.plus(boot_to_start).plus(age), boot_to_start.plus(age));
            assert_eq!(start_since_epoch(realtime, boottime, boot_to_start), epoch.plus(boot_to_start));
        }
        // The start is never in the future.
        assert_eq!(start_since_epoch(hours(9), hours(5), hours(5).plus(Nanos(1))), hours(9));
    }

    #[test]
    fn the_start_is_found_behind_any_command() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20 21";
        for command in ["agent", "a b", ") S 1 2", "\n)"] {
            assert_eq!(parse_start(&format!("42 ({command}) {fields}")), Some(Nanos(12_340_000_000)), "{command}");
        }
        assert_eq!(parse_start("42 (agent) S 1 2"), None);
        let (start, now) = (start_since_boot().unwrap(), clock::boottime());
        assert!(start <= now && now.since(start) < Nanos(3_600_000_000_000), "{start:?} {now:?}");
    }

    #[test]
    fn resident_memory_is_known_at_once() {
        let Resident { bytes, private_dirty_bytes } = ResidentCache::default().get(Nanos::from_millis(1_000)).unwrap();
        assert!(bytes > 500_000 && (4_096..bytes).contains(&private_dirty_bytes), "{private_dirty_bytes} of {bytes}");
    }

    #[test]
    fn what_a_file_does_not_tell_is_unknown() {
        // None of these has the lines that are looked for.
        for path in ["/nowhere", "/dev/null", "/proc/cpuinfo", "/"] {
            assert_eq!(Resident::read_from(path), None, "{path}");
            let ProcessReading { virtual_bytes, threads, .. } = ProcessReading::from_status(path);
            assert_eq!((virtual_bytes, threads), (None, None), "{path}");
        }
        assert_eq!([parse_start(""), parse_start("1 (a) S"), parse_start("\u{fffd}")], [None; 3]);
    }

    #[test]
    fn open_descriptors_are_counted() {
        let count = || open_descriptors().unwrap();
        // Other tests open and close files at the same time. A few hundred of our own still stand
        // out.
        let before = count();
        let held: Vec<fs::File> = (0..300).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!((before + 250..before + 350).contains(&count()), "{before} {}", count());
        drop(held);
    }

    #[test]
    fn cpu_lists_are_counted() {
        for (list, count) in [("0", Some(1)), ("0-3", Some(4)), ("0-1,4,6-7", Some(5)), ("x", None), ("3-1", None)] {
            assert_eq!(count_cpu_list(list), count, "{list}");
        }
        assert!(cpus() >= Some(1));
    }
}
