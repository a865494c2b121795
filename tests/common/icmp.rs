//! Permits ICMP to every user. If neither kind of ICMP socket is permitted, the test process moves
//! into a user and network namespace of its own. It must do this while it has one thread. So it
//! runs before `main`, because the test harness starts threads.
#![expect(unsafe_code, reason = "a constructor is a symbol in a section that the loader runs")]

use kube_canary::commands::demo::namespace;

// SAFETY: the loader calls what stands in .init_array once, before main, with the arguments of
// main, which a C function may ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    if namespace::can_ping() {
        return;
    }
    match namespace::enter_user().and_then(|()| namespace::NetworkNamespace::enter_new()) {
        Ok(_) => eprintln!("ICMP is not permitted here: the tests run in a user and network namespace of their own"),
        // The tests report what fails because of that.
        Err(error) => eprintln!("ICMP is not permitted here, and a namespace of our own is refused: {error}"),
    }
}
