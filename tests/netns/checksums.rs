//! Broken checksums of UDP and TCP, as a tunnel that offloads them wrongly makes them. ICMP passes.
//!
//! Packets between namespaces carry no checksum as long as no device needs one, and the receiver
//! then verifies none. So every sender computes its checksums in software, and the receiver's
//! ingress overwrites them.
#![expect(unsafe_code, reason = "SIOCETHTOOL has no safe wrapper in std")]

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::namespace::Namespace;

/// ETHTOOL_STXCSUM of linux/ethtool.h.
const SET_TRANSMIT_CHECKSUM: u32 = 0x17;

/// struct ethtool_value of linux/ethtool.h.
#[repr(C)]
struct Command {
    command: u32,
    data: u32,
}

/// Makes the kernel compute the checksums of packets that leave by this device.
pub fn compute_in_software(namespace: &Namespace, device: &str) {
    namespace.within(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut command = Command { command: SET_TRANSMIT_CHECKSUM, data: 0 };
        // SAFETY: all of its fields may be zero.
        let mut request = unsafe { mem::zeroed::<libc::ifreq>() };
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_data = (&raw mut command).cast();
        // SAFETY: the request names a device and points to a command, and both outlive the call.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        assert_eq!(done, 0, "{device}: {}", io::Error::last_os_error());
    });
}

/// The rules that break the checksums of packets which match `packets`, and count them.
pub fn broken(packets: &str, counter: &str) -> [String; 2] {
    // The checksum begins at this bit of the header: RFC 768 and RFC 9293.
    [("udp", 48), ("tcp", 128)].map(|(protocol, bit)| {
        format!("{packets} meta l4proto {protocol} counter name {counter} @th,{bit},16 set 0xdead")
    })
}

/// Datagrams that the namespace has dropped for their checksums.
pub fn refused_datagrams(namespace: &Namespace) -> u64 {
    let text = namespace.within(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("counters");
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let (_, value) = names.zip(values).find(|(name, _)| *name == "InCsumErrors").expect("a count of them");
    value.parse().expect("a number")
}
