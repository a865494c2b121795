//! How often the CPU limit throttled our own cgroup. This distinguishes a starved agent from a slow
//! network.
//!
//! Version 2 keeps `nr_throttled` and `throttled_usec` in `cpu.stat`. Version 1 keeps
//! `nr_throttled` and `throttled_time` (in nanoseconds) there. The file has them if a cpu
//! controller is in charge of the group. `/proc/self/cgroup` gives the group's path within its
//! hierarchy. mountinfo says which part of the hierarchy is mounted where (cgroups(7)). There are
//! two traps:
//!
//! - In a container, the mount shows our group as its root. Its path begins at the hierarchy's root
//!   unless the container has a cgroup namespace.
//! - A hybrid machine has both versions. The one with the cpu controller counts.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::sys::proc;
use crate::units::Nanos;

/// The path of the file that each scrape reads. It is found once, because a container's processes
/// are in their group from the start.
#[derive(Debug)]
pub struct Throttle(PathBuf);

/// What the file contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Number of enforcement periods in which the group used up its quota.
    pub periods: u64,
    /// The total time for which the group was throttled, added up over CPUs.
    pub time: Nanos,
}

impl Throttle {
    /// Finds the file. Returns none if no cpu controller reports throttling.
    pub fn find() -> Option<Self> {
        let mut groups = Groups::default();
        proc::each_line("/proc/self/cgroup", |line| groups.line(line)).ok()?;
        let directory = groups.directory(|fits| proc::find("/proc/self/mountinfo", fits))?;
        let found = Self(directory.join("cpu.stat"));
        found.read().map(|_| found)
    }

    /// Reads the file. Returns none if it has no throttling figures, as is the case
    /// for the root group.
    pub fn read(&self) -> Option<Throttled> {
        let mut reading = Reading::default();
        proc::find(&self.0, |line| reading.line(line));
        reading.done()
    }
}

/// The paths of our group in the hierarchies that may have a cpu controller.
#[derive(Debug, Default)]
struct Groups {
    v1: Option<String>,
    v2: Option<String>,
}

impl Groups {
    /// Takes a line `hierarchy:controllers:path`. Version 2 is hierarchy 0 without controllers.
    fn line(&mut self, line: &str) -> ControlFlow<()> {
        if let Some((hierarchy, rest)) = line.split_once(':')
            && let Some((controllers, path)) = rest.split_once(':')
        {
            if hierarchy == "0" && controllers.is_empty() {
                self.v2 = Some(path.to_owned());
            } else if has_cpu(controllers) {
                self.v1 = Some(path.to_owned());
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the directory of the group whose controller counts. `mounts` returns the first line
    /// of mountinfo that matches.
    fn directory(&self, mounts: impl Fn(&mut Fits<'_>) -> Option<PathBuf>) -> Option<PathBuf> {
        let v1 = self.v1.as_deref().and_then(|group| mounts(&mut |line| directory(line, group, is_v1_cpu)));
        v1.or_else(|| mounts(&mut |line| directory(line, self.v2.as_deref()?, |mount| mount.kind == "cgroup2")))
    }
}

/// A function that returns the directory that a line of mountinfo leads to, if any.
type Fits<'a> = dyn FnMut(&str) -> Option<PathBuf> + 'a;

fn has_cpu(list: &str) -> bool {
    list.split(',').any(|item| item == "cpu")
}

/// A line of mountinfo: `id parent major:minor root point options [fields …] - kind source
/// super-options`.
#[derive(Debug)]
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    super_options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let mut back = back.split(' ');
        let (root, point, kind) = (front.next()?, front.next()?, back.next()?);
        Some(Self { root, point, kind, super_options: back.nth(1)? })
    }
}

fn is_v1_cpu(mount: &Mount<'_>) -> bool {
    mount.kind == "cgroup" && has_cpu(mount.super_options)
}

/// Returns the directory of `group` if this line mounts it and `wanted` accepts that mount.
fn directory(line: &str, group: &str, wanted: impl Fn(&Mount<'_>) -> bool) -> Option<PathBuf> {
    let mount = Mount::parse(line).filter(wanted)?;
    // `strip_prefix` of the text would be wrong: /a is not a parent of /ab. A mount from outside
    // our cgroup namespace has a root with dots, and shows only groups of other containers.
    let within = Path::new(group).strip_prefix(unescaped(mount.root)).ok()?;
    Some(Path::new(&unescaped(mount.point)).join(within))
}

/// Decodes a field of mountinfo. Blanks, tabs, newlines and backslashes are written there as `\`
/// and three octal digits (proc(5)).
fn unescaped(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let code = behind.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        out.push(code.map_or('\\', char::from));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    out + rest
}

/// Parses `cpu.stat` line by line.
#[derive(Debug, Default)]
struct Reading {
    periods: Option<u64>,
    time: Option<Nanos>,
}

impl Reading {
    /// Takes a line. Returns a value once both numbers are known.
    fn line(&mut self, line: &str) -> Option<()> {
        self.periods = self.periods.or_else(|| proc::number(line, "nr_throttled "));
        let v2 = || proc::number(line, "throttled_usec ").map(|us: u64| Nanos(us.saturating_mul(1_000)));
        let v1 = || proc::number(line, "throttled_time ").map(Nanos);
        self.time = self.time.or_else(v2).or_else(v1);
        self.periods.and(self.time).map(drop)
    }

    fn done(&self) -> Option<Throttled> {
        Some(Throttled { periods: self.periods?, time: self.time? })
    }
}

/// Parses any text as /proc/self/cgroup, mountinfo and `cpu.stat`.
#[cfg(feature = "fuzzing")]
pub fn fuzz_cgroup(text: &[u8]) {
    let (mut groups, mut reading) = (Groups::default(), Reading::default());
    let _ = proc::for_each_line(&mut &*text, &mut |line| groups.line(line));
    let mounts = |fits: &mut Fits<'_>| {
        let mut found = None;
        let _ = proc::for_each_line(&mut &*text, &mut |line| {
            found = fits(line);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    };
    let _ = groups.directory(mounts);
    let _ = proc::for_each_line(&mut &*text, &mut |line| match reading.line(line) {
        Some(()) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    let _ = reading.done();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the directory from the texts of both files.
    fn found(cgroup: &str, mountinfo: &str) -> Option<String> {
        let mut groups = Groups::default();
        let _ = cgroup.lines().try_for_each(|line| groups.line(line));
        let path = groups.directory(|fits| mountinfo.lines().find_map(fits))?;
        Some(path.to_string_lossy().into_owned())
    }

    fn read(text: &str) -> Option<Throttled> {
        let mut reading = Reading::default();
        text.lines().find_map(|line| reading.line(line));
        reading.done()
    }

    const HYBRID: &str = "\
        25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
        31 25 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n\
        36 31 0:33 / /sys/fs/cgroup/cpuset rw shared:14 - cgroup cgroup rw,cpuset\n\
        37 31 0:34 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n";
    const UNIFIED: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

    #[test]
    fn version_2_on_a_host_and_nested() {
        let user = "0::/user.slice/user-1000.slice/session-2.scope\n";
        assert_eq!(found(user, UNIFIED).unwrap(), "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope");
        assert_eq!(found("0::/\n", UNIFIED).unwrap(), "/sys/fs/cgroup/");
    }

    #[test]
    fn version_2_in_a_container_with_and_without_a_cgroup_namespace() {
        let own = "612 611 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw\n";
        assert_eq!(found("0::/\n", own).unwrap(), "/sys/fs/cgroup/");
        let pod = "/kubepods.slice/kubepods-podb1f2.slice/cri-containerd-77aa.scope";
        let host = format!("612 611 0:26 {pod} /sys/fs/cgroup ro,nosuid,relatime - cgroup2 cgroup rw\n");
        assert_eq!(found(&format!("0::{pod}\n"), &host).unwrap(), "/sys/fs/cgroup/");
        let beside = "612 611 0:26 /../other /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(found("0::/\n", beside), None, "what is mounted is not ours");
        assert_eq!(found("0::/ab\n", "1 2 0:3 /a /sys/fs/cgroup ro - cgroup2 cgroup rw\n"), None);
    }

    #[test]
    fn version_1_wins_where_it_has_the_cpu_controller() {
        let text = "12:cpuset:/\n4:cpu,cpuacct:/system.slice/canary.service\n1:name=systemd:/x\n0::/system.slice/u\n";
        assert_eq!(found(text, HYBRID).unwrap(), "/sys/fs/cgroup/cpu,cpuacct/system.slice/canary.service");
        let without = "12:cpuset:/\n3:cpuacct:/a\n0::/system.slice/u\n";
        assert_eq!(found(without, HYBRID).unwrap(), "/sys/fs/cgroup/unified/system.slice/u");
    }

    #[test]
    fn version_1_in_a_docker_container() {
        let id = "/docker/4f2d9c";
        let mountinfo = format!("749 742 0:34 {id} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
        let text = format!("4:cpu,cpuacct:{id}\n1:name=systemd:{id}\n");
        assert_eq!(found(&text, &mountinfo).unwrap(), "/sys/fs/cgroup/cpu,cpuacct/");
        assert_eq!(
            found(&format!("4:cpu,cpuacct:{id}/inner\n"), &mountinfo).unwrap(),
            "/sys/fs/cgroup/cpu,cpuacct/inner"
        );
    }

    #[test]
    fn a_mount_point_with_a_blank_is_read() {
        let line = "30 23 0:26 / /mnt/a\\040b\\134c rw - cgroup2 none rw\n";
        assert_eq!(found("0::/x\n", line).unwrap(), "/mnt/a b\\c/x");
        assert_eq!(unescaped("a\\9b\\"), "a\\9b\\");
    }

    #[test]
    fn both_versions_of_cpu_stat_are_read_and_one_without_a_controller_has_no_figures() {
        let v2 = "usage_usec 8500\nuser_usec 5000\nsystem_usec 3500\nnr_periods 120\nnr_throttled 7\nthrottled_usec 41250\n\
                  nr_bursts 0\nburst_usec 0\n";
        assert_eq!(read(v2), Some(Throttled { periods: 7, time: Nanos(41_250_000) }));
        let v1 = "nr_periods 120\nnr_throttled 7\nthrottled_time 41250123\n";
        assert_eq!(read(v1), Some(Throttled { periods: 7, time: Nanos(41_250_123) }));
        assert_eq!(read("usage_usec 8500\nuser_usec 5000\nsystem_usec 3500\n"), None);
        assert_eq!(read(""), None);
    }
}
